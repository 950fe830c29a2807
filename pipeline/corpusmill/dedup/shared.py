"""Finds the anchors that share their hash with another: one hash partition of all shards, without any text.

Only these go into requests (exchange.py): 32 % of the anchors at L = 500 on documentation, 40 % at L = 100.

    contexts        sections by shard: place u64 of every anchor whose hash is shared, by position
    windows         sections by shard: place u64 of windows of the groups that are largest (repeated.py), by position
    crowds          group u64 | shard u64 | place u64: the anchors of those groups

Memory of a partition with N anchors: 12 N, 16 N for those that are shared and as much again for sorting one shard's,
and 40 bytes per anchor of the largest bucket.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import ANCHOR_ROWS, ROW_BYTES, SMALL_FILES, open_anchors, partition_buckets
from corpusmill.dedup.exchange import CONTEXTS, WINDOWS
from corpusmill.dedup.match_kernels import find_groups, sort_by_position
from corpusmill.dedup.repeated import largest_groups, read_crowds, sample_windows, write_crowds
from corpusmill.dedup.sections import Sections, write_sections
from corpusmill.errors import ConfigError

MOST_SHARDS = 1 << 19


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
