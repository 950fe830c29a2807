"""Find the windows that occurred earlier, one hash partition of all shards at a time.

    anchors of all shards --find_groups--> anchors whose k-gram hash is shared, in text order
        --walk_anchors--> windows that occurred earlier, verified byte for byte    (representatives: first occurrences)
        --slice_crowded--> anchors with a longer k-gram, for groups with more than 16 representatives: start again

Boilerplate gives one k-gram thousands of representatives with different surroundings; comparing every pair is
quadratic. So a group that passes 16 is cut into slices of windows that share more bytes, k = L - w/8 + 1 instead of
L - w + 1, and those are matched by the same three kernels; then k = L - w/64 + 1, and at last k = L, where one
representative per content is all there can be. Every level is linear, and exact: equal windows stay in equal groups.

Matches are kept as windows (first start, one past the last) until the end: an anchor owns its windows alone, so the
union of one partition's windows counts every duplicate window once, and the sum over partitions does not depend on
their number. Only then do they become ranges of bytes.

The partitions' ranges of one task, rows grouped by shard:

    match_ranges        start u64 LE | end u64 LE ...      shard 0's rows, shard 1's, ...
    match_ranges.index  u64 LE x (shards + 1)              first row of every shard, then the number of rows

Memory of a partition with N anchors: its slice of the anchors files, memory-mapped (16 N); for each of the M anchors
whose hash is shared (0.3 N at L = 500, 0.4 N at L = 100 on documentation) 16 bytes, 16 more while they are sorted or 13
while they are matched; 40 bytes per anchor of the largest bucket; 64 bytes per match. Slices take the same, in turns of
N or 1 Mi. Measured 17 N; at most 49 max(N, 1 Mi), and 16 N for each level that waits. Texts are memory-mapped and read
in text order by every partition: prefer the fewest partitions that fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import Anchors, partition_buckets
from corpusmill.dedup.levels import Level, count_slices, match_level, slice_level
from corpusmill.dedup.match_kernels import find_periods
from corpusmill.dedup.ranges import Ranges, union_ranges
from corpusmill.dedup.repeated import RepeatedWindow
from corpusmill.errors import ConfigError, CorruptDataError

MATCH_RANGES, LATER_WINDOWS, EARLIER_WINDOWS = "match_ranges", "later_windows", "earlier_windows"
MOST_SHARDS = 1 << 19

_SHARD_SHIFT = np.uint64(44)
_MOST_REPRESENTATIVES = 16
_TURN_ANCHORS = 1 << 20


@dataclass(frozen=True)
class IndexedShard:
    """A text shard's bytes (uint8[n], memory-mapped) and its anchors."""

    text: NDArray[np.uint8]
    anchors: Anchors


@dataclass(frozen=True)
class Matches:
    """Per shard, ascending and apart, rows (first window start, one past the last), uint64 (r, 2).

    windows     windows that occurred earlier in dataset order
    earlier     windows that one of these was found equal to, among them the first of every window that occurs again;
                empty unless asked for
    repeated    some of the windows that occur most often (repeated.py)
    """

    windows: list[Ranges]
    earlier: list[Ranges]
    repeated: list[RepeatedWindow] = field(default_factory=list)

    def ranges(self, minimum_bytes: int) -> list[Ranges]:
        """Per shard the bytes of `windows`."""
        return [window_bytes(rows, minimum_bytes) for rows in self.windows]


def match_partition(
    shards: Sequence[IndexedShard],
    partition: int,
    partitions: int,
    minimum_bytes: int,
    *,
    want_earlier: bool = False,
    most_representatives: int = _MOST_REPRESENTATIVES,
    turn_anchors: int = _TURN_ANCHORS,
) -> tuple[Matches, dict[str, int]]:
    """The windows of this partition that occurred earlier, and counts.

    shards          all shards, in dataset order: of equal windows the first in this order is kept
    want_earlier    also say which windows they were found equal to (Matches.earlier)
    most_representatives    after which a group is split; changes the speed only
    turn_anchors    slices matched at a time, if that is more than the partition's anchors; changes the memory only

    counts: anchors, candidates (their hash is shared), windows (that occurred earlier: remove pointers).
    The union of all partitions' windows is the answer. Repeats of the anchors files are added by partition 0.
    """
    _check(shards, minimum_bytes)
    first, last = partition_buckets(partition, partitions)
    windows: list[list[Ranges]] = [[shard.anchors.repeats] if partition == 0 else [] for shard in shards]
    starts = np.array([shard.anchors.starts[first : last + 1] for shard in shards], np.int64)
    starts = starts.reshape(len(shards), last + 1 - first)
    level = Level(
        shards[0].anchors.kgram_bytes if shards else minimum_bytes,
        [shard.anchors.rows for shard in shards],
        np.ascontiguousarray(starts.T),
    )
    texts = [shard.text for shard in shards]
    earlier = [np.empty((0, 2), np.uint64)] if want_earlier else None
    counts = {"anchors": level.anchors, "candidates": 0}
    repeated: list[RepeatedWindow] = []
    if level.anchors:
        turn_anchors = max(turn_anchors, level.anchors)
        counts["candidates"] = _match(
            texts, level, minimum_bytes, most_representatives, turn_anchors, windows, earlier, repeated
        )
    if earlier is not None and partition == 0:
        earlier += _before_repeats(shards, minimum_bytes)
    merged = [union_ranges(np.concatenate(rows)) if rows else np.empty((0, 2), np.uint64) for rows in windows]
    counts["windows"] = sum(int((rows[:, 1] - rows[:, 0]).sum()) for rows in merged)
    return Matches(merged, _by_shard(earlier or [], len(shards)), repeated), counts


