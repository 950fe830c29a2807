"""A shard answers what partitions ask about its text, in one pass over the text from its beginning to its end.

Requests are u64 rows, sorted by position << 20, a list for each partition; a block of the text is read, and every
partition's requests with a position in it are answered from it, so that neither text nor requests nor answers are read
or written out of order. There are two passes (settle.py says why):

    pass        request             answers per row
    context     contexts: places    digests u64 x 2 of what the anchor's windows hold; hashes u32 of its slices' grams
    border      borders             digests u64 x 2 of the gram; edges: the `left` and `right` bytes beside it
    both        windows: places     window_digests u64 x 3 of the L bytes from the position on: hash, BLAKE2s-128
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchor_kernels import MOST_ANCHOR_WINDOWS
from corpusmill.dedup.anchors import Slicing, count_slices, hash_slices, highs_of, lows_of, positions_of
from corpusmill.dedup.blake2s import digest_spans
from corpusmill.dedup.ranges import Ranges, union_ranges
from corpusmill.engine.sections import Sections, SectionWriter, read_into
from corpusmill.errors import CorruptDataError
from corpusmill.kernels import advance
from corpusmill.kernels.compiled import common_prefix, kernel
from corpusmill.kernels.content_kernels import bytes_hash
from corpusmill.kernels.slices import copy_slices

CONTEXTS, BORDERS, WINDOWS = "contexts", "borders", "windows"
DIGESTS, HASHES, EDGES, WINDOW_DIGESTS = "digests", "hashes", "edges", "window_digests"

_BLOCK_BYTES = 4 << 20  # stays in a cache while every partition is answered
_PERIOD_ROWS = 1 << 16

Rows = NDArray[np.uint64]


@dataclass(frozen=True)
class TextFile:
    """A shard's text on disk. `require(first, last)` checks bytes against their digests before they are read, and keeps
    the file in place during the `with`.
    """

    path: Path
    require: Callable[[int, int], AbstractContextManager[Any]] = lambda _first, _last: nullcontext()

    def size_bytes(self) -> int:
        """Its length."""
        with self.require(0, 0):
            return self.path.stat().st_size

    def blocks(
        self, requests: Sequence[Rows], margin: int, block_bytes: int
    ) -> Iterator[tuple[int, Rows, NDArray[np.uint8], int]]:
        """(partition, its next requests, the text around them, the position of its first byte), block by block.

        `margin`: the bytes on either side of a position that its answer may need.
        """
        size = self.size_bytes()
        buffer = np.empty(min(block_bytes + 2 * margin, size), np.uint8)
        done = [0] * len(requests)
        with self.require(0, 0), self.path.open("rb", buffering=0) as file:
            for first in range(0, size, block_bytes):
                advance.note(min(block_bytes, size - first))
                after = np.uint64(min(first + block_bytes, size) << 20)
                ends = [at + int(np.searchsorted(rows[at:], after)) for at, rows in zip(done, requests, strict=True)]
                if ends == done:
                    continue
                begin, end = max(0, first - margin), min(size, first + block_bytes + margin)
                file.seek(begin)
                text = buffer[: end - begin]
                with self.require(begin, end):
                    read = read_into(file, text)
                if read < end - begin:
                    raise _wrong(self.path, f"{size:,} bytes")
                os.posix_fadvise(file.fileno(), end, block_bytes, os.POSIX_FADV_WILLNEED)  # while this is answered
                for partition, (at, stop) in enumerate(zip(done, ends, strict=True)):
                    if stop > at:
                        yield partition, requests[partition][at:stop], text, begin
                done = ends
        if any(at < len(rows) for at, rows in zip(done, requests, strict=True)):
            raise _wrong(self.path, "a text that contains every requested position")


def _wrong(path: Path, expected: str) -> CorruptDataError:
    return CorruptDataError(
        "exchange.text_too_short: a text is shorter than a position requested in it",
        where=path,
        expected=expected,
        next_step="find the ranges again: text shard and anchors do not match",
    )


def answer_contexts(
    text: TextFile,
    asked: Sequence[Sections],
    shard: int,
    slicing: Slicing,
    folder: Path,
    *,
    block_bytes: int = _BLOCK_BYTES,
) -> dict[str, int]:
    """Write the answers to every partition's `contexts` and `windows` about one shard into `folder`; returns counts."""
    contexts, windows = _requests(asked, CONTEXTS, shard), _requests(asked, WINDOWS, shard)
    slices = [int(count_slices(rows, slicing.width).sum()) for rows in contexts]
    with (
        SectionWriter(folder, DIGESTS, _lengths(contexts), 16) as digests,
        SectionWriter(folder, HASHES, slices, 4) as hashes,
        SectionWriter(folder, WINDOW_DIGESTS, _lengths(windows), 24) as window_digests,
    ):
        for number, rows, block, begin in text.blocks([*contexts, *windows], _margin(slicing), block_bytes):
            if number < len(asked):
                starts = positions_of(rows) - highs_of(rows) - begin
                digests.append(number, digest_spans(block, starts, lows_of(rows) + slicing.minimum_bytes))
                hashes.append(number, hash_slices(block, begin, rows, slicing))
            else:
                window_digests.append(number - len(asked), _window_digests(block, begin, rows, slicing.minimum_bytes))
    return {"contexts": sum(_lengths(contexts)), "slices": sum(slices), "windows": sum(_lengths(windows))}


