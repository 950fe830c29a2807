"""Fetching files from a store: parallel ranged parts, written and digested in order, resumed after a break.

Every part is written and digested concurrently: sha256 takes 0.7 s per GB, md5 1.7 s, the page cache 0.7 s, and in
sequence they would be slower than the wire. The XXH3-128, by which later steps check the local copy, takes 0.05 s.

Arrived parts are in one growing file beside its final name. A later run digests it again and resumes after it, but only
if the store has a checksum of the whole file, so that a page that never reached the disk is noticed. A file that does
not match the store's checksum is fetched once more from its beginning, then refused. Bytes without a checksum of the
store, such as a part of a file, are read twice (retries.py).

A file that is read more than once and never kept is compared with its first read: digest_windows returns the XXH3-128
of every window of 8 MiB. A WindowedFile reads whole windows, in any order: a wrong answer is noticed before a byte of
it is used, and requested again.

Memory: PARTS_IN_FLIGHT parts of 8 MiB, and twice THREADS more if each is read twice.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial as bound
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, cast

import xxhash

from corpusmill.kernels import advance
from corpusmill.storage.checksums import READ_BYTES, Checksum, Verifier, strongest
from corpusmill.storage.reading import HashingFile, RangedFile, SeekableFile
from corpusmill.storage.retries import ChecksumMismatchError, ReadRange, Traffic, read_twice, twice_if_changed
from corpusmill.storage.stores import Store, is_local

PART_BYTES = 8 << 20
THREADS = 4
PARTS_IN_FLIGHT = 6

Ranges = list[tuple[int, int]]


@dataclass(frozen=True)
class Wanted:
    """A file of `identity` to fetch: all of its `size_bytes` or only `pieces` [(offset, size), ...]."""

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
    """Fetch a file into `path` by way of `partial`, which an earlier run may have left; returns our checksum.

    SourceError if the file's identity has changed; ChecksumMismatchError if it arrived damaged twice.
    """
    stated = _stated(store, wanted)
    read = _reader(store, wanted) if stated else _double_reader(store, wanted)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if not stated:
        partial.unlink(missing_ok=True)
    own = twice_if_changed(lambda: _fetch_once(store, read, wanted, partial, stated), store.traffic)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.replace(path)
    return own


def digest_windows(store: Store, wanted: Wanted) -> tuple[Checksum, list[str]]:
    """Our checksum of a file that is not kept, and digests of its `ranges()`, with which every later read is compared.

    Raises as `fetch` does. Without a checksum of the store it is read once here: later reads are the second time.
    """
    stated = _stated(store, wanted)
    read = _reader(store, wanted)

    def once() -> tuple[Checksum, list[str]]:
        verifier = Verifier(stated, wanted.size_bytes)
        digests = []
        for data in _parts(read, wanted.ranges()):
            verifier.update(data)
            advance.note(len(data))
            digests.append(xxhash.xxh3_128_hexdigest(data))
        _require_stated(store, wanted, verifier)
        return verifier.own(), digests

    return twice_if_changed(once, store.traffic)


@contextmanager
def open_once(store: Store, wanted: Wanted) -> Iterator[BinaryIO]:
    """A whole file for one pass that keeps nothing of it. A remote file without a checksum of the store is read twice.

    ChecksumMismatchError on leaving, if all of it was read and does not match the store's checksum.
    """
    stated = _stated(store, wanted)
    once = bool(stated) or is_local(store.folder)
    read = _reader(store, wanted) if once else _double_reader(store, wanted)
    verifier = Verifier(stated, wanted.size_bytes)
    with io.BufferedReader(HashingFile(RangedFile(read, 0, wanted.size_bytes), verifier), READ_BYTES) as stream:
        yield cast(BinaryIO, stream)
        whole = stream.tell() == wanted.size_bytes
    if whole:
        _require_stated(store, wanted, verifier)


def _reader(store: Store, wanted: Wanted) -> ReadRange:
    return bound(store.read_range, wanted.name, identity=wanted.identity)


def _double_reader(store: Store, wanted: Wanted) -> ReadRange:
    return read_twice(_reader(store, wanted), where=f"{store.folder}/{wanted.name}", traffic=store.traffic)


def _stated(store: Store, wanted: Wanted) -> tuple[Checksum, ...]:
    """The store's checksum to compare with, if it has one of the whole content."""
    stated = strongest(store.checksums(wanted.name, identity=wanted.identity)) if wanted.pieces is None else ()
    store.traffic.add(without_checksum=not stated)
    return stated


