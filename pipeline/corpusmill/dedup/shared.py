"""Finds the anchors that share their hash with another: one hash partition of all shards, without any text.

Only these go into requests (exchange.py): 32 % of the anchors at L = 500 on documentation, 40 % at L = 100.

    contexts        sections by shard: place u64 of every anchor whose hash is shared, by position
    windows         sections by shard: place u64 of windows of the groups that are largest, by position
    crowds          group u64 | shard u64 | place u64: the anchors of those groups

Memory of a partition with N anchors: 12 N, 16 N for those that are shared and as much again for sorting one shard's,
and 40 bytes per anchor of the largest bucket.

The strings that a partition repeats most are counted for the report: exactly, one per group of anchors. Only the
largest groups of equal k-grams are examined. In each, a sample of its anchors decides at which offset from the anchor
windows of L bytes agree most; there, the most common content of all its windows is counted by digests. A run of short
period has one anchor, so it counts once. The first pass over the texts (exchange.py) digests the sample, the second all
windows at the chosen offset.

With references, only strings that the dataset has are listed, by their first place in it: `first_shard` is the
dataset's first shard, and all before it are of references.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import (
    ANCHOR_ROWS,
    ROW_BYTES,
    SMALL_FILES,
    highs_of,
    lows_of,
    open_anchors,
    partition_buckets,
    positions_of,
)
from corpusmill.dedup.exchange import CONTEXTS, WINDOWS
from corpusmill.engine.sections import Sections, write_sections
from corpusmill.errors import ConfigError
from corpusmill.kernels.compiled import kernel, load_word, prefetch

MOST_SHARDS = 1 << 19

_NUMBERED = np.uint64(1 << 63)
_ROW = 12  # bytes of an anchor's row: hash u32, place u64
_LOW_HALF = np.uint64(0xFFFFFFFF)

LOOK_AHEAD = 12
"""Rows between a prefetch and its use: about 12 x 15 ns of work hide one trip to memory."""


def random_key() -> np.uint64:
    """A random odd number, the secret of a hash table in memory: without it, crafted text could fill one slot.

    No written byte depends on it.
    """
    return np.uint64(secrets.randbits(64) | 1)


def share(
    shards: Sequence[Sections],
    partition: int,
    partitions: int,
    folder: Path,
    *,
    first_shard: int = 0,
) -> dict[str, int]:
    """Write a partition's requests to every shard; returns counts: anchors, candidates.

    `shards`: their folders of anchors; `first_shard`: the dataset's first, behind those of references
    """
    if len(shards) > MOST_SHARDS:
        raise ConfigError(
            "dedup.too_many_shards: too many shards", expected=f"at most {MOST_SHARDS:,}", got=f"{len(shards):,}"
        )
    first, last = partition_buckets(partition, partitions)
    rows: list[NDArray[np.uint32]] = []
    starts = np.zeros((last + 1 - first, len(shards)), np.int64)
    for number, shard in enumerate(shards):
        with ExitStack() as files:
            for name in SMALL_FILES:
                files.enter_context(shard.require(name, 0, sys.maxsize))
            files.enter_context(shard.require(ANCHOR_ROWS, 0, 0))
            anchors = open_anchors(shard.folder)
            begin, end = int(anchors.starts[first]), int(anchors.starts[last])
            files.enter_context(shard.require(ANCHOR_ROWS, ROW_BYTES * begin, ROW_BYTES * end))
            own = np.fromfile(shard.folder / ANCHOR_ROWS, "<u4", count=3 * (end - begin), offset=ROW_BYTES * begin)
        rows.append(own.reshape(-1, 3))
        starts[:, number] = anchors.starts[first : last + 1] - begin
    candidates = _candidates(rows, starts)
    del rows
    write_crowds(folder, largest_groups(candidates, first_shard))
    write_sections(folder, CONTEXTS, [candidate[:, 0] for candidate in candidates])
    write_sections(folder, WINDOWS, sample_windows(read_crowds(Sections(folder)), len(shards)).rows())
    return {"anchors": int((starts[-1] - starts[0]).sum()), "candidates": sum(map(len, candidates))}


def _candidates(rows: list[NDArray[np.uint32]], starts: NDArray[np.int64]) -> list[NDArray[np.uint64]]:
    """Per shard uint64 (n, 2): place and group of the anchors whose hash is shared, by position."""
    sizes = starts[-1] - starts[0] if rows else np.empty(0, np.int64)
    anchors = np.empty((int(sizes.sum()), 2), np.uint64)
    firsts = np.cumsum(sizes) - sizes
    lasts = np.empty_like(firsts)
    addresses = np.array([row.ctypes.data for row in rows], np.int64)
    if rows:
        find_groups(addresses, starts, random_key(), anchors, firsts, lasts)
    candidates = [anchors[first:last] for first, last in zip(firsts, lasts, strict=True)]
    spare = np.empty((max(map(len, candidates), default=0), 2), np.uint64)
    for candidate in candidates:
        positions = int(candidate[:, 0].max() >> np.uint64(20)) + 1 if len(candidate) else 1
        if sort_by_position(candidate, spare[: len(candidate)], positions):
            candidate[:] = spare[: len(candidate)]
    return candidates


@kernel
def find_groups(  # noqa: PLR0912, PLR0915 - three passes over each bucket, inside one allocation of the table
    anchors: Any, starts: Any, key: Any, matches: Any, found_starts: Any, found_ends: Any
) -> Any:
    """Keep the anchors whose hash another anchor shares, and number the groups in order of their first anchors.

    anchors         int64[S]: address of shard s's rows (anchors.py), by bucket, in text order within a bucket
    starts          int64[B + 1, S]: each shard's first row of each of B buckets, and its end
    key             random secret odd uint64: places in the table are the high bits of hash x key. bytes_hash can be
                        inverted, so text could be crafted to fill one place; nothing returned depends on the key
    found           uint64 (n, 2), filled: place, group; shard s from found_starts[s] to found_ends[s], which are
                    int64[S]; there is room for all anchors of the shard
    Returns the number of groups.
    """
    shards = len(anchors)
    buckets = len(starts) - 1
    largest = 0
    sizes = np.empty(buckets, np.int64)  # in loops: sums and copies of arrays would take 3 s to compile
    for bucket in range(buckets):
        sizes[bucket] = 0
        for shard in range(shards):
            sizes[bucket] += starts[bucket + 1, shard] - starts[bucket, shard]
        largest = max(largest, sizes[bucket])
    size = 16
    while size < 2 * largest:
        size *= 2
    table = np.empty((size, 2), np.uint64)  # hash; anchors counted (0: free), then _NUMBERED + group
    where = np.empty(largest, np.int64)
    for shard in range(shards):
        found_ends[shard] = found_starts[shard]
    groups = 0
    for bucket in range(buckets):
        rows = sizes[bucket]
        size = 16
        shift = np.uint64(60)
        while size < 2 * rows:
            size *= 2
            shift -= np.uint64(1)
        mask = size - 1
        table[:size, 1] = 0
        row = 0
        for shard in range(shards):
            address = anchors[shard] + _ROW * starts[bucket, shard]
            stop = anchors[shard] + _ROW * starts[bucket + 1, shard]
            while address < stop:
                if address + _ROW * LOOK_AHEAD < stop:
                    ahead = load_word(address + _ROW * LOOK_AHEAD) & _LOW_HALF
                    prefetch(table.ctypes.data + 16 * np.int64(ahead * key >> shift))
                value = load_word(address) & _LOW_HALF
                slot = np.int64(value * key >> shift)
                while table[slot, 1] != 0 and table[slot, 0] != value:
                    slot = (slot + 1) & mask
                table[slot, 0] = value
                table[slot, 1] += np.uint64(1)
                where[row] = slot
                row += 1
                address += _ROW
        row = 0
        for shard in range(shards):
            address = anchors[shard] + _ROW * starts[bucket, shard]
            stop = anchors[shard] + _ROW * starts[bucket + 1, shard]
            to = found_ends[shard]
            while address < stop:
                if row + LOOK_AHEAD < rows:
                    prefetch(table.ctypes.data + 16 * where[row + LOOK_AHEAD])
                count = table[where[row], 1]
                if np.uint64(1) < count < _NUMBERED:
                    table[where[row], 1] = _NUMBERED + np.uint64(groups)
                    groups += 1
                if count > np.uint64(1):
                    matches[to, 0] = load_word(address + 4)
                    matches[to, 1] = table[where[row], 1] - _NUMBERED
                    to += 1
                row += 1
                address += _ROW
            found_ends[shard] = to
    return groups


@kernel
def sort_by_position(rows: Any, spare: Any, positions: Any) -> Any:
    """Radix sort of `rows` uint64 (n, 2) by the position in column 0; returns whether the result is in `spare`.

    11 bits a pass, lowest first; only the bits that `positions`, one above the highest position, needs.
    """
    swapped = False
    counts = np.empty(2049, np.int64)
    shift = 20
    while (positions - 1) >> (shift - 20) > 0:
        counts[:] = 0
        source, target = (spare, rows) if swapped else (rows, spare)
        for row in range(len(source)):
            counts[(np.int64(source[row, 0] >> np.uint64(shift)) & 2047) + 1] += 1
        for before in range(2048):
            counts[before + 1] += counts[before]
        for row in range(len(source)):
            digit = np.int64(source[row, 0] >> np.uint64(shift)) & 2047
            target[counts[digit], 0] = source[row, 0]
            target[counts[digit], 1] = source[row, 1]
            counts[digit] += 1
        swapped = not swapped
        shift += 11
    return swapped


LISTED = 6
CROWDS = "crowds"
_SAMPLE = 200
_OFFSETS = 9


@dataclass(frozen=True)
class RepeatedWindow:
    """A window of L bytes that occurs `count` times, and where its first occurrence in the dataset begins."""

    count: int
    shard: int
    position: int


@dataclass(frozen=True)
class Crowd:
    """The anchors of one group, int64 (n,) each: it owns windows that start `last` to `before` bytes before it."""

    shards: NDArray[np.int64]
    positions: NDArray[np.int64]
    before: NDArray[np.int64]
    last: NDArray[np.int64]

    def offsets(self) -> list[int]:
        """The offsets that are tried."""
        tried: list[int] = np.linspace(self.last.min(), self.before.max(), _OFFSETS).astype(np.int64).tolist()
        return sorted(set(tried))


@dataclass(frozen=True)
class Windows:
    """Windows to digest, int64 (n,) each: their crowd, their offset from its anchors, and where they begin."""

    crowds: NDArray[np.int64]
    offsets: NDArray[np.int64]
    shards: NDArray[np.int64]
    starts: NDArray[np.int64]
    texts: int

    def rows(self) -> list[NDArray[np.uint64]]:
        """Per shard the requests: position << 20, ascending."""
        order = self._order()
        rows = (self.starts[order] << 20).astype(np.uint64)
        return np.split(rows, np.searchsorted(self.shards[order], np.arange(1, self.texts))) if self.texts else []

    def in_place(self, answers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The answers, uint64 (n, 3), hash and digest: from the order of `rows` to that of the windows."""
        placed = np.empty_like(answers)
        placed[self._order()] = answers
        return placed

    def most_common(self, crowd: int, offset: int, own: NDArray[np.uint64], first_shard: int = 0) -> RepeatedWindow:
        """The most common content of a crowd's windows at an offset that a shard from `first_shard` on has, as its
        first occurrence there; `own`: in_place.
        """
        chosen = np.flatnonzero((self.crowds == crowd) & (self.offsets == offset))
        listed = chosen[self.shards[chosen] >= first_shard]
        if not len(listed):
            return RepeatedWindow(0, 0, 0)
        hashes, counts = np.unique(own[chosen, 0], return_counts=True)
        of_listed, first = np.unique(own[listed, 0], return_index=True)
        example = listed[int(first[np.argmax(counts[np.searchsorted(hashes, of_listed)])])]
        count = int((own[chosen, 1:] == own[example, 1:]).all(axis=1).sum())
        return RepeatedWindow(count, int(self.shards[example]), int(self.starts[example]))

    def _order(self) -> NDArray[np.intp]:
        return np.lexsort((self.starts, self.shards))