def answer_borders(
    text: TextFile,
    asked: Sequence[Sections],
    shard: int,
    slicing: Slicing,
    folder: Path,
    *,
    block_bytes: int = _BLOCK_BYTES,
) -> dict[str, int]:
    """Write the answers to every partition's `borders` and `windows` about one shard into `folder`; returns counts."""
    borders, windows = _requests(asked, BORDERS, shard), _requests(asked, WINDOWS, shard)
    edge_bytes = [int((highs_of(rows) + lows_of(rows)).sum()) for rows in borders]
    with (
        SectionWriter(folder, DIGESTS, _lengths(borders), 16) as digests,
        SectionWriter(folder, EDGES, edge_bytes, 1) as edges,
        SectionWriter(folder, WINDOW_DIGESTS, _lengths(windows), 24) as window_digests,
    ):
        for number, rows, block, begin in text.blocks([*borders, *windows], _margin(slicing), block_bytes):
            if number < len(asked):
                starts = positions_of(rows) - begin
                digests.append(number, digest_spans(block, starts, np.full(len(starts), slicing.gram_bytes)))
                edges.append(number, _edges(block, starts, slicing.gram_bytes, rows))
            else:
                window_digests.append(number - len(asked), _window_digests(block, begin, rows, slicing.minimum_bytes))
    return {"borders": sum(_lengths(borders)), "edge_bytes": sum(edge_bytes), "windows": sum(_lengths(windows))}


def windows_before(text: NDArray[np.uint8], repeats: Ranges, minimum_bytes: int) -> Ranges:
    """The windows a period earlier that those in a shard's `repeats` (anchors.py) equal."""
    windows = [union_ranges(rows) for rows in periods_of(text, repeats, minimum_bytes)]
    return union_ranges(np.concatenate([np.empty((0, 2), np.uint64), *windows]))


def periods_of(text: NDArray[np.uint8], repeats: Ranges, minimum_bytes: int) -> Iterator[Rows]:
    """Rows (first window start, one past the last, the window start that equals the first) of the same, in order.

    The last of the three is at most `minimum_bytes` behind the first. The next rows overwrite what was handed out.
    """
    rows = np.empty((_PERIOD_ROWS, 3), np.uint64)
    repeats = np.ascontiguousarray(repeats)
    state = np.zeros(2, np.int64)
    while state[0] < len(repeats):
        filled = find_periods(text.ctypes.data, repeats, state, minimum_bytes, minimum_bytes, rows)
        yield rows[:filled]


def _requests(asked: Sequence[Sections], name: str, shard: int) -> list[Rows]:
    return [request.map(name, shard) for request in asked]


def _lengths(requests: Sequence[Rows]) -> list[int]:
    return [len(rows) for rows in requests]


def _margin(slicing: Slicing) -> int:
    return slicing.minimum_bytes + MOST_ANCHOR_WINDOWS


def _edges(text: NDArray[np.uint8], starts: NDArray[np.int64], gram_bytes: int, borders: Rows) -> NDArray[np.uint8]:
    """The bytes left and right of every gram, border by border."""
    left, right = highs_of(borders), lows_of(borders)
    begins = np.column_stack([starts - left, starts + gram_bytes]).ravel().astype(np.uint64)
    lengths = np.column_stack([left, right]).ravel().astype(np.uint64)
    edges = np.empty(int(lengths.sum()), np.uint8)
    copy_slices(text, begins, lengths, edges)
    return edges


def _window_digests(text: NDArray[np.uint8], begin: int, rows: Rows, minimum_bytes: int) -> Rows:
    starts = positions_of(rows) - begin
    digests = digest_spans(text, starts, np.full(len(starts), minimum_bytes))
    hashes = np.empty(len(starts), np.uint64)
    _hash_spans(text.ctypes.data, starts, minimum_bytes, hashes)
    return np.column_stack([hashes, digests])


@kernel
def _hash_spans(text: Any, starts: Any, length: Any, hashes: Any) -> None:
    for row in range(len(starts)):
        hashes[row] = bytes_hash(text + starts[row], length)


@kernel
def find_periods(text: Any, repeats: Any, state: Any, minimum_bytes: Any, most_period: Any, earlier: Any) -> Any:
    """For windows that equal one a period earlier, find those. Returns the number of rows filled.

    text            address of the shard's text
    repeats         uint64 (r, 2): first window start, one past the last; each equals one at most `most_period` earlier
    state           int64[2], updated: row of `repeats` and window start to go on from (0: the row's first)
    earlier         uint64 (c, 3), filled: first window start, one past the last, the window start that equals the first

    The period is not on disk: the shortest distance at which L bytes agree is one, and the only one for a window that
    occurred once before.
    """
    filled = 0
    while state[0] < len(repeats):
        stop = np.int64(repeats[state[0], 1])
        position = max(state[1], np.int64(repeats[state[0], 0]))
        while position < stop:
            if filled == len(earlier):
                state[1] = position
                return filled
            same = 0
            period = 0
            while same < minimum_bytes and period < min(most_period, position):
                period += 1
                limit = stop - position + minimum_bytes - 1
                same = common_prefix(text + position, text + position - period, limit)
            windows = max(1, same - minimum_bytes + 1)
            if same >= minimum_bytes:
                earlier[filled, 0] = np.uint64(position - period)
                earlier[filled, 1] = np.uint64(position - period + windows)
                earlier[filled, 2] = np.uint64(position)
                filled += 1
            position += windows
        state[0] += 1
        state[1] = 0
    return filled