def _fetch_once(store: Store, read: ReadRange, wanted: Wanted, partial: Path, stated: tuple[Checksum, ...]) -> Checksum:
    ranges = wanted.ranges()
    verifier = Verifier(stated, wanted.size_bytes)
    with partial.open("ab+") as file:
        there, kept_bytes = _whole_parts(ranges, file.tell())
        file.truncate(kept_bytes)
        file.seek(0)
        for first, last in ranges[:there]:
            verifier.update(file.read(last - first))
            advance.note(last - first)
        uses = (*verifier.updates(), file.write)
        with ThreadPoolExecutor(len(uses)) as beside:
            for data in _parts(read, ranges[there:]):
                for used in [beside.submit(use, data) for use in uses]:
                    used.result()
                advance.note(len(data))
    try:
        _require_stated(store, wanted, verifier)
    except ChecksumMismatchError:
        partial.unlink()
        raise
    return verifier.own()


def _require_stated(store: Store, wanted: Wanted, verifier: Verifier) -> None:
    """ChecksumMismatchError if the content does not match the store's checksum."""
    if wrong := verifier.contradicted():
        raise ChecksumMismatchError(
            "store.checksum_differs: a downloaded file does not match the store's checksum",
            where=f"{store.folder}/{wanted.name}",
            details=tuple((f"{checksum.kind}", f"expected {checksum.value}, got {got}") for checksum, got in wrong),
            next_step="run again; if it persists, the object is damaged in the store: upload it again",
        )


def _whole_parts(ranges: Ranges, size_bytes: int) -> tuple[int, int]:
    """(number of parts that are complete in the first `size_bytes`, their bytes)."""
    parts = total = 0
    for first, last in ranges:
        if total + last - first > size_bytes:
            break
        parts, total = parts + 1, total + last - first
    return parts, total


def _parts(read: ReadRange, ranges: Ranges) -> Iterator[bytes]:
    """The parts in order; while one is used, the next PARTS_IN_FLIGHT - 1 are in flight."""
    if len(ranges) == 1:
        yield read(*ranges[0])
        return
    waiting: deque[Future[bytes]] = deque()
    pool = ThreadPoolExecutor(THREADS)
    try:
        for first, last in ranges:
            waiting.append(pool.submit(read, first, last))
            if len(waiting) == PARTS_IN_FLIGHT:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class WindowedFile(SeekableFile):
    """`ranges` [(first, last), ...] of a file, one after another, with their digests. Holds one window."""

    def __init__(
        self,
        read_range: ReadRange,
        ranges: list[tuple[int, int]],
        digests: Sequence[str],
        *,
        where: str,
        traffic: Traffic,
    ) -> None:
        self._starts = [0, *accumulate(last - first for first, last in ranges)]
        super().__init__(self._starts[-1])
        self._read_range = read_range
        self._windows = list(zip(ranges, digests, strict=True))
        self._where, self._traffic = where, traffic
        self._held, self._window = -1, b""

    def _next(self, wanted: int) -> bytes:
        number = bisect_right(self._starts, self._at) - 1
        if number != self._held:
            self._window = twice_if_changed(lambda: self._read(number), self._traffic)
            self._held = number
        inside = self._at - self._starts[number]
        whole = inside == 0 and wanted >= len(self._window)
        return self._window if whole else self._window[inside : inside + wanted]

    def _read(self, number: int) -> bytes:
        (first, last), digest = self._windows[number]
        data = self._read_range(first, last)
        if (got := xxhash.xxh3_128_hexdigest(data)) != digest:
            raise ChecksumMismatchError(
                "store.other_bytes: a store returned other bytes than on the first read",
                where=f"{self._where}, bytes {first:,} to {last:,}",
                expected=f"xxh3_128 {digest}",
                got=f"xxh3_128 {got}",
                next_step="run again; if it persists, the first read was wrong: corpusmill reprocess CONFIG"
                " --stage download --shard N, of the shard with this file",
            )
        return data
