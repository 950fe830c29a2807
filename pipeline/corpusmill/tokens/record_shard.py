"""Record shards: records next to each other, each with its provenance. Format: see the room's docstring."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError
from corpusmill.tokens.token_shard import mapped

PROVENANCE = "records"


@dataclass(frozen=True)
class Provenance:
    """The provenance of a record shard's records.

    ends: uint64[n], cumulative, exclusive; shards and ordinals: uint64[n], the origin of each.
    """

    ends: NDArray[np.uint64]
    shards: NDArray[np.uint64]
    ordinals: NDArray[np.uint64]

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.ends)


@dataclass(frozen=True)
class RecordShard(Provenance):
    """An opened record shard; tokens: memory-mapped."""

    tokens: NDArray[Any]

    def slice(self, first: int, last: int) -> tuple[NDArray[Any], NDArray[np.uint64]]:
        """Records [first, last): their tokens and their ends, counted from the slice's first token."""
        start = self.ends[first - 1] if first else np.uint64(0)
        stop = self.ends[last - 1] if last > first else start
        return self.tokens[int(start) : int(stop)], self.ends[first:last] - start


def write_provenance(
    shards: NDArray[np.uint64],
    ordinals: NDArray[np.uint64],
    lengths: NDArray[np.uint64],
    dtype: np.dtype[Any],
    folder: Path,
) -> None:
    """Complete a record shard whose `tokens`, of `dtype`, are written: the provenance of its records."""
    (folder / PROVENANCE).write_bytes(np.stack([shards, ordinals, lengths], axis=1).astype("<u8").data)
    (folder / "record_shard.json").write_text(json.dumps({"dtype": dtype.name}) + "\n")


def open_record_shard(folder: Path) -> RecordShard:
    """Open a record shard; CorruptDataError if its files disagree."""
    dtype = np.dtype(json.loads((folder / "record_shard.json").read_text())["dtype"])
    rows = open_provenance(folder / PROVENANCE)
    tokens = mapped(folder / "tokens", dtype.newbyteorder("<"))
    stated = int(rows.ends[-1]) if rows.records else 0
    if stated != len(tokens):
        raise CorruptDataError(
            "record_shard.files_disagree: a record shard's files disagree",
            where=folder,
            expected=f"{stated:,} tokens, as stated by its rows",
            got=f"{len(tokens):,} tokens",
            next_step="remove the folder and run again",
        )
    return RecordShard(rows.ends, rows.shards, rows.ordinals, tokens)


def open_provenance(path: Path) -> Provenance:
    """Ends and origins of the records of a record shard; `path` is the file called PROVENANCE in its folder."""
    rows = mapped(path, "<u8").reshape(-1, 3)
    ends = np.cumsum(rows[:, 2], dtype=np.uint64)
    return Provenance(ends, np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1]))