def largest_groups(candidates: Sequence[NDArray[np.uint64]], first_shard: int = 0) -> list[NDArray[np.uint64]]:
    """The anchors of at most LISTED groups, the largest first: uint64 (n, 2), shard and place, in dataset order.

    candidates      per shard uint64 (n, 2): place, group, in text order (shared.find_groups)
    first_shard     groups without an anchor in a shard from this on are left out
    """
    groups = 1 + max((int(rows[:, 1].max()) for rows in candidates if len(rows)), default=-1)
    sizes = np.zeros(groups, np.int64)
    for rows in candidates:
        sizes += np.bincount(rows[:, 1].view(np.int64), minlength=groups)
    listed = np.zeros(groups, np.bool_)
    for rows in candidates[first_shard:]:
        listed[rows[:, 1].view(np.int64)] = True
    crowds = []
    by_size = np.argsort(sizes, kind="stable")[::-1]
    for group in by_size[listed[by_size]][:LISTED].tolist():
        of_shards = [rows[rows[:, 1] == np.uint64(group), 0] for rows in candidates]
        shards = np.repeat(np.arange(len(of_shards), dtype=np.uint64), [len(places) for places in of_shards])
        crowds.append(np.column_stack([shards, np.concatenate(of_shards)]))
    return crowds


