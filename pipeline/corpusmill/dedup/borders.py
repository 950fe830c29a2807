"""Matches what digests could not settle: borders of slices, one hash partition of all shards.

Slices of one gram make a group. In a group of at most 32 each is compared with each before it. Of larger groups parts
are compared, first whole slices, then halves, quarters and at last single windows: of parts with the same bytes the
first stays and the windows of the others occurred earlier; of those that stay, a half goes on if what all of its
windows share is another's, too. So at each of the log2(w) + 1 steps only the parts at the ends of duplicates are left,
however many members a group has: every step is linear. Equal windows stay together to the last step, and what is
emitted was compared byte for byte beside grams of equal digests.

Memory: 200 bytes per border and its edges (at most 2 w - 2 bytes), in as many turns, by the gram's digest, as keep
that within a budget; each turn reads all answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import Slicing, highs_of, lows_of, positions_of
from corpusmill.dedup.border_kernels import find_first_items, hash_shared_borders, match_pairs
from corpusmill.dedup.exchange import BORDERS, DIGESTS, EDGES, WINDOW_DIGESTS
from corpusmill.dedup.ranges import NO_RANGES, Matches, Ranges, union_ranges
from corpusmill.dedup.references import equal_rows
from corpusmill.dedup.settle import OFFSETS, firsts_of, occur_again
from corpusmill.dedup.shared import RepeatedWindow, all_windows, most_repeated, random_key, read_crowds
from corpusmill.engine.sections import Sections
from corpusmill.kernels.slices import copy_slices, starts_of

BYTES_PER_BORDER = 200

_MOST_PAIRED = 32
"""At worst each member is compared with 16 others on average. For 3.2 million slices of 74 near-copies the comparison
takes 2.3 s if groups of at most 16 are compared in pairs, 1.1 s with 32 and 1.0 s with 64.
"""

_PAIR_ROWS = 1 << 16

_SHARD_SHIFT = np.uint64(44)


@dataclass(frozen=True)
class _Slices:
    """Slices of several shards in dataset order.

    begins      int64 (m,): shard << 44 | where the gram begins
    members     int64 (m, 4): group, where in `edges`, bytes left, bytes right
    edges       uint8: those bytes, and 8 more
    """

    width: int
    begins: NDArray[np.int64]
    members: NDArray[np.int64]
    edges: NDArray[np.uint8]

    def windows(self, items: NDArray[np.int32], part: int) -> Ranges:
        """Rows (first, one past the last) of the windows of some items (member, low), plus shard << 44."""
        begin, members, low = self.begins[items[:, 0]], self.members[items[:, 0]], items[:, 1].astype(np.int64)
        most = np.minimum(members[:, 2], low + part - 1)
        least = np.maximum(self.width - 1 - members[:, 3], low)
        return np.column_stack([begin - most, begin - least + 1]).astype(np.uint64)

    def has_windows(self, items: NDArray[np.int32], part: int) -> NDArray[np.bool_]:
        """Which items have a window."""
        rows = self.windows(items, part)
        return rows[:, 0] < rows[:, 1]


def match_borders(
    settled: Sections,
    answered: Sequence[Sections],
    partition: int,
    slicing: Slicing,
    *,
    want_windows: bool = False,
    memory_bytes: int = 1 << 30,
    settled_windows: int = 0,
    most_paired: int = _MOST_PAIRED,
    equal: list[NDArray[np.uint64]] | None = None,
) -> Matches:
    """All windows of this partition that occurred earlier, including those that were settled before.

    settled         the folder that settle.settle wrote for this partition
    answered        what every shard answered (exchange.answer_borders)
    memory_bytes    approximate limit; changes the number of turns only
    settled_windows     how many windows `settled` holds
    most_paired     members of a group that are compared each with each; changes the speed only
    equal           receives rows of equal windows (references.py): at least one for every later window
    """
    shards = len(answered)
    borders = [settled.read(BORDERS, shard) for shard in range(shards)]
    needed = sum(BYTES_PER_BORDER * len(own) + int((highs_of(own) + lows_of(own)).sum()) for own in borders)
    turns = -(-needed // memory_bytes)
    later, earlier = [NO_RANGES], [NO_RANGES]
    for turn in range(turns):
        slices = _read_slices(borders, answered, partition, slicing.width, turn, turns)
        _compare(slices, later, earlier if want_windows else None, equal, most_paired)
        del slices  # before the next turn's
    matches = Matches.of_windows(
        _by_shard(later, shards), _by_shard(earlier, shards), slicing.minimum_bytes, want_windows=want_windows
    )
    united = matches.united(settled, with_windows=want_windows)
    return replace(united, windows=matches.windows + settled_windows)


def count_repeated(
    shared: Sections, settled: Sections, answered: Sequence[Sections], partition: int, first_shard: int = 0
) -> list[RepeatedWindow]:
    """The windows that this partition repeats most; `first_shard`: the dataset's, behind those of references."""
    crowds = read_crowds(shared)
    offsets = settled.whole(OFFSETS).tolist()
    answers = [answer.read(WINDOW_DIGESTS, partition, columns=3) for answer in answered]
    joined = np.concatenate(answers) if answers else np.empty((0, 3), np.uint64)
    return most_repeated(offsets, all_windows(crowds, offsets, len(answered)), joined, first_shard)


