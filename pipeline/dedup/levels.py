"""One level of matching: the anchors of one k, and the slices that crowded groups leave to the next level."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchor_kernels import BUCKETS, sort_into_buckets
from corpusmill.dedup.match_kernels import find_groups, slice_crowded, sort_by_position, walk_anchors
from corpusmill.dedup.ranges import Ranges, union_ranges
from corpusmill.dedup.repeated import RepeatedWindow, most_repeated

_FOLLOW_BYTES = 1 << 40
_FOLLOW_GAP_BYTES = 1000
_WINDOW_ROWS = 1 << 16


@dataclass(frozen=True)
class Level:
    """Anchors of one k.

    rows        per shard uint64 (n, 2): hash, place; by bucket, in text order within a bucket
    starts      int64[B + 1, S]: each shard's first row of each bucket to match, and the end of the last
    """

    kgram_bytes: int
    rows: list[NDArray[np.uint64]]
    starts: NDArray[np.int64]

    @property
    def anchors(self) -> int:
        """How many there are to match."""
        return int((self.starts[-1] - self.starts[0]).sum())


def match_level(
    texts: Sequence[NDArray[np.uint8]],
    level: Level,
    minimum_bytes: int,
    most_representatives: int,
    windows: list[list[Ranges]],
    earlier: list[Ranges] | None = None,
    repeated: list[RepeatedWindow] | None = None,
) -> tuple[int, list[NDArray[np.uint64]]]:
    """Match the anchors of one level; the windows found are appended to `windows`, per shard.

    What they were found equal to is appended to `earlier`, if it is given: bounds as shard << 44 | position; the
    windows that are repeated most to `repeated`, if it is given.

    Returns the number of candidates, and per shard the anchors of crowded groups, left to the next level: uint64
    (n, 2), of which column 0 is the place. There are none when k is L.
    """
    k = level.kgram_bytes
    most = most_representatives if k < minimum_bytes else 1 << 40
    addresses = np.array([text.ctypes.data for text in texts], np.int64)
    sizes = np.array([text.size for text in texts], np.int64)
    anchors = level.starts[-1] - level.starts[0]
    found = np.empty((int(anchors.sum()), 2), np.uint64)
    found_starts = np.cumsum(anchors) - anchors
    found_ends = np.empty_like(found_starts)
    rows_addresses = np.array([rows.ctypes.data for rows in level.rows], np.int64)
    key = np.uint64(secrets.randbits(64) | 1)
    slot_count = find_groups(rows_addresses, level.starts, most, key, found, found_starts, found_ends)
    candidates = [found[first:last] for first, last in zip(found_starts, found_ends, strict=True)]
    spare = np.empty((max(map(len, candidates)), 2), np.uint64)
    for text, rows in zip(texts, candidates, strict=True):
        if sort_by_position(rows, spare[: len(rows)], text.size):
            rows[:] = spare[: len(rows)]
    del spare
    if repeated is not None:
        repeated += most_repeated(texts, candidates, slot_count, minimum_bytes)

    slots = np.zeros(slot_count, np.int64)
    crowded = np.zeros(len(found), np.uint8)
    # Following a match costs 0.15 ns per byte and saves the 150 ns of looking at the next anchor, if that is near.
    farthest = _FOLLOW_BYTES if int(sizes.sum()) < _FOLLOW_GAP_BYTES * len(found) else 0
    matched = np.empty((max(_WINDOW_ROWS, 2 * most_representatives), 2), np.uint64)
    equal = np.empty((len(matched) if earlier is not None else 0, 2), np.uint64)
    for shard, (row, end) in enumerate(zip(found_starts.tolist(), found_ends.tolist(), strict=True)):
        next_row = row
        while next_row < end:
            next_row, filled, filled_equal = walk_anchors(
                addresses,
                sizes,
                shard,
                found,
                found_starts,
                found_ends,
                next_row,
                slots,
                minimum_bytes,
                k,
                most,
                farthest,
                crowded,
                matched,
                equal,
            )
            windows[shard].append(matched[:filled].copy())
            if earlier is not None:
                earlier.append(union_ranges(equal[:filled_equal]))
    del slots
    crowded_anchors = [
        found[first:last][crowded[first:last] == 1] for first, last in zip(found_starts, found_ends, strict=True)
    ]
    return sum(map(len, candidates)), crowded_anchors


def count_slices(crowded_anchors: Sequence[NDArray[np.uint64]], kgram_bytes: int, minimum_bytes: int) -> int:
    """The most slices that anchors of one level can make, at most two more than their windows fill."""
    width, _ = _next_slices(kgram_bytes, minimum_bytes)
    return sum(
        int(((rows[:, 0] & np.uint64(1023)) // np.uint64(width) + np.uint64(2)).sum()) for rows in crowded_anchors
    )


def slice_level(
    texts: Sequence[NDArray[np.uint8]],
    crowded_anchors: Sequence[NDArray[np.uint64]],
    kgram_bytes: int,
    minimum_bytes: int,
    turn: int,
    turns: int,
) -> Level:
    """The next level: the slices of one level's crowded anchors (its k is `kgram_bytes`) whose hash is of this turn."""
    width, gram_bytes = _next_slices(kgram_bytes, minimum_bytes)
    rows = []
    starts = np.zeros((len(texts), BUCKETS + 1), np.int64)
    for shard, (text, anchors) in enumerate(zip(texts, crowded_anchors, strict=True)):
        slices = np.empty((count_slices([anchors], kgram_bytes, minimum_bytes), 2), np.uint64)
        filled = slice_crowded(text.ctypes.data, anchors, width, gram_bytes, turn, turns, slices)
        rows.append(np.empty((filled, 2), np.uint64))
        sort_into_buckets(slices[:filled], rows[-1], starts[shard])
    return Level(gram_bytes, rows, np.ascontiguousarray(starts.T))


def _next_slices(kgram_bytes: int, minimum_bytes: int) -> tuple[int, int]:
    """Windows of a slice, an eighth of those that an anchor of this k can own, and the bytes they all contain."""
    width = (minimum_bytes - kgram_bytes + 1 + 7) // 8
    return width, minimum_bytes - width + 1
