"""Ranges of duplicate bytes: found by a partition, merged, stored, aligned to characters, joined, cut out, counted.

A range is a row (start, end) of a uint64 array (r, 2): bytes start to end - 1 of a text shard's `tokenized`, separators
counted. A list of ranges is ascending, and ranges neither overlap nor touch nor contain a separator.

    remove_ranges       start u64 LE | end u64 LE     16 bytes per range, no header; empty file: no range
    match_ranges        the same, sections by shard (engine/sections.py): bytes of windows that occurred earlier
    later_windows, earlier_windows      the same form, for keep: every_string
    reference_windows   first u64 | one past the last u64 | reference u64, sections by shard: starts of windows that are
                        in a reference (references.py); only where there are references
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.sections import Sections, write_sections
from corpusmill.errors import CorruptDataError
from corpusmill.kernels.compiled import kernel, load_word
from corpusmill.kernels.slices import copy_bytes

Ranges = NDArray[np.uint64]


def union_ranges(rows: Ranges) -> Ranges:
    """Sort `rows` (r, 2) and merge those that overlap or touch; (m, 2), m <= r.

    Starts and ends are sorted separately: a merged range begins where a start lies above every end before it. Memory: 5
    x 8 bytes per row.
    """
    if len(rows) == 0:
        return np.empty((0, 2), np.uint64)
    starts, ends = _ascending(rows[:, 0]), _ascending(rows[:, 1])
    gaps = np.flatnonzero(starts[1:] > ends[:-1])
    merged = np.empty((len(gaps) + 1, 2), np.uint64)
    merged[0, 0] = starts[0]
    merged[1:, 0] = starts[gaps + 1]
    merged[:-1, 1] = ends[gaps]
    merged[-1, 1] = ends[-1]
    return merged


def _ascending(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sorted; sorted input is returned as it is. Values come in a few ascending runs, which a stable sort merges."""
    return values if bool((values[1:] >= values[:-1]).all()) else np.sort(values, kind="stable")


def subtract_ranges(ranges: Ranges, without: Ranges) -> Ranges:
    """The parts of `ranges` (r, 2) in no row of `without` (w, 2); both and the result are ascending and disjoint."""
    edges = np.concatenate([ranges.ravel(), without.ravel()])
    # +1 and -1 as a row of `ranges` opens and closes, -2 and +2 for `without`: 1 where only the first is open.
    steps = np.concatenate([np.tile([1, -1], len(ranges)), np.tile([-2, 2], len(without))])
    order = np.argsort(edges, kind="stable")
    edges = edges[order]
    lone = np.flatnonzero(np.cumsum(steps[order])[:-1] == 1)
    rows = np.column_stack([edges[lone], edges[lone + 1]])
    return union_ranges(rows[rows[:, 0] < rows[:, 1]])


def kept_whole(later: Ranges, earlier: Ranges, minimum_bytes: int) -> Ranges:
    """The ranges to remove from a shard if one copy of each repeated window stays whole (`keep: every_string`).

    later       rows of starts of windows that occurred earlier; earlier  of windows that occur again
    A window that occurs again but did not occur earlier is the copy that is kept, with every byte.
    """
    first = subtract_ranges(earlier, later)
    return subtract_ranges(bytes_of(later, minimum_bytes), bytes_of(first, minimum_bytes))


def bytes_of(windows: Ranges, minimum_bytes: int) -> Ranges:
    """The bytes of windows (r, 2): the start of the first of a row, one past that of the last."""
    return union_ranges(windows + np.array([0, minimum_bytes - 1], np.uint64))


def write_ranges(path: Path, ranges: Ranges) -> None:
    """Write a list of ranges as a `remove_ranges` file."""
    path.write_bytes(np.ascontiguousarray(ranges, "<u8").data)