def _by_shard(rows: list[Ranges], shards: int) -> list[Ranges]:
    """Rows of shard << 44 | position, in any order, as rows of each shard, merged."""
    merged = union_ranges(np.concatenate(rows))
    bounds = np.searchsorted(merged[:, 0], np.arange(shards + 1, dtype=np.uint64) << _SHARD_SHIFT)
    return [
        merged[first:last] - (np.uint64(number) << _SHARD_SHIFT)
        for number, (first, last) in enumerate(pairwise(bounds.tolist()))
    ]


def _read_slices(
    borders: Sequence[NDArray[np.uint64]],
    answered: Sequence[Sections],
    partition: int,
    width: int,
    turn: int,
    turns: int,
) -> _Slices:
    """The slices of a turn, in whole groups, without those whose gram occurs once."""
    kept, digests = [], []
    for answers in answered:
        grams = answers.read(DIGESTS, partition, columns=2)
        kept.append(np.flatnonzero(grams[:, 1] % np.uint64(turns) == np.uint64(turn)))
        digests.append(grams[kept[-1]])
    groups = firsts_of(digests)
    del digests
    again = np.bincount(groups, minlength=len(groups))[groups] > 1
    bounds = np.cumsum([0, *map(len, kept)])
    kept = [own[again[first:last]] for own, (first, last) in zip(kept, pairwise(bounds.tolist()), strict=True)]
    rows = [own[chosen] for own, chosen in zip(borders, kept, strict=True)]
    joined = np.concatenate([np.empty(0, np.uint64), *rows])
    left, right = highs_of(joined), lows_of(joined)
    places = np.cumsum(left + right) - left - right
    members = np.column_stack([groups[again], places, left, right]).astype(np.int64)
    begins = np.repeat(np.arange(len(rows), dtype=np.int64), [len(own) for own in rows]) << 44 | positions_of(joined)
    edges = np.zeros(int((left + right).sum()) + 8, np.uint8)
    del joined, left, right, places
    filled = 0
    for own, chosen, answers in zip(borders, kept, answered, strict=True):
        lengths = (highs_of(own) + lows_of(own)).astype(np.uint64)
        starts, size = starts_of(lengths)[chosen], int(lengths[chosen].sum())
        read = answers.read(EDGES, partition, "u1")
        copy_slices(read, starts, lengths[chosen], edges[filled : filled + size])
        filled += size
    return _Slices(width, begins, members, edges)


def _compare(
    slices: _Slices,
    later: list[Ranges],
    earlier: list[Ranges] | None,
    equal: list[NDArray[np.uint64]] | None,
    most_paired: int,
) -> None:
    """Append rows of windows (shard << 44 | first, one past the last) that occurred earlier, and what they equal."""
    groups = slices.members[:, 0]
    crowded = np.bincount(groups)[groups] > most_paired if len(groups) else np.empty(0, np.bool_)
    _compare_pairs(slices, np.flatnonzero(~crowded), later, earlier, equal)
    _compare_crowded(slices, np.flatnonzero(crowded), later, earlier, equal)


def _compare_pairs(
    slices: _Slices,
    members: NDArray[np.intp],
    later: list[Ranges],
    earlier: list[Ranges] | None,
    equal: list[NDArray[np.uint64]] | None,
) -> None:
    """Small groups: compare each member with each."""
    order = members[np.argsort(slices.members[members, 0].astype(np.int32), kind="stable")]
    rows, pairs = np.empty((_PAIR_ROWS, 2), np.uint64), np.empty((_PAIR_ROWS, 3), np.uint64)
    first, edges = 0, slices.edges.ctypes.data
    while first < len(order):
        first, filled, filled_earlier = match_pairs(
            edges, slices.begins, slices.members, slices.width, order, first, rows, pairs
        )
        later.append(union_ranges(rows[:filled]))
        if earlier is not None:
            earlier.append(union_ranges(pairs[:filled_earlier]))
        if equal is not None:
            equal.append(equal_rows(pairs[:filled_earlier, 2], pairs[:filled_earlier]))


def _compare_crowded(
    slices: _Slices,
    members: NDArray[np.intp],
    later: list[Ranges],
    earlier: list[Ranges] | None,
    equal: list[NDArray[np.uint64]] | None,
) -> None:
    """Large groups: compare whole slices, halves, quarters ... (see above)."""
    width = slices.width
    words = 2 * (-(-width // 8) + 1)
    keys = np.array([random_key() for _ in range(2 * (words + 3))], np.uint64)
    edges = slices.edges.ctypes.data
    items = np.column_stack([members, np.zeros_like(members)]).astype(np.int32)
    part = width
    while len(items):
        size_bits = max(4, (len(items) * 3 // 2).bit_length())
        table = np.zeros(1 << size_bits, np.uint64)
        firsts = np.empty(len(items), np.int32)
        find_first_items(edges, slices.members, width, items, part, keys, table, np.uint64(32 - size_bits), firsts)
        del table
        stays = firsts == np.arange(len(items), dtype=np.int32)
        later.append(slices.windows(items[~stays], part))
        if earlier is not None:
            earlier.append(union_ranges(slices.windows(items[np.unique(firsts[~stays])], part)))
        if equal is not None:
            equal.append(equal_rows(later[-1][:, 0], slices.windows(items[firsts[~stays]], part)))
        if part == 1:
            return
        part //= 2
        items = np.repeat(items[stays], 2, axis=0)
        items[1::2, 1] += part
        items = np.ascontiguousarray(items[slices.has_windows(items, part)])
        hashes = np.empty(len(items), np.uint32)
        hash_shared_borders(edges, slices.members, width, items, part, keys, hashes)
        items = np.ascontiguousarray(items[occur_again(hashes, np.ones(len(items), np.uint8)) == 1])
