"""The strings that a partition repeats most, for the report: counted exactly, one per group of anchors.

The largest groups of equal k-grams are looked at. In each, a sample of its anchors says at which offset from the anchor
windows of L bytes agree most; of all its windows there the most common content is counted, byte for byte. A run of
short period has one anchor, so it counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from corpusmill.dedup.addresses import bytes_hash, common_prefix

LISTED = 6
_SAMPLE = 200
_OFFSETS = 9


@dataclass(frozen=True)
class RepeatedWindow:
    """A window of L bytes that occurs `count` times; where its first occurrence begins."""

    count: int
    shard: int
    position: int


def most_repeated(
    texts: Sequence[NDArray[np.uint8]],
    candidates: Sequence[NDArray[np.uint64]],
    slots: int,
    minimum_bytes: int,
) -> list[RepeatedWindow]:
    """At most LISTED windows that occur more than once, the most frequent first.

    candidates      per shard uint64 (n, 2): place, first slot of the group, in text order (match_kernels.find_groups)
    slots           the number of all groups' slots
    Price: 8 bytes per slot and per row of a shard, and a pass over the rows for each group.
    """
    sizes = np.zeros(slots, np.int64)
    for rows in candidates:
        np.add.at(sizes, rows[:, 1].view(np.int64), 1)
    largest = np.argsort(sizes, kind="stable")[::-1][:LISTED] if slots else np.empty(0, np.int64)
    addresses = np.array([text.ctypes.data for text in texts], np.int64)
    windows = []
    for group in largest[sizes[largest] > 1].tolist():
        of_shards = [rows[rows[:, 1] == np.uint64(group), 0] for rows in candidates]
        place = np.concatenate(of_shards).astype(np.int64)
        members = _Members(
            shards=np.repeat(np.arange(len(of_shards)), [len(rows) for rows in of_shards]),
            positions=place >> 20,
            before=place >> 10 & 1023,
            last=(place >> 10 & 1023) - (place & 1023),
        )
        offsets = np.unique(np.linspace(members.last.min(), members.before.max(), _OFFSETS).astype(np.int64)).tolist()
        sample = members.first(_SAMPLE)
        offset = max(offsets, key=lambda one: _most_common(addresses, sample, one, minimum_bytes).count)
        windows.append(_most_common(addresses, members, offset, minimum_bytes))
    return sorted((one for one in windows if one.count > 1), key=lambda one: (-one.count, one.shard, one.position))


@dataclass(frozen=True)
class _Members:
    """The anchors of one group, int64 (n,) each: it owns windows that start `last` to `before` bytes before it."""

    shards: NDArray[np.int64]
    positions: NDArray[np.int64]
    before: NDArray[np.int64]
    last: NDArray[np.int64]

    def first(self, count: int) -> _Members:
        return _Members(self.shards[:count], self.positions[:count], self.before[:count], self.last[:count])


def _most_common(texts: NDArray[np.int64], members: _Members, offset: int, minimum_bytes: int) -> RepeatedWindow:
    """Of the windows that start `offset` bytes before an anchor: the most common content, and the first that has it."""
    owning = (members.last <= offset) & (offset <= members.before)
    if not owning.any():
        return RepeatedWindow(0, 0, 0)
    shards, starts = members.shards[owning], members.positions[owning] - offset
    hashes = np.empty(len(starts), np.uint64)
    _hash_windows(texts, shards, starts, minimum_bytes, hashes)
    _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    example = int(first[np.argmax(counts)])
    count = _count_equal(texts, shards, starts, example, minimum_bytes)
    return RepeatedWindow(int(count), int(shards[example]), int(starts[example]))


@njit(nogil=True, cache=True)
def _hash_windows(texts: Any, shards: Any, starts: Any, minimum_bytes: Any, hashes: Any) -> None:
    for row in range(len(starts)):
        hashes[row] = bytes_hash(texts[shards[row]] + starts[row], minimum_bytes)


@njit(nogil=True, cache=True)
def _count_equal(texts: Any, shards: Any, starts: Any, example: Any, minimum_bytes: Any) -> Any:
    """How many windows have the bytes of window `example`."""
    address = texts[shards[example]] + starts[example]
    count = 0
    for row in range(len(starts)):
        count += common_prefix(texts[shards[row]] + starts[row], address, minimum_bytes) == minimum_bytes
    return count
