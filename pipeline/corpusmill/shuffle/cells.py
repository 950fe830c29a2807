"""The shuffle of records: each draws a cell and a key, scatter groups a shard's by cell, gather orders a cell's by key.

In source order one cell is a shard, which gather copies unchanged, batch by batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError
from corpusmill.fingerprint import random_words
from corpusmill.kernels import advance
from corpusmill.kernels.content import ContentSum
from corpusmill.kernels.content_kernels import Words, placed_sum, token_sums
from corpusmill.kernels.mapping import release_pages
from corpusmill.kernels.slices import copy_slices, runs, starts_of
from corpusmill.tokens.records import Records, RecordsContent
from corpusmill.tokens.token_shard import write_provenance

MINIMUM_CELLS = 4  # so that a small dataset still spreads over a few workers
ROW_BYTES = 160  # per record, besides its tokens, while its cell is gathered: row, order, starts, lengths, provenance
SPREAD = 1.15  # cells differ in size by chance: five standard deviations of a cell of 1,100 records
PROCESS_BYTES = 216 << 20  # measured: an interpreter with numpy and compiled kernels, and one batch being read
LEAST_ROOM_BYTES = 32 << 20


def cells_needed(token_bytes: int, records: int, memory_bytes: int) -> int:
    """The number of cells with which a process that gathers one stays within `memory_bytes`.

    A budget below the base need of a process bounds only what a cell adds to it. The order of the records does not
    depend on the number (see cells_of).
    """
    room = memory_bytes - PROCESS_BYTES
    if room < LEAST_ROOM_BYTES:
        room = memory_bytes * 2 // 5
    needed = int((token_bytes + ROW_BYTES * records) * SPREAD)
    return max(MINIMUM_CELLS, -(-needed // room))


def draw_placements(
    seed: int | None, kind: str, shard: int, records: int, cells: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """(cell uint32[records], key uint64[records]) of the records 0, 1, 2, ... of one shard.

    Without a seed, for source order, the cell is 0 and the key is the record's number.
    The key of record i is word i of `random_words` of (seed, kind, shard).
    """
    if seed is None:
        return np.zeros(records, np.uint32), np.arange(records, dtype=np.uint64)
    words = random_words({"shuffle": kind, "seed": seed, "shard": shard})
    keys = np.asarray(words.random_raw(records), np.uint64).reshape(-1)
    return cells_of(keys, cells), keys


def cells_of(keys: NDArray[np.uint64], cells: int) -> NDArray[np.uint32]:
    """The cell of each key: its upper 32 bits scaled to [0, cells), exact in 64-bit integers, bias below cells / 2^32.

    It is monotonic in the key, so cell 0, cell 1, ... each ordered by key are all records ordered by key.
    """
    return (((keys >> np.uint64(32)) * np.uint64(cells)) >> np.uint64(32)).astype(np.uint32)


BATCH_TOKENS = 1 << 19
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Scattered:
    """The totals of one scattered shard. `content` sums the records as written."""

    records: int
    tokens: int
    content: RecordsContent
    records_per_cell: list[int]
    tokens_per_cell: list[int]


def scatter_records(
    records: Records, *, seed: int | None, kind: str, shard: int, cells: int, folder: Path
) -> Scattered:
    """Write one shard's records grouped by cell (format: the room's docstring).

    The shard is read sequentially in batches. The tokens per cell are known in advance, so a batch's part of a cell is
    written directly to its place in the file.
    """
    placed, keys = draw_placements(seed, kind, shard, len(records.ordinals), cells)
    order = np.argsort(placed, kind="stable")
    with (folder / "rows").open("wb") as file:
        for first in range(0, len(order), BATCH_ROWS):
            chosen = order[first : first + BATCH_ROWS]
            columns = (records.ordinals[chosen], keys[chosen], records.lengths[chosen])
            file.write(np.stack(columns, axis=1).astype("<u8", copy=False).data)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(placed, minlength=cells))])
    token_ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(records.lengths[order], dtype=np.uint64)])[bounds]
    del keys, order
    (folder / "cells").write_bytes(np.stack([bounds.astype(np.uint64), token_ends], axis=1).astype("<u8").data)

    content = RecordsContent()
    advance.begin(int(token_ends[-1]))
    free = token_ends[:-1].astype(np.int64)  # where in the file each cell's next record goes
    with (folder / "tokens").open("wb") as file:
        for first, last in runs(np.cumsum(records.lengths, dtype=np.uint64), BATCH_TOKENS):
            chosen = first + np.argsort(placed[first:last], kind="stable")
            tokens = records.copy(chosen)
            release_pages(records.source)
            filled = np.bincount(placed[chosen], weights=records.lengths[chosen], minlength=cells).astype(np.int64)
            start = 0
            for cell in np.flatnonzero(filled).tolist():
                file.seek(int(free[cell]) * tokens.itemsize)
                file.write(tokens[start : start + filled[cell]].data)
                start += int(filled[cell])
            free += filled
            content += records.content(chosen, tokens, shard)
            advance.note_done(len(tokens))
    (folder / "scatter.json").write_text(json.dumps({"dtype": records.source.dtype.name}) + "\n")
    return Scattered(
        int(bounds[-1]), int(token_ends[-1]), content, np.diff(bounds).tolist(), np.diff(token_ends).tolist()
    )


@dataclass(frozen=True)
class ScatteredCell:
    """One cell's slice of a scatter file: rows uint64 (n, 3) of ordinal, key, tokens; tokens are read on demand.

    `compare(name of a file, first byte, last)` raises if those bytes changed since they were written; the file stays in
    place during the `with`.
    """

    path: Path
    dtype: np.dtype[Any]
    first_token: int
    tokens: int
    rows: NDArray[np.uint64]
    compare: Callable[[str, int, int], AbstractContextManager[Any]]

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Tokens [first, last) of the slice, copied: a mapping would count towards this process's memory.

        CorruptDataError if the file ends before them.
        """
        offset = (self.first_token + first) * self.dtype.itemsize
        with self.compare(self.path.name, offset, offset + (last - first) * self.dtype.itemsize):
            records = np.fromfile(self.path, self.dtype, last - first, offset=offset)
        if len(records) != last - first:
            raise CorruptDataError(
                "shuffle.scatter_truncated: a scatter file is shorter than its index says",
                where=self.path,
                expected=f"{last - first:,} tokens from byte {offset:,} on",
                got=f"{len(records):,} tokens",
                next_step="remove the folder and run again",
            )
        return records


def open_scattered(
    folder: Path,
    cell: int,
    compare: Callable[[str, int, int], AbstractContextManager[Any]] = lambda _name, _first, _last: nullcontext(),
) -> ScatteredCell:
    """One cell's slice of a scatter file; see ScatteredCell for `compare`."""
    with compare("scatter.json", 0, 1):
        dtype = np.dtype(json.loads((folder / "scatter.json").read_text())["dtype"]).newbyteorder("<")
    with compare("cells", 16 * cell, 16 * cell + 32):
        bounds = np.fromfile(folder / "cells", "<u8", 4, offset=16 * cell).tolist()
    first_row, first_token, last_row, last_token = bounds
    with compare("rows", 24 * first_row, 24 * last_row):
        rows = np.fromfile(folder / "rows", "<u8", 3 * (last_row - first_row), offset=24 * first_row).reshape(-1, 3)
    return ScatteredCell(folder / "tokens", dtype, first_token, last_token - first_token, rows, compare)


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
