"""Stage 1: one shard's records, grouped by cell."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError
from corpusmill.kernels import advance
from corpusmill.kernels.runs import runs
from corpusmill.kernels.slices import release_pages
from corpusmill.shuffle.placement import draw_placements
from corpusmill.tokens.records import Records, RecordsContent

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
            release_pages(records.shard.tokens)
            filled = np.bincount(placed[chosen], weights=records.lengths[chosen], minlength=cells).astype(np.int64)
            start = 0
            for cell in np.flatnonzero(filled).tolist():
                file.seek(int(free[cell]) * tokens.itemsize)
                file.write(tokens[start : start + filled[cell]].data)
                start += int(filled[cell])
            free += filled
            content += records.content(chosen, tokens, shard)
            advance.note_done(len(tokens))
    (folder / "scatter.json").write_text(json.dumps({"dtype": records.shard.tokens.dtype.name}) + "\n")
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
