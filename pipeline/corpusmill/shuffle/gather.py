"""Stage 2: one cell in memory, permuted; or, in source order, one shard copied unchanged, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels import advance
from corpusmill.kernels.content import ContentSum
from corpusmill.kernels.content_kernels import Words, placed_sum, token_sums
from corpusmill.kernels.runs import runs
from corpusmill.kernels.slices import copy_slices, starts_of
from corpusmill.shuffle.scatter import ScatteredCell
from corpusmill.tokens.token_shard import write_provenance

BATCH_TOKENS = 1 << 19

Batch = tuple[int, int, NDArray[Any]]
"""(first record, past the last, their tokens)."""


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
    places = np.empty(len(order), np.uint64)
    places[order] = starts_of(lengths)
    permuted = np.empty(int(lengths.sum()), slices[0].dtype)
    begin = 0
    for part in slices:
        _place(part, places[begin : begin + len(part.rows)], permuted)
        begin += len(part.rows)
    batches = _batches(lengths, lambda first, last: permuted[first:last])
    return _write(batches, shards[order], rows[order, 0], lengths, cell, permuted.dtype, folder)


def gather_shard(cell: ScatteredCell, shard: int, folder: Path) -> Gathered:
    """Write the record shard of a shard that was scattered into one cell, its records in their own order."""
    shards = np.full(len(cell.rows), shard, np.uint64)
    lengths = cell.rows[:, 2]
    return _write(_batches(lengths, cell.read), shards, cell.rows[:, 0], lengths, shard, cell.dtype, folder)


def _write(
    batches: Iterable[Batch], shards: Words, ordinals: Words, lengths: Words, cell: int, dtype: Any, folder: Path
) -> Gathered:
    """Write a record shard and add up its content, a batch at a time: what is summed is still in the CPU's cache."""
    content, places, tokens = ContentSum(), ContentSum(), 0
    advance.begin(int(lengths.sum()))
    with (folder / "tokens").open("wb") as file:
        for first, last, batch in batches:
            file.write(batch.data)
            own = slice(first, last)
            more, more_places = _content(batch, lengths[own], shards[own], ordinals[own], cell, first)
            content, places, tokens = content + more, places + more_places, tokens + len(batch)
            advance.note_done(len(batch))
    write_provenance(shards, ordinals, lengths, dtype, folder)
    return Gathered(len(lengths), tokens, content, places)


def _content(
    tokens: NDArray[Any], lengths: Words, shards: Words, ordinals: Words, cell: int, first_place: int
) -> tuple[ContentSum, ContentSum]:
    """The content sums of records back to back: by origin, and by place in the cell."""
    lengths = np.ascontiguousarray(lengths)
    sums = token_sums(tokens, starts_of(lengths), lengths, np.zeros(len(lengths), np.uint64))
    places = np.arange(first_place, first_place + len(lengths), dtype=np.uint64)
    return placed_sum(sums, shards, ordinals), placed_sum(sums, cell, places)


def _batches(lengths: Words, read: Callable[[int, int], NDArray[Any]]) -> Iterator[Batch]:
    """Records of these lengths, about BATCH_TOKENS at a time; `read` gives the tokens [first, last) of all."""
    ends = np.cumsum(lengths, dtype=np.uint64)
    for first, last in runs(ends, BATCH_TOKENS):
        start = int(ends[first - 1]) if first else 0
        yield first, last, read(start, int(ends[last - 1]))


def _place(cell: ScatteredCell, places: NDArray[np.uint64], permuted: NDArray[Any]) -> None:
    """Read a slice in batches and copy each of its records to its place."""
    lengths = np.ascontiguousarray(cell.rows[:, 2])
    for first, last, tokens in _batches(lengths, cell.read):
        sizes = lengths[first:last]
        copy_slices(tokens, starts_of(sizes), sizes, permuted, places[first:last])
