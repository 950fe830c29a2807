"""The token shard: written once per shard, read by everything after it. Format: see the room's docstring."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import CorruptDataError
from pipeline.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenShard:
    """An opened token shard; `tokens` and `ends` are memory-mapped and read-only."""

    tokens: NDArray[Any]
    ends: NDArray[np.uint64]
    tokenizer: str
    tokenizer_sha256: str
    vocabulary_size: int
    eot_id: int

    @property
    def documents(self) -> int:
        """Number of documents, those without tokens included."""
        return len(self.ends)

    def document(self, ordinal: int) -> NDArray[Any]:
        """The tokens of one document."""
        first = int(self.ends[ordinal - 1]) if ordinal else 0
        return self.tokens[first : int(self.ends[ordinal])]


def write_token_shard(
    batches: Iterable[tuple[NDArray[Any], NDArray[np.uint64]]], tokenizer: Tokenizer, folder: Path
) -> int:
    """Write (tokens, ends) batches, `ends` cumulative within each batch; returns the number of tokens written."""
    written = 0
    with (folder / "tokens").open("wb") as tokens_file, (folder / "ends").open("wb") as ends_file:
        for tokens, ends in batches:
            tokens_file.write(np.ascontiguousarray(tokens, tokenizer.dtype).data)
            ends_file.write((ends + np.uint64(written)).astype("<u8").data)
            written += tokens.size
    description = {
        "dtype": str(tokenizer.dtype.newbyteorder("=")),
        "tokenizer": tokenizer.name,
        "sha256": tokenizer.sha256,
        "vocabulary_size": tokenizer.vocabulary_size,
        "eot_id": tokenizer.eot_id,
    }
    (folder / "token_shard.json").write_text(json.dumps(description, indent=1) + "\n")
    return written


def open_token_shard(folder: Path) -> TokenShard:
    """Open a token shard; CorruptDataError if its files disagree."""
    description = json.loads((folder / "token_shard.json").read_text())
    ends = mapped(folder / "ends", "<u8")
    tokens = mapped(folder / "tokens", np.dtype(description["dtype"]).newbyteorder("<"))
    last = int(ends[-1]) if len(ends) else 0
    if last != len(tokens):
        raise CorruptDataError(
            "a token shard's files disagree",
            where=folder,
            expected=f"{last:,} tokens, as its last end says",
            got=f"{len(tokens):,} tokens",
            next_step="remove the folder and run again",
        )
    return TokenShard(
        tokens=tokens,
        ends=ends,
        tokenizer=description["tokenizer"],
        tokenizer_sha256=description["sha256"],
        vocabulary_size=description["vocabulary_size"],
        eot_id=description["eot_id"],
    )


def mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """A file as a read-only 1-D array; an empty file (which cannot be mapped) as an empty array."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
