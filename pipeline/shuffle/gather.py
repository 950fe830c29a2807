"""Stage 2: one cell in memory, permuted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.shuffle.scatter import ScatteredCell, open_scattered
from pipeline.slices import copy_slices, starts_of
from pipeline.tokens.record_shard import write_record_shard
from pipeline.tokens.records import record_digest
from pipeline.tokens.runs import runs

BATCH_TOKENS = 2 << 20


@dataclass(frozen=True)
class Gathered:
    """What gathering one cell came to; digest as two 64-bit words, see record_digest."""

    records: int
    tokens: int
    digest: tuple[int, int]


def gather_cell(scattered: list[Path], cell: int, folder: Path) -> Gathered:
    """Read a cell's slice of every scatter folder (in order of shard), order it by key, write a record shard.

    Rows come first: they say where each record will stand, so that tokens are read in batches straight to their place
    and the cell is in memory once.
    """
    slices = [open_scattered(one, cell) for one in scattered]
    rows = np.concatenate([one.rows for one in slices])
    shards = np.repeat(np.arange(len(slices), dtype=np.uint64), [len(one.rows) for one in slices])
    order = np.argsort(rows[:, 1], kind="stable")
    lengths = rows[order, 2]
    ends = np.cumsum(lengths, dtype=np.uint64)
    places = np.empty(len(order), np.uint64)
    places[order] = ends - lengths
    permuted = np.empty(int(ends[-1]) if len(ends) else 0, slices[0].dtype)
    begin = 0
    for one in slices:
        _place(one, places[begin : begin + len(one.rows)], permuted)
        begin += len(one.rows)
    write_record_shard(permuted, shards[order], rows[order, 0], lengths, folder)
    low, high = record_digest(permuted, lengths)
    return Gathered(len(rows), len(permuted), (int(low), int(high)))


def _place(one: ScatteredCell, places: NDArray[np.uint64], permuted: NDArray[Any]) -> None:
    """Read a slice in batches and copy each of its records to where it belongs."""
    lengths = np.ascontiguousarray(one.rows[:, 2])
    ends = np.cumsum(lengths, dtype=np.uint64)
    for first, last in runs(ends, BATCH_TOKENS):
        start = int(ends[first - 1]) if first else 0
        tokens, sizes = one.read(start, int(ends[last - 1])), lengths[first:last]
        copy_slices(tokens, starts_of(sizes), sizes, permuted, places[first:last])
