"""Requests twice what no checksum of the store covers; both answers must be equal.

Listings have no checksum, and one wrong byte in a page can lose a file, or all later pages, without a trace. Ranges of
an object have none, either: its checksum is of the whole. So one wrong answer is noticed, whatever its cause; the price
is twice the bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

from corpusmill.errors import StoreUnavailableError
from corpusmill.storage.locations import StoredFile
from corpusmill.storage.retries import ChecksumMismatchError, Traffic, twice_if_changed

ReadRange = Callable[[int, int], bytes]
"""(first, last) -> the bytes [first, last), whole or an error."""


def read_twice(read_range: ReadRange, *, where: str, traffic: Traffic) -> ReadRange:
    """`read_range` with every range read once more, by two requests for its halves, so that no cache of the first can
    answer.

    If the bytes differ, both reads are repeated; ChecksumMismatchError if they differ again.
    """

    def once(first: int, last: int) -> bytes:
        middle = (first + last) // 2
        data = read_range(first, last)
        if read_range(first, middle) + read_range(middle, last) != data:
            raise ChecksumMismatchError(
                "store.reads_differ: two reads of the same bytes differ",
                where=f"{where}, bytes {first:,} to {last:,}",
                next_step="run again; if it persists, check the network between here and the store",
            )
        return data

    return lambda first, last: twice_if_changed(lambda: once(first, last), traffic)


def listed_twice(listing: Callable[[], Iterator[StoredFile]], where: str) -> Iterator[StoredFile]:
    """The files of two concurrent listings, each with its own pages; StoreUnavailableError at a difference."""
    for first, other in zip_longest(listing(), listing()):
        if first is None or first != other:
            raise StoreUnavailableError(
                "store.listings_differ: two listings of the same place differ",
                where=where,
                expected=first.location if first else "the end of the listing",
                got=other.location if other else "the end of the listing",
                next_step="wait until nobody writes there, then run again",
            )
        yield first
