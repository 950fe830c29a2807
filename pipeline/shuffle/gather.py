"""Stage 2: one cell in memory, permuted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.shuffle.scatter import read_scattered
from pipeline.tokens.record_shard import write_record_shard
from pipeline.tokens.records import copy_slices, record_digest


@dataclass(frozen=True)
class Gathered:
    """What gathering one cell came to; digest as two 64-bit words, see record_digest."""

    records: int
    tokens: int
    digest: tuple[int, int]


def gather_cell(scattered: list[Path], cell: int, folder: Path) -> Gathered:
    """Read a cell's slice of every scatter folder (in order of shard), order it by key, write a record shard."""
    slices = [read_scattered(one, cell) for one in scattered]
    tokens = np.concatenate([part for part, _ in slices])
    rows = np.concatenate([part for _, part in slices])
    shards = np.repeat(np.arange(len(slices), dtype=np.uint64), [len(part) for _, part in slices])

    lengths = np.ascontiguousarray(rows[:, 2])
    starts = np.cumsum(lengths, dtype=np.uint64) - lengths
    order = np.argsort(rows[:, 1], kind="stable")
    permuted = np.empty_like(tokens)
    copy_slices(tokens, starts[order], lengths[order], permuted)
    write_record_shard(permuted, shards[order], rows[order, 0], lengths[order], folder)
    low, high = record_digest(permuted, lengths[order])
    return Gathered(len(rows), len(permuted), (int(low), int(high)))
