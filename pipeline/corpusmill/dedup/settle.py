"""Settle what digests can settle: one hash partition of all shards, without any text.

Anchors with the same bytes in all their windows (equal digests) are settled: every window of the later ones occurred
earlier. The first anchor of each content is examined slice by slice: a slice whose gram has a unique hash holds no
repeat, and the borders of the others are requested (exchange.py). So the first pass over the texts ships 16 bytes per
shared anchor and 4 per slice, and the second the bytes that differ: mostly at the ends of duplicates.

    borders         sections by shard: border u64 of the slices that may repeat in part, by position
    windows         sections by shard: place u64 of every window to count for the report, by position (shared.py)
    offsets         u64: the offset of each crowd of shared.py at which its windows are counted
    firsts          i32 of every shared anchor, shard by shard: the first with the same digest; with references alone
    match_ranges, later_windows, earlier_windows    of the settled windows, as in ranges.py

Memory of a partition with M shared anchors: 24 M of places and digests, 12 M to 20 M of table and firsts, and 11 bytes
for each of their slices (3 per anchor) with their table; 72 bytes for each anchor of the shard whose rows are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import Slicing, borders_of, count_slices, highs_of, lows_of, positions_of
from corpusmill.dedup.exchange import BORDERS, CONTEXTS, DIGESTS, HASHES, WINDOW_DIGESTS, WINDOWS
from corpusmill.dedup.ranges import NO_RANGES, Matches, Ranges, union_ranges
from corpusmill.dedup.shared import LOOK_AHEAD, all_windows, best_offsets, random_key, read_crowds, sample_windows
from corpusmill.engine.sections import Sections, write_sections
from corpusmill.kernels.compiled import kernel, prefetch

OFFSETS, FIRSTS = "offsets", "firsts"


def settle(
    shared: Sections,
    answered: Sequence[Sections],
    partition: int,
    slicing: Slicing,
    folder: Path,
    *,
    repeats: Sequence[Ranges] = (),
    periods: Sequence[Ranges] = (),
    want_windows: bool = False,
    want_firsts: bool = False,
) -> tuple[Matches, dict[str, int]]:
    """Write the next requests to every shard; returns the settled matches, and counts: settled, open, slices, borders.

    shared      the folder that shared.share wrote for this partition
    answered    what every shard answered (exchange.answer_contexts)
    repeats     of every shard, windows that equal one a period earlier (anchors.py): one partition adds them
    periods     of every shard, those earlier ones (exchange.windows_before)
    """
    places = [shared.read(CONTEXTS, shard) for shard in range(len(answered))]
    firsts = firsts_of([answer.read(DIGESTS, partition, columns=2) for answer in answered])
    if want_firsts:
        (folder / FIRSTS).write_bytes(firsts.astype("<i4", copy=False).data)
    bounds = np.cumsum([0, *map(len, places)])
    of_shards = list(pairwise(bounds.tolist()))
    is_first = firsts == np.arange(len(firsts), dtype=np.int32)
    rows = [_windows_of(own[~is_first[first:last]]) for own, (first, last) in zip(places, of_shards, strict=True)]
    earlier = [NO_RANGES] * len(places)
    if want_windows:
        again = np.flatnonzero(np.bincount(firsts, minlength=len(firsts)) > 1)
        cuts = np.searchsorted(again, bounds)
        for shard, (first, _) in enumerate(of_shards):
            own = places[shard][again[cuts[shard] : cuts[shard + 1]] - first]
            earlier[shard] = _windows_of(own)
    rows = [np.concatenate([own, more]) for own, more in zip(rows, repeats or [NO_RANGES] * len(rows), strict=True)]
    earlier = [
        union_ranges(np.concatenate(both)) for both in zip(earlier, periods or [NO_RANGES] * len(rows), strict=True)
    ]
    matches = Matches.of_windows(rows, earlier, slicing.minimum_bytes, want_windows=want_windows)
    counts = _ask_borders(places, is_first.view(np.uint8), answered, partition, slicing.width, folder)
    _ask_windows(shared, answered, partition, folder)
    opened = int(is_first.sum())
    return matches, {"settled": len(firsts) - opened, "open": opened, **counts}


def firsts_of(digests: Sequence[NDArray[np.uint64]]) -> NDArray[np.int32]:
    """int32 (n,): for each row of all parts (r, 2), concatenated, the number of the first row with the same digest."""
    joined = np.concatenate(digests) if digests else np.empty((0, 2), np.uint64)
    size_bits = max(4, (len(joined) * 3 // 2).bit_length())
    table = np.full(1 << size_bits, -1, np.int32)
    firsts = np.empty(len(joined), np.int32)
    find_firsts(joined, random_key(), table, np.uint64(64 - size_bits), firsts)
    return firsts


def occur_again(hashes: NDArray[np.uint32], wanted: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 (n,): 1 where another of the wanted rows has the same hash, in 31 bits."""
    size_bits = max(4, (int(wanted.sum()) * 4 // 3).bit_length())
    table = np.zeros(1 << size_bits, np.uint32)
    again = np.empty(len(hashes), np.uint8)
    mark_again(hashes, wanted, random_key(), table, np.uint64(64 - size_bits), again)
    return again


def _windows_of(places: NDArray[np.uint64]) -> Ranges:
    """Windows (first, one past the last) of anchors, in text order."""
    starts = positions_of(places) - highs_of(places)
    return np.column_stack([starts, starts + lows_of(places) + 1]).astype(np.uint64)


def _ask_borders(
    places: Sequence[NDArray[np.uint64]],
    is_first: NDArray[np.uint8],
    answered: Sequence[Sections],
    partition: int,
    width: int,
    folder: Path,
) -> dict[str, int]:
    slices = [count_slices(own, width) for own in places]
    hashes = [answer.read(HASHES, partition, "<u4") for answer in answered]
    wanted = np.repeat(is_first, np.concatenate(slices)) if slices else is_first
    again = occur_again(np.concatenate(hashes) if hashes else np.empty(0, np.uint32), wanted)
    marks = np.split(again, np.cumsum([len(own) for own in hashes])[:-1]) if hashes else []
    borders = [borders_of(own, width, marked, owned) for own, marked, owned in zip(places, marks, slices, strict=True)]
    write_sections(folder, BORDERS, borders)
    return {"slices": len(again), "borders": sum(map(len, borders))}


def _ask_windows(shared: Sections, answered: Sequence[Sections], partition: int, folder: Path) -> None:
    crowds = read_crowds(shared)
    answers = [answer.read(WINDOW_DIGESTS, partition, columns=3) for answer in answered]
    joined = np.concatenate(answers) if answers else np.empty((0, 3), np.uint64)
    offsets = best_offsets(crowds, sample_windows(crowds, len(answered)), joined)
    (folder / OFFSETS).write_bytes(np.array(offsets, "<u8").data)
    write_sections(folder, WINDOWS, all_windows(crowds, offsets, len(answered)).rows())


@kernel
def find_firsts(digests: Any, key: Any, table: Any, shift: Any, firsts: Any) -> None:
    """For every digest: the first row that has it.

    digests     uint64 (n, 2)
    key         odd uint64 that nobody knows; nothing returned depends on it
    table       int32[2 ** (64 - shift)], all -1, longer than n: rows, at the high bits of key x the digest's first half
    firsts      int32[n], filled
    """
    mask = len(table) - 1
    for row in range(len(digests)):
        if row + LOOK_AHEAD < len(digests):
            ahead = np.int64(digests[row + LOOK_AHEAD, 0] * key >> shift)
            prefetch(table.ctypes.data + 4 * ahead)
        slot = np.int64(digests[row, 0] * key >> shift)
        while table[slot] >= 0:
            other = table[slot]
            if digests[other, 0] == digests[row, 0] and digests[other, 1] == digests[row, 1]:
                break
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = row
        firsts[row] = table[slot]


_AGAIN = np.uint32(1 << 31)
_HASH = np.uint32((1 << 31) - 1)


@kernel
def mark_again(hashes: Any, wanted: Any, key: Any, table: Any, shift: Any, again: Any) -> Any:
    """Mark the rows whose hash another row has; returns how many are marked. Only the low 31 bits count, and 0 equals
    1.

    hashes      uint32[n]; only rows that are `wanted`, uint8[n], are looked at
    key         odd uint64 that nobody knows; nothing returned depends on it
    table       uint32[2 ** (64 - shift)], zeros, longer than n
    again       uint8[n], filled
    """
    mask = len(table) - 1
    marked = 0
    for turn in range(2):
        for row in range(len(hashes)):
            if row + LOOK_AHEAD < len(hashes):
                ahead = max(np.uint32(1), hashes[row + LOOK_AHEAD] & _HASH)
                prefetch(table.ctypes.data + 4 * np.int64(np.uint64(ahead) * key >> shift))
            if turn == 0:
                again[row] = 0
            if wanted[row] == 0:
                continue
            value = max(np.uint32(1), hashes[row] & _HASH)
            slot = np.int64(np.uint64(value) * key >> shift)
            while table[slot] != 0 and table[slot] & _HASH != value:
                slot = (slot + 1) & mask
            if turn == 0:
                table[slot] = value if table[slot] == 0 else value | _AGAIN
            elif table[slot] & _AGAIN:
                again[row] = 1
                marked += 1
    return marked