def window_bytes(windows: Ranges, minimum_bytes: int) -> Ranges:
    """The bytes of windows: rows of window starts, ascending, to ranges."""
    return union_ranges(windows + np.array([0, minimum_bytes - 1], np.uint64))


def _before_repeats(shards: Sequence[IndexedShard], minimum_bytes: int) -> list[Ranges]:
    """What the windows in the shards' repeats equal, a period earlier; bounds as shard << 44 | position."""
    rows = np.empty((_TURN_ANCHORS >> 4, 2), np.uint64)
    found = []
    for number, shard in enumerate(shards):
        repeats = np.ascontiguousarray(shard.anchors.repeats)
        state = np.zeros(2, np.int64)
        while state[0] < len(repeats):
            filled = find_periods(shard.text.ctypes.data, repeats, state, minimum_bytes, minimum_bytes, rows)
            found.append(union_ranges(rows[:filled]) + (np.uint64(number) << _SHARD_SHIFT))
    return found


def _by_shard(rows: list[Ranges], shards: int) -> list[Ranges]:
    """Rows of shard << 44 | position, in any order, as ranges of each shard."""
    merged = union_ranges(np.concatenate(rows)) if rows else np.empty((0, 2), np.uint64)
    bounds = np.searchsorted(merged[:, 0], np.arange(shards + 1, dtype=np.uint64) << _SHARD_SHIFT)
    return [
        merged[first:last] - (np.uint64(number) << _SHARD_SHIFT)
        for number, (first, last) in enumerate(pairwise(bounds.tolist()))
    ]


def _match(
    texts: Sequence[NDArray[np.uint8]],
    level: Level,
    minimum_bytes: int,
    most_representatives: int,
    turn_anchors: int,
    windows: list[list[Ranges]],
    earlier: list[Ranges] | None,
    repeated: list[RepeatedWindow] | None = None,
) -> int:
    """Match a level and all below it, appending to `windows` and `earlier`; returns the candidates.

    One anchor can leave nine slices to the next level, so slices are made and matched in turns, by their hash: a level
    never holds many more than `turn_anchors`, whatever the text.
    """
    k = level.kgram_bytes
    candidates, crowded = match_level(texts, level, minimum_bytes, most_representatives, windows, earlier, repeated)
    del level  # this frame has the only reference to slices
    for shard, found in enumerate(windows):
        windows[shard] = [union_ranges(np.concatenate(found))] if found else []
    if earlier:
        earlier[:] = [union_ranges(np.concatenate(earlier))]
    turns = -(-count_slices(crowded, k, minimum_bytes) // turn_anchors)
    for turn in range(turns):
        candidates += _match(
            texts,
            slice_level(texts, crowded, k, minimum_bytes, turn, turns),
            minimum_bytes,
            most_representatives,
            turn_anchors,
            windows,
            earlier,
        )
    return candidates


def write_match_ranges(folder: Path, ranges_per_shard: Sequence[Ranges], name: str = MATCH_RANGES) -> None:
    """Write one partition's ranges, by shard, as `name` and `name`.index in `folder`."""
    starts = np.cumsum([0, *map(len, ranges_per_shard)], dtype="<u8")
    with (folder / name).open("wb") as out:
        for ranges in ranges_per_shard:
            out.write(np.ascontiguousarray(ranges, "<u8").data)
    (folder / f"{name}.index").write_bytes(starts.data)


def read_match_ranges(folder: Path, shard: int, name: str = MATCH_RANGES) -> Ranges:
    """One shard's rows of what write_match_ranges wrote: uint64 (r, 2); nothing else is read."""
    starts = np.fromfile(folder / f"{name}.index", "<u8").astype(np.int64)
    size = (folder / name).stat().st_size
    if not 0 <= shard < len(starts) - 1 or size != 16 * starts[-1]:
        raise CorruptDataError(
            "A partition's match ranges do not fit their index",
            where=folder,
            expected=f"shard {shard} in the index, a file of 16 bytes per range",
            got=f"{max(len(starts) - 1, 0)} shards, {size:,} bytes",
            next_step="match the partition again",
        )
    first, last = int(starts[shard]), int(starts[shard + 1])
    rows = np.fromfile(folder / name, "<u8", count=2 * (last - first), offset=16 * first)
    return rows.astype(np.uint64, copy=False).reshape(-1, 2)


def _check(shards: Sequence[IndexedShard], minimum_bytes: int) -> None:
    """All anchors must be for this length, and shards few enough to number in 19 bits."""
    if len(shards) > MOST_SHARDS:
        raise ConfigError("Too many shards to match", expected=f"at most {MOST_SHARDS:,}", got=f"{len(shards):,}")
    for number, shard in enumerate(shards):
        if shard.anchors.minimum_bytes != minimum_bytes:
            raise CorruptDataError(
                "Anchors were built for another minimum length",
                where=f"shard {number}",
                expected=f"minimum_bytes {minimum_bytes}",
                got=f"minimum_bytes {shard.anchors.minimum_bytes}",
                next_step="index the shard again",
            )
