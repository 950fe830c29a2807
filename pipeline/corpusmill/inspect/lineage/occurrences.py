"""Finds the earlier text that a duplicate range repeats, through the dataset's index.

A repeat is a union of windows of L = minimum_bytes bytes that occurred earlier. A Finder (by_anchors.py) finds the
first place of one of them; from there the texts are compared byte for byte as far as they agree, and the search
continues behind that. A removed range is a repeat cut at whole characters, parts of a repeat
(`keep: every_string`), or several repeats with the text between them (`fuzzy_share`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError
from corpusmill.inspect.lineage.facts import Duplicate, Occurrence, Span
from corpusmill.inspect.lineage.shards import DeduplicatedShard, EarlierShard, Shards

COMPARE_BYTES = 1 << 16


@dataclass(frozen=True)
class Passage:
    """A document and everything before it: the shards before its own, and its own shard up to it.

    before      the shards of references and of the dataset, in order
    shard       the document's own
    origin      where the document's text begins in its shard's text
    document    uint8 (n,): its bytes
    """

    before: Sequence[EarlierShard]
    shard: DeduplicatedShard
    origin: int
    document: NDArray[np.uint8]
    minimum_bytes: int

    @property
    def shards(self) -> list[EarlierShard]:
        """All shards in order; the last one holds the document."""
        return [*self.before, self.shard]


Finder = Callable[[int, int], tuple[int, EarlierShard, int] | None]
"""(low, high) to the first place of a window that occurred earlier, of those that start at `low` to `high` in the
document: its start there, the shard and the position in the shard's text; None if no index entry leads to one."""


def passage(shards: Shards, shard: DeduplicatedShard, ordinal: int, minimum_bytes: int) -> Passage:
    """Document `ordinal` of `shard`, and all before it."""
    origin, last = shard.text_span(ordinal)
    before = [*shards.references, *(shards[number].deduplicated for number in range(shard.number))]
    return Passage(before, shard, origin, shard.text.text[origin:last], minimum_bytes)


def duplicates(of: Passage, ordinal: int, first_window: Finder) -> tuple[Duplicate, ...]:
    """The document's duplicate ranges, each with the earlier text that covers its repeated parts, in order."""
    shard = of.shard
    repeats = shard.repeats(ordinal)
    ends = [end for _, end in repeats]

    def occurrences(cut: Span) -> Iterator[Occurrence]:
        for repeat in repeats[bisect_right(ends, cut[0]) :]:
            if repeat[0] >= cut[1]:
                return
            yield from _cover(of, repeat, cut, first_window)

    return tuple(Duplicate(cut, tuple(occurrences(cut))) for cut in shard.duplicates(ordinal))


def _cover(of: Passage, repeat: Span, cut: Span, first_window: Finder) -> Iterator[Occurrence]:
    """Earlier text for the part of `cut` within `repeat`; an occurrence may begin before it and end behind it."""
    first, last = repeat
    covered = max(first, cut[0])
    while covered < min(last, cut[1]):
        # Some earlier window holds the first uncovered byte.
        low = max(first, covered - of.minimum_bytes + 1)
        high = min(covered, last - of.minimum_bytes)
        window = first_window(low, high)
        if window is None:
            raise CorruptDataError(
                "locate.earlier_text_not_found: the earlier text that a duplicate range repeats was not found",
                where=f"{of.shard.text.folder}, the text at {of.origin:,}, bytes {low:,} to {high:,}",
                expected=f"{of.minimum_bytes} equal bytes before it in the dataset",
                next_step="verify the dataset: a text shard, its index or its ranges were changed",
            )
        stretch = _extended(of, last, *window)
        yield stretch
        covered = stretch.text_bytes[1]


def _extended(of: Passage, last: int, start: int, shard: EarlierShard, position: int) -> Occurrence:
    """The stretch from a pair of equal windows on, as far as the repeat and both documents agree."""
    end, earlier = start + of.minimum_bytes, position + of.minimum_bytes
    while end < last:
        mine = of.document[end : min(end + COMPARE_BYTES, last)]
        theirs = shard.text.text[earlier : earlier + len(mine)]
        unequal = np.flatnonzero(mine[: len(theirs)] != theirs)
        same = int(unequal[0]) if len(unequal) else len(theirs)
        end, earlier = end + same, earlier + same
        if same < len(mine):
            break
    ordinal = int(np.searchsorted(shard.text.offsets, np.uint64(position), side="right")) - 1
    begin = position - shard.text_span(ordinal)[0]
    return Occurrence((start, end), shard.document(ordinal), (begin, begin + end - start))
