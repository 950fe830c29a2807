"""Stage 2: one cell in memory, permuted; or, in source order, one shard copied unchanged, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.content import ContentSum
from corpusmill.content_kernels import Words, place_weights, token_sums, weighted_sum
from corpusmill.shuffle.scatter import ScatteredCell
from corpusmill.slices import copy_slices, starts_of
from corpusmill.tokens.record_shard import write_provenance, write_record_shard
from corpusmill.tokens.runs import runs

BATCH_TOKENS = 1 << 19


@dataclass(frozen=True)
class Gathered:
    """The totals of one gathered cell.

    `content` weights every record by its shard and ordinal, as scatter does; `places` by cell and place in the cell, as
    exports do.
    """

    records: int
    tokens: int
    content: ContentSum
    places: ContentSum


def gather_cell(slices: list[ScatteredCell], cell: int, folder: Path) -> Gathered:
    """Read a cell's slice of every scatter folder (in order of shard), order it by key, write a record shard.

    Rows are read first: they determine each record's place, so tokens are read in batches directly to their places and
    the cell is in memory only once.
    """
    rows = np.concatenate([part.rows for part in slices])
    shards = np.repeat(np.arange(len(slices), dtype=np.uint64), [len(part.rows) for part in slices])
    order = np.argsort(rows[:, 1], kind="stable")
    lengths = rows[order, 2]
    ends = np.cumsum(lengths, dtype=np.uint64)
    places = np.empty(len(order), np.uint64)
    places[order] = ends - lengths
    permuted = np.empty(int(ends[-1]) if len(ends) else 0, slices[0].dtype)
    begin = 0
    for part in slices:
        _place(part, places[begin : begin + len(part.rows)], permuted)
        begin += len(part.rows)
    write_record_shard(permuted, shards[order], rows[order, 0], lengths, folder)
    content = _content(permuted, lengths, shards[order], rows[order, 0], cell, 0)
    return Gathered(len(rows), len(permuted), *content)


def gather_shard(cell: ScatteredCell, shard: int, folder: Path) -> Gathered:
    """Write the record shard of a shard that was scattered into one cell, its records in their own order."""
    content, all_places = ContentSum(), ContentSum()
    with (folder / "tokens").open("wb") as file:
        for first, last, tokens in _batches(cell):
            file.write(tokens.data)
            batch = cell.rows[first:last]
            more, more_places = _content(tokens, batch[:, 2], shard, batch[:, 0], shard, first)
            content, all_places = content + more, all_places + more_places
    shards = np.full(len(cell.rows), shard, np.uint64)
    write_provenance(shards, cell.rows[:, 0], cell.rows[:, 2], cell.dtype, folder)
    return Gathered(len(cell.rows), cell.tokens, content, all_places)


def _content(
    tokens: NDArray[Any], lengths: Words, shards: Words | int, ordinals: Words, cell: int, first_place: int
) -> tuple[ContentSum, ContentSum]:
    """The content sums of records back to back: by origin, and by place in the cell."""
    lengths = np.ascontiguousarray(lengths)
    sums = token_sums(tokens, starts_of(lengths), lengths, np.zeros(len(lengths), np.uint64))
    places = np.arange(first_place, first_place + len(lengths), dtype=np.uint64)
    return weighted_sum(sums, place_weights(shards, ordinals)), weighted_sum(sums, place_weights(cell, places))


def _batches(cell: ScatteredCell) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """(first record, past the last, their tokens) of a slice, about BATCH_TOKENS at a time."""
    ends = np.cumsum(cell.rows[:, 2], dtype=np.uint64)
    for first, last in runs(ends, BATCH_TOKENS):
        start = int(ends[first - 1]) if first else 0
        yield first, last, cell.read(start, int(ends[last - 1]))


def _place(cell: ScatteredCell, places: NDArray[np.uint64], permuted: NDArray[Any]) -> None:
    """Read a slice in batches and copy each of its records to its place."""
    lengths = np.ascontiguousarray(cell.rows[:, 2])
    for first, last, tokens in _batches(cell):
        sizes = lengths[first:last]
        copy_slices(tokens, starts_of(sizes), sizes, permuted, places[first:last])
