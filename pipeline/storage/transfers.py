"""Fetching files from a store: parallel ranged parts, written and digested in order, resumed after a break.

Every part is written, and added to each digest, at the same time: sha256 takes 0.7 s a GB, md5 1.7 s, the page cache
0.7 s, and one after another they would be slower than the wire. The XXH3-128 that tells later steps whether the local
copy is still this one takes 0.05 s.

What has arrived lies in one growing file beside its final name. A later run digests it again and goes on behind it;
only a file whose whole content the store has a checksum of is gone on with, so that a page that never reached the disk
is noticed. A file that does not have the store's checksum is fetched once more from its beginning, then refused.

Memory: PARTS_IN_FLIGHT parts of 8 MiB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pipeline.storage.checksums import Checksum, Verifier, most_telling
from pipeline.storage.retries import ChecksumMismatchError, twice_if_changed
from pipeline.storage.stores import Store

PART_BYTES = 8 << 20
THREADS = 4
PARTS_IN_FLIGHT = 6

Ranges = list[tuple[int, int]]


@dataclass(frozen=True)
class Wanted:
    """What is to be fetched: a file of `identity`, all of its `size_bytes` or only `pieces` [(offset, size), ...]."""

    name: str
    size_bytes: int
    identity: str
    pieces: tuple[tuple[int, int], ...] | None = None

    def ranges(self) -> Ranges:
        """[(first, last), ...] of the parts, in order."""
        pieces = self.pieces if self.pieces is not None else ((0, self.size_bytes),)
        return [
            (first, min(first + PART_BYTES, offset + size))
            for offset, size in pieces
            for first in range(offset, offset + size, PART_BYTES)
        ]


def fetch(store: Store, wanted: Wanted, path: Path, partial: Path) -> Checksum:
    """Fetch a file into `path` by way of `partial`, which an earlier run may have left; our checksum of what arrived.

    SourceError if the file is no longer the wanted one; ChecksumMismatchError if it arrived wrong twice.
    """
    stated = most_telling(store.checksums(wanted.name, identity=wanted.identity)) if wanted.pieces is None else ()
    partial.parent.mkdir(parents=True, exist_ok=True)
    if not stated:
        partial.unlink(missing_ok=True)
    own = twice_if_changed(lambda: _fetch_once(store, wanted, partial, stated), store.traffic)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.replace(path)
    return own


def _fetch_once(store: Store, wanted: Wanted, partial: Path, stated: tuple[Checksum, ...]) -> Checksum:
    ranges = wanted.ranges()
    verifier = Verifier(stated, wanted.size_bytes)
    with partial.open("ab+") as file:
        there, kept_bytes = _whole_parts(ranges, file.tell())
        file.truncate(kept_bytes)
        file.seek(0)
        for first, last in ranges[:there]:
            verifier.update(file.read(last - first))
        uses = (*verifier.updates(), file.write)
        with ThreadPoolExecutor(len(uses)) as beside:
            for data in _parts(store, wanted, ranges[there:]):
                for used in [beside.submit(use, data) for use in uses]:
                    used.result()
    if wrong := verifier.contradicted():
        partial.unlink()
        raise ChecksumMismatchError(
            "a downloaded file is not what the store says",
            where=f"{store.folder}/{wanted.name}",
            details=tuple((f"{one.kind}", f"expected {one.value}, got {got}") for one, got in wrong),
            next_step="run again; if it stays, the object is damaged in the store: write it there anew",
        )
    return verifier.own()


def _whole_parts(ranges: Ranges, size_bytes: int) -> tuple[int, int]:
    """(parts that lie whole in the first `size_bytes`, their bytes)."""
    parts = total = 0
    for first, last in ranges:
        if total + last - first > size_bytes:
            break
        parts, total = parts + 1, total + last - first
    return parts, total


def _parts(store: Store, wanted: Wanted, ranges: Ranges) -> Iterator[bytes]:
    """The parts in order; while one is used, the next PARTS_IN_FLIGHT - 1 are on their way."""
    if len(ranges) == 1:
        yield store.read_range(wanted.name, *ranges[0], identity=wanted.identity)
        return
    waiting: deque[Future[bytes]] = deque()
    pool = ThreadPoolExecutor(THREADS)
    try:
        for first, last in ranges:
            waiting.append(pool.submit(store.read_range, wanted.name, first, last, identity=wanted.identity))
            if len(waiting) == PARTS_IN_FLIGHT:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
