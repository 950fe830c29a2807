"""Finds the repeats that are in a reference: text that counts as earlier (`dedup.against`).

Shards of references come before those of the dataset, so their text is found like any earlier text. A window is
assigned by its **first place** in that order: to the reference that has it, or to the dataset itself.

Range finding compares a window with some earlier one, not with the first. But equal windows are in one partition, and
only the first place has no equal window before it. So following a partition's pairs from a later window to an earlier
one ends at the first place (`referred_windows`). Windows that equal one a period earlier in the same document
(anchors.py: repeats) have the first place of that one, which may be in another partition: a shard follows them when it
has the answers of all partitions (`referred_bytes`).

    equal rows      later u64 | windows u64 | earlier u64       shard << 44 | start of the first window, how many
    referred        first u64 | one past the last u64 | reference u64       starts of windows of one shard

Price: one search for each pair among the windows that are known to be in references; at most 100 bytes of memory a pair
while a partition's are sorted. No digest is read again, and of texts only runs of a period.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import highs_of, lows_of, positions_of
from corpusmill.dedup.exchange import CONTEXTS
from corpusmill.dedup.ranges import Ranges, subtract_ranges, union_ranges
from corpusmill.dedup.settle import FIRSTS
from corpusmill.engine.sections import Sections
from corpusmill.kernels.compiled import kernel

Rows = NDArray[np.uint64]

_SHARD_SHIFT = np.uint64(44)
_NO_ROWS: Rows = np.empty((0, 3), np.uint64)
_FIRST_PIECES = 1 << 12
ANCHORS_AT_ONCE = 1 << 16


def equal_rows(later: Rows, earlier: Ranges) -> Rows:
    """Equal rows of windows from `later` (n,) on, which equal those of `earlier` (n, 2 or more: first, one past)."""
    return np.column_stack([later, earlier[:, 1] - earlier[:, 0], earlier[:, 0]])


def settled_pairs(shared: Sections, settled: Sections, shards: int) -> list[Rows]:
    """Equal rows of a partition's anchors with the same digest, from what shared.py and settle.py wrote for it.

    Memory: 4 bytes an anchor, 8 of one shard's, and 50 an anchor that occurred earlier.
    """
    firsts = settled.whole(FIRSTS, "<i4")
    again = _occurred_earlier(firsts)
    by_first = np.argsort(firsts[again], kind="stable")
    earlier = firsts[again][by_first]
    rows = np.empty((len(again), 3), np.uint64)
    begin = 0
    for shard in range(shards):
        places = shared.read(CONTEXTS, shard)
        bounds = [begin, begin + len(places)]
        own = slice(*np.searchsorted(again, bounds))
        rows[own, 0] = _first_windows(places[again[own] - begin], shard)
        rows[own, 1] = lows_of(places[again[own] - begin]) + 1
        met = slice(*np.searchsorted(earlier, bounds))
        rows[by_first[met], 2] = _first_windows(places[earlier[met] - begin], shard)
        begin += len(places)
    return [rows]


def _occurred_earlier(firsts: NDArray[np.int32]) -> NDArray[np.int64]:
    """int64 (n,): the anchors that are not the first with their digest, ascending."""
    parts = [np.empty(0, np.int64)]
    for begin in range(0, len(firsts), ANCHORS_AT_ONCE):
        block = firsts[begin : begin + ANCHORS_AT_ONCE]
        parts.append(begin + np.flatnonzero(block != np.arange(begin, begin + len(block))))
    return np.concatenate(parts)


def _first_windows(places: Rows, shard: int) -> Rows:
    """uint64 (n,): shard << 44 | start of the first window that each anchor of a shard owns."""
    return (shard << 44 | (positions_of(places) - highs_of(places))).astype(np.uint64)


def referred_windows(equal: Sequence[Rows], references: Sequence[int]) -> list[Rows]:
    """Per shard rows (first, one past the last, reference) of the windows whose first place is in a reference before.

    equal       equal rows of one partition: of every window that occurred earlier at least one
    references  for every shard, ascending: the number of its reference; for the dataset's, the number of references

    For a reference's own shards, only windows in an earlier reference are returned.
    """
    of_shard = np.asarray(references, np.int64)
    rows = _apart(np.concatenate([_NO_ROWS, *equal]))
    rows = rows[of_shard[(rows[:, 0] >> _SHARD_SHIFT).astype(np.int64)] > 0]
    pieces = np.empty((max(_FIRST_PIECES, len(rows) // 4), 3), np.uint64)
    first = filled = 0
    while True:
        first, filled = _follow(rows, of_shard, first, pieces, filled)
        if first == len(rows):
            break
        pieces = np.concatenate([pieces, np.empty_like(pieces)])
    bounds = np.searchsorted(pieces[:filled, 0], np.arange(len(of_shard) + 1, dtype=np.uint64) << _SHARD_SHIFT)
    shards = []
    for shard, (low, high) in enumerate(pairwise(bounds.tolist())):
        base = np.uint64(shard) << _SHARD_SHIFT
        shards.append(pieces[low:high] - np.array([base, base, 0], np.uint64))
    return shards


def _apart(rows: Rows) -> Rows:
    """Equal rows in order of their later windows, trimmed so that each window is in one row."""
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    ends = np.maximum.accumulate(rows[:, 0] + rows[:, 1])
    before = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])[: len(rows)]
    known = np.minimum(np.maximum(before, rows[:, 0]) - rows[:, 0], rows[:, 1])
    rows[:, 0] += known
    rows[:, 1] -= known
    rows[:, 2] += known
    return rows[rows[:, 1] > 0]


@kernel
def _follow(rows: Any, references: Any, row: Any, pieces: Any, filled: Any) -> Any:
    """Fill `pieces` with the windows of `rows`, from `row` on, that are in a reference before their own.

    rows        uint64 (n, 3): equal rows, in order of their later windows, each window in one of them
    references  int64[S]: the number of each shard's reference
    pieces      uint64 (c, 3), `filled` of them valid: first, one past the last, reference; ascending
    Returns the row to go on with (n: done) and how many pieces there are. A row for which there is no room is left out.
    """
    while row < len(rows):
        later, position = rows[row, 0], rows[row, 2]
        shift = later - position  # the equal windows lie before: no row overlaps itself
        end = position + rows[row, 1]
        own = references[np.int64(later >> np.uint64(44))]
        there = references[np.int64(position >> np.uint64(44))]
        # The first piece that ends behind the position.
        low, high = 0, filled
        while low < high:
            middle = (low + high) // 2
            if pieces[middle, 1] > position:
                high = middle
            else:
                low = middle + 1
        written = filled
        while position < end:
            number, until = there, end
            if low < filled and pieces[low, 0] < end:
                if pieces[low, 0] <= position:
                    number, until = np.int64(pieces[low, 2]), min(end, pieces[low, 1])
                    low += 1
                else:
                    until = pieces[low, 0]
            if number < own:
                last = written - 1
                joins = last >= 0 and pieces[last, 1] == position + shift and np.int64(pieces[last, 2]) == number
                if joins and last >= filled:
                    pieces[last, 1] = until + shift
                elif written == len(pieces):
                    return row, filled
                else:
                    pieces[written, 0] = position + shift
                    pieces[written, 1] = until + shift
                    pieces[written, 2] = np.uint64(number)
                    written += 1
            position = until
        filled = written
        row += 1
    return row, filled


def referred_bytes(referred: Rows, periods: Iterable[Rows], minimum_bytes: int) -> Rows:
    """Rows (first, one past the last, reference) of the bytes that windows of one shard cover; they may overlap.

    referred    of all partitions
    periods     of the windows that equal one a period earlier: exchange.periods_of, in text order

    A window of a period is `minimum_bytes` long or longer than the period, so those of one rotation cover all bytes
    from the first to the last of them.
    """
    referred = referred[np.argsort(referred[:, 0], kind="stable")]
    covered = [referred + np.array([0, minimum_bytes - 1, 0], np.uint64)]
    starts = referred[:, 0]
    recent: list[tuple[int, int, int]] = []  # windows of earlier runs that a base can still reach
    recent_end = 0
    for rows in periods:
        # Few runs begin in text of a reference, or where a run in a reference ended.
        low = np.searchsorted(referred[:, 1], rows[:, 0], side="right")
        begins = np.append(starts, np.uint64(1 << 63))[low] < rows[:, 2]
        for row, is_referred in zip(rows.tolist(), begins.tolist(), strict=True):
            if not is_referred and not (recent and row[0] < recent_end):
                continue
            base, later, windows = row[0], row[2], row[1] - row[0]
            first = int(np.searchsorted(referred[:, 1], np.uint64(base), side="right"))
            last = int(np.searchsorted(starts, np.uint64(later), side="left"))
            known = [tuple(reference) for reference in referred[first:last].tolist()] + recent
            runs = [
                (max(low, base), min(high, later), number) for low, high, number in known if low < later and high > base
            ]
            new, tiles = _continued(runs, base, later, windows, minimum_bytes)
            recent_end = later + windows
            recent = [piece for piece in recent if piece[1] + minimum_bytes > recent_end] + tiles
            if new:
                covered.append(np.array(new, np.uint64))
    return np.concatenate(covered)


def _continued(
    runs: Sequence[tuple[int, int, int]], base: int, later: int, windows: int, minimum_bytes: int
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """(bytes, last windows) of a run of `windows` windows from `later` on that repeats those of [base, later).

    `runs`: rows (first, one past the last, reference) of windows between `base` and `later`.
    """
    period, end = later - base, later + windows
    covered, last_windows = [], []
    for low, high, number in runs:
        if low + period < end:
            behind = (end - 1 - low) % period  # distance of the run's last window from the last one that equals `low`
            last = end - 1 - max(0, behind - (high - low - 1))
            covered.append((low + period, last + minimum_bytes, number))
        tiles = range(low + period * max(1, (end - minimum_bytes - low) // period), end, period)
        last_windows += [(at, min(at + high - low, end), number) for at in tiles]
    return covered, last_windows


def split_by_reference(ranges: Ranges, referred: Rows, references: int) -> list[Ranges]:
    """`ranges` split by the reference that holds them, ascending and disjoint; the last part is in no reference.

    Bytes in several references count for the first. `referred`: rows (first, one past the last, reference) of bytes.
    """
    parts, left = [], ranges
    for number in range(references):
        own = union_ranges(referred[referred[:, 2] == np.uint64(number)])
        rest = subtract_ranges(left, own)
        parts.append(subtract_ranges(left, rest))
        left = rest
    return [*parts, left]


def with_references(text: NDArray[np.uint8], cut: Ranges, held: Rows) -> Rows:
    """Rows (start, end, n) of `cut`, ascending and disjoint; n is the number of their reference, from 1, or 0 for none.

    text  the shard's, in UTF-8; cut  of whole characters; held  rows (start, end, reference), within `cut` and disjoint
    A character that a border of `held` divides counts for the row that holds its end.
    """
    borders, own = held[:, :2].astype(np.int64), held[:, 2:] + np.uint64(1)
    for _ in range(3):  # as many bytes can follow a character's first
        borders -= (borders < len(text)) & ((text[np.minimum(borders, len(text) - 1)] & 0xC0) == 0x80)
    parts = np.concatenate([borders.astype(np.uint64), own], axis=1)[borders[:, 0] < borders[:, 1]]
    rest = subtract_ranges(cut, union_ranges(parts[:, :2]))
    rows = np.concatenate([parts, np.insert(rest, 2, 0, axis=1)])
    return rows[np.argsort(rows[:, 0])]
