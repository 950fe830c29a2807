"""The strings that a partition repeats most, for the report: counted exactly, one per group of anchors.

Only the largest groups of equal k-grams are examined. In each, a sample of its anchors decides at which offset from the
anchor windows of L bytes agree most; there, the most common content of all its windows is counted by digests. A run of
short period has one anchor, so it counts once. The first pass over the texts (exchange.py) digests the sample, the
second all windows at the chosen offset.

With references, only strings that the dataset has are listed, by their first place in it: `first_shard` is the
dataset's first shard, and all before it are of references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import highs_of, lows_of, positions_of
from corpusmill.dedup.sections import Sections

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
