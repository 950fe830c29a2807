"""A file of a store that is read more than once and never kept: every read is compared with the first.

The first read (transfers.digest_windows) yields the XXH3-128 of every window of 8 MiB. Later reads are of whole
windows, in any order: a wrong answer is noticed before a byte of it is used, and requested again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import xxhash

from corpusmill.storage.ranged import SeekableFile
from corpusmill.storage.retries import ChecksumMismatchError, Traffic, twice_if_changed
from corpusmill.storage.twice import ReadRange


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