def write_crowds(folder: Path, crowds: Sequence[NDArray[np.uint64]]) -> None:
    """Write what largest_groups found: group u64 | shard u64 | place u64 for every anchor."""
    numbered = [np.insert(rows, 0, np.uint64(number), axis=1) for number, rows in enumerate(crowds)]
    rows = np.concatenate(numbered) if numbered else np.empty((0, 3), np.uint64)
    (folder / CROWDS).write_bytes(np.ascontiguousarray(rows, "<u8").data)


def read_crowds(shared: Sections) -> list[Crowd]:
    """What write_crowds wrote."""
    rows = shared.whole(CROWDS).reshape(-1, 3)
    crowds = []
    for number in range(int(rows[:, 0].max()) + 1 if len(rows) else 0):
        own = rows[rows[:, 0] == np.uint64(number)]
        before = highs_of(own[:, 2])
        crowds.append(Crowd(own[:, 1].astype(np.int64), positions_of(own[:, 2]), before, before - lows_of(own[:, 2])))
    return crowds


def sample_windows(crowds: Sequence[Crowd], texts: int) -> Windows:
    """The windows of every crowd's first anchors, at every offset that is tried."""
    chosen = [(number, crowd, offset) for number, crowd in enumerate(crowds) for offset in crowd.offsets()]
    return _windows(chosen, texts, _SAMPLE)