def read_ranges(path: Path) -> Ranges:
    """Read a `remove_ranges` file: uint64 (r, 2). Raises CorruptDataError if it is malformed."""
    size = path.stat().st_size
    ranges = np.fromfile(path, "<u8").astype(np.uint64, copy=False)[: size // 16 * 2].reshape(-1, 2)
    flat = ranges.ravel()
    if size % 16 or bool((flat[1:] <= flat[:-1]).any()):
        raise CorruptDataError(
            "ranges.damaged: a file of remove ranges is damaged",
            where=path,
            expected="pairs of uint64, start < end < next start",
            got=f"{size:,} bytes" if size % 16 else "ranges out of order",
            next_step="find the ranges again",
        )
    return ranges


def align_ranges(text: NDArray[np.uint8], offsets: NDArray[np.uint64], ranges: Ranges) -> Ranges:
    """Shorten ranges to whole UTF-8 characters, drop those that vanish; still positions in `tokenized`.

    A start on a continuation byte (10xxxxxx) moves up to the next character, an end on one moves down to the character
    it would cut. At most three steps each: a character has at most three continuation bytes.
    Raises CorruptDataError if a range leaves its document.
    """
    aligned = ranges.astype(np.int64)
    starts, ends = aligned[:, 0], aligned[:, 1]
    document = np.searchsorted(offsets, ranges[:, 0], side="left")  # one past the document that holds the start
    bounds = np.append(offsets, np.uint64(text.size)).astype(np.int64)
    astray = np.flatnonzero((document == 0) | (starts >= ends) | (ends > bounds[document]))
    if len(astray):
        raise CorruptDataError(
            "ranges.outside_document: a remove range is not inside one document",
            where=f"range {astray[0]:,} of {len(ranges):,}",
            expected="start < end, no separator between them",
            got=f"[{starts[astray[0]]:,}, {ends[astray[0]]:,})",
            next_step="find the ranges again: text shard and ranges do not match",
        )
    for _ in range(3):
        starts += (starts < ends) & _continues(text, starts)
        ends -= (ends > starts) & (ends < text.size) & _continues(text, ends)
    return aligned[starts < ends].astype(np.uint64)


def _continues(text: NDArray[np.uint8], positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    continues: NDArray[np.bool_] = (text[np.minimum(positions, text.size - 1)] & 0xC0) == 0x80
    return continues


def remove_ranges_from(
    text: NDArray[np.uint8],
    offsets: NDArray[np.uint64],
    ranges: Ranges,
    first_document: int,
    last_document: int,
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The documents first_document to last_document - 1 without their `ranges` and without separators.

    Returns kept uint8[], kept_offsets uint64[documents + 1]: document i is kept[kept_offsets[i]:kept_offsets[i + 1]].
    Documents without remaining text are kept, empty. Price: one memory copy.
    """
    documents = last_document - first_document
    kept_offsets = np.zeros(documents + 1, np.uint64)
    if documents == 0:
        return np.empty(0, np.uint8), kept_offsets
    begin = int(offsets[first_document])
    end = int(offsets[last_document]) if last_document < len(offsets) else text.size
    # Not np.searchsorted: it copies the column first, which is slow for callers that ask for one document at a time.
    low, high = bisect_left(ranges[:, 0], begin), bisect_left(ranges[:, 0], end)
    cut = np.ascontiguousarray(ranges[low:high])
    kept_bytes = end - begin - documents - int((cut[:, 1] - cut[:, 0]).sum())
    kept = np.empty(max(0, kept_bytes), np.uint8)
    if not _copy_kept(text.ctypes.data, end, offsets.ctypes.data + 8 * first_document, cut, kept, kept_offsets):
        raise CorruptDataError(
            "ranges.outside_document: a remove range is not inside one document",
            where=f"documents {first_document:,} to {last_document:,}",
            expected="ascending, disjoint ranges without a separator",
            next_step="find the ranges again: text shard and ranges do not match",
        )
    return kept, kept_offsets


@kernel
def _copy_kept(text: Any, end: Any, offsets: Any, cut: Any, kept: Any, kept_offsets: Any) -> Any:
    """Copy the documents that begin at `offsets` without `cut` (r, 2); False if a range is not inside a document."""
    to = kept.ctypes.data
    documents = len(kept_offsets) - 1
    written = np.int64(0)
    row = 0
    for document in range(documents):
        position = np.int64(load_word(offsets + 8 * document)) + 1
        stop = np.int64(load_word(offsets + 8 * document + 8)) if document + 1 < documents else end
        while True:
            until = stop
            if row < len(cut) and np.int64(cut[row, 0]) < stop:
                until = np.int64(cut[row, 0])
            size = until - position
            if size < 0 or written + size > len(kept):
                return False
            copy_bytes(to + written, text + position, size)
            written += size
            if until == stop:
                break
            position = np.int64(cut[row, 1])
            row += 1
        kept_offsets[document + 1] = np.uint64(written)
    return written == len(kept)


def count_documents(ranges: Ranges, offsets: NDArray[np.uint64], text_bytes: int) -> dict[str, int]:
    """The documents of one shard that lose text, and those that lose all of it: documents_touched, documents_emptied.

    text_bytes is the size of `tokenized`, separators included. A document that was empty before is not emptied.
    """
    document = np.searchsorted(offsets, ranges[:, 0], side="left") - 1
    touched, first_row = np.unique(document, return_index=True)
    lengths = (ranges[:, 1] - ranges[:, 0]).astype(np.int64)
    removed = np.add.reduceat(lengths, first_row) if len(touched) else lengths
    bounds = np.append(offsets, np.uint64(text_bytes)).astype(np.int64)
    emptied = removed == bounds[touched + 1] - bounds[touched] - 1
    return {"documents_touched": len(touched), "documents_emptied": int(emptied.sum())}


def join_spans(ranges: Ranges, offsets: NDArray[np.uint64], share: float) -> Ranges:
    """The spans uint64 (m, 2) that hold `ranges` uint64 (r, 2), ascending and disjoint; `offsets`: the text shard's.

    Fuzzy removal, as OLMo 3 does after exact deduplication: a span grows from the left over the next range of its
    document while the covered bytes are at least `share` of the span's length; the same from the right; both together
    are removed. (Published datamap-rs configuration: share 0.95; the OLMo 3 report: 0.8.)
    """
    document = np.searchsorted(offsets, ranges[:, 0], side="left")
    rows = ranges.astype(np.int64)
    rightward = _joined(rows, document, share)
    leftward = _joined(-rows[::-1, ::-1], document[::-1], share)
    return union_ranges(np.concatenate([rightward, -leftward[::-1, ::-1]]).astype(np.uint64))


@kernel
def _joined(rows: Any, document: Any, share: Any) -> Any:
    """Join from the first row on: int64 (r, 2) and int64 (r,) to int64 (m, 2)."""
    spans = np.empty((len(rows), 2), np.int64)
    filled = 0
    covered = 0
    for row in range(len(rows)):
        start, end = rows[row, 0], rows[row, 1]
        joins = filled > 0 and document[row] == document[row - 1]
        if joins and covered + end - start >= share * (end - spans[filled - 1, 0]):
            spans[filled - 1, 1] = end
            covered += end - start
        else:
            spans[filled, 0], spans[filled, 1] = start, end
            covered = end - start
            filled += 1
    return spans[:filled]


MATCH_RANGES, LATER_WINDOWS, EARLIER_WINDOWS = "match_ranges", "later_windows", "earlier_windows"
REFERENCE_WINDOWS = "reference_windows"
NO_RANGES: Ranges = np.empty((0, 2), np.uint64)


@dataclass(frozen=True)
class Matches:
    """Per shard, ascending and disjoint, rows uint64 (r, 2).

    ranges      bytes of windows that occurred earlier in dataset order
    later       the starts of these windows: first, one past the last; empty unless requested
        earlier     starts of windows that these equal, among them the first of every repeated window; empty unless
                    requested
    windows     how many windows occurred earlier
    referred    rows (r, 3) of those in a reference: first, one past the last, the reference's number; only with
    references
    """

    ranges: list[Ranges]
    later: list[Ranges]
    earlier: list[Ranges]
    windows: int
    referred: list[NDArray[np.uint64]] = field(default_factory=list)

    @classmethod
    def of_windows(
        cls, later: Sequence[Ranges], earlier: list[Ranges], minimum_bytes: int, *, want_windows: bool
    ) -> Matches:
        """From rows of windows per shard, where no window is in two rows."""
        return cls(
            [bytes_of(own, minimum_bytes) for own in later],
            [union_ranges(own) if want_windows else NO_RANGES for own in later],
            earlier,
            sum(int((own[:, 1] - own[:, 0]).sum()) for own in later),
        )

    def without(self, shards: int) -> Matches:
        """These matches without those of the first `shards` shards: the references, from which nothing is removed."""
        none, no_referred = [NO_RANGES] * shards, [np.empty((0, 3), np.uint64)] * shards
        return Matches(
            none + self.ranges[shards:],
            none + self.later[shards:],
            none + self.earlier[shards:],
            self.windows,
            no_referred + self.referred[shards:] if self.referred else [],
        )

    def write(self, folder: Path, *, with_windows: bool) -> None:
        """Write `match_ranges` and, for `keep: every_string`, the files of windows."""
        write_sections(folder, MATCH_RANGES, self.ranges)
        if with_windows:
            write_sections(folder, LATER_WINDOWS, self.later)
            write_sections(folder, EARLIER_WINDOWS, self.earlier)
        if self.referred:
            write_sections(folder, REFERENCE_WINDOWS, self.referred)

    def united(self, others: Sections, *, with_windows: bool) -> Matches:
        """The union with matches that were written to another folder; `windows` counts only these."""

        def both(name: str, own: list[Ranges]) -> list[Ranges]:
            read = (others.read(name, shard, columns=2) for shard in range(len(own)))
            return [union_ranges(np.concatenate(pair)) for pair in zip(read, own, strict=True)]

        ranges = both(MATCH_RANGES, self.ranges)
        if not with_windows:
            return Matches(ranges, self.later, self.earlier, self.windows)
        later, earlier = both(LATER_WINDOWS, self.later), both(EARLIER_WINDOWS, self.earlier)
        return Matches(ranges, later, earlier, self.windows)