def all_windows(crowds: Sequence[Crowd], offsets: Sequence[int], texts: int) -> Windows:
    """The windows of all anchors of every crowd at its offset."""
    return _windows(list(zip(range(len(crowds)), crowds, offsets, strict=True)), texts, None)


def best_offsets(crowds: Sequence[Crowd], windows: Windows, answers: NDArray[np.uint64]) -> list[int]:
    """Of every crowd, the first offset at which most windows of the sample agree."""
    own = windows.in_place(answers)
    counts = [
        [(windows.most_common(number, offset, own).count, -offset) for offset in crowd.offsets()]
        for number, crowd in enumerate(crowds)
    ]
    return [-max(of_crowd)[1] for of_crowd in counts]


def most_repeated(
    offsets: Sequence[int], windows: Windows, answers: NDArray[np.uint64], first_shard: int = 0
) -> list[RepeatedWindow]:
    """The windows that occur more than once, the most frequent first; see most_common."""
    own = windows.in_place(answers)
    windows_found = [windows.most_common(number, offset, own, first_shard) for number, offset in enumerate(offsets)]
    return sorted(
        (window for window in windows_found if window.count > 1),
        key=lambda window: (-window.count, window.shard, window.position),
    )


def _windows(chosen: Sequence[tuple[int, Crowd, int]], texts: int, most: int | None) -> Windows:
    """The windows at an offset of the first `most` anchors of crowds: (number, crowd, offset)."""
    columns = [np.empty((4, 0), np.int64)]
    for number, crowd, offset in chosen:
        owning = np.flatnonzero((crowd.last[:most] <= offset) & (offset <= crowd.before[:most]))
        starts = crowd.positions[owning] - offset
        own = np.full_like(starts, number), np.full_like(starts, offset), crowd.shards[owning], starts
        columns.append(np.stack(own))
    number_of, offset_of, shards, starts = np.concatenate(columns, axis=1)
    return Windows(number_of, offset_of, shards, starts, texts)
