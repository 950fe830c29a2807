"""The token shard: written once per shard, read by everything after it. Anyone can read one with numpy alone::

import json, numpy as np
from pathlib import Path

folder = Path("work/web-en/tokenize/00017-9f2c3b5a7d1e4f60")
about = json.loads((folder / "token_shard.json").read_text())
ends = np.fromfile(folder / "ends", "<u8")                     # tokens up to the end of each document
tokens = np.memmap(folder / "tokens", np.dtype(about["dtype"]).newbyteorder("<"), "r")
document = lambda i: tokens[ends[i - 1] if i else 0 : ends[i]]  # ids of document i, no special tokens
stream = np.concatenate([np.append(document(i), about["eot_id"]) for i in range(len(ends))])
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError, TokenizerError
from corpusmill.tokens.packing import BOS, EOT
from corpusmill.tokens.tokenizer import Tokenizer

PADDING = "padding"
TOKEN_SHARD_FILES = ("token_shard.json", "tokens", "ends", "source_ends")
TOKEN_TYPES = ("uint16", "uint32")


@dataclass(frozen=True)
class TokenShard:
    """An opened token shard; `tokens` and `ends` are memory-mapped and read-only."""

    tokens: NDArray[Any]
    ends: NDArray[np.uint64]
    tokenizer: str
    tokenizer_sha256: str
    vocabulary_size: int
    eot_id: int
    pad_id: int
    bos_id: int | None = None
    tokenizer_revision: str = ""
    source_ends: NDArray[np.uint64] | None = None

    def special_id(self, role: str) -> int:
        """The id of EOT, BOS or padding; TokenizerError if the tokenizer has none."""
        number = {EOT: self.eot_id, BOS: self.bos_id, PADDING: self.pad_id}[role]
        if number is None:
            raise TokenizerError(
                f"the tokenizer {self.tokenizer} has no {role} token", next_step="name it as tokenizer.bos"
            )
        return number

    @property
    def documents(self) -> int:
        """Number of documents, those without tokens included."""
        return len(self.ends)

    def document(self, ordinal: int) -> NDArray[Any]:
        """The tokens of one document."""
        first = int(self.ends[ordinal - 1]) if ordinal else 0
        return self.tokens[first : int(self.ends[ordinal])]


def write_token_shard(
    batches: Iterable[tuple[NDArray[Any], NDArray[np.uint64]]],
    tokenizer: Tokenizer,
    folder: Path,
    source_ends: NDArray[np.uint64] | None = None,
) -> int:
    """Write (tokens, ends) batches, `ends` cumulative within each batch; returns the number of tokens in the shard.

    `source_ends`: documents up to the end of each source file; None: all are of one file.
    """
    description = {
        "dtype": str(tokenizer.dtype.newbyteorder("=")),
        "tokenizer": tokenizer.name,
        "sha256": tokenizer.sha256,
        "vocabulary_size": tokenizer.vocabulary_size,
        "eot_id": tokenizer.eot_id,
        "bos_id": tokenizer.bos_id,
        "pad_id": tokenizer.pad_id,
        "revision": tokenizer.revision,
    }
    return write_described_shard(batches, description, folder, source_ends)[0]


def write_described_shard(
    batches: Iterable[tuple[NDArray[Any], NDArray[np.uint64]]],
    description: dict[str, Any],
    folder: Path,
    source_ends: NDArray[np.uint64] | None = None,
) -> tuple[int, int]:
    """As write_token_shard, for the content of a token_shard.json; returns the numbers of tokens and documents.

    `token_shard.json` comes last: a folder without it is no token shard.
    """
    dtype = np.dtype(description["dtype"]).newbyteorder("<")
    documents = written = 0
    with (folder / "tokens").open("wb") as tokens_file, (folder / "ends").open("wb") as ends_file:
        for tokens, ends in batches:
            tokens_file.write(np.ascontiguousarray(tokens, dtype).data)
            ends_file.write((ends + np.uint64(written)).astype("<u8").data)
            written += tokens.size
            documents += len(ends)
    (folder / "source_ends").write_bytes(
        (np.array([documents], np.uint64) if source_ends is None else source_ends).astype("<u8").data
    )
    (folder / "token_shard.json").write_text(json.dumps(description, indent=1) + "\n")
    return written, documents


def open_token_shard(folder: Path) -> TokenShard:
    """Open a token shard; CorruptDataError if its files disagree."""
    try:
        description = json.loads((folder / "token_shard.json").read_bytes())
        shard = TokenShard(
            tokens=mapped(folder / "tokens", _token_type(description["dtype"])),
            ends=mapped(folder / "ends", "<u8"),
            tokenizer=description["tokenizer"],
            tokenizer_sha256=description["sha256"],
            vocabulary_size=description["vocabulary_size"],
            eot_id=description["eot_id"],
            pad_id=description["pad_id"],
            bos_id=description["bos_id"],
            tokenizer_revision=description["revision"],
            source_ends=mapped(folder / "source_ends", "<u8"),
        )
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise _disagree(folder, f"the files {', '.join(TOKEN_SHARD_FILES)}, whole", type(error).__name__) from error
    last = int(shard.ends[-1]) if shard.documents else 0
    if last != len(shard.tokens):
        raise _disagree(folder, f"{last:,} tokens, as its last end says", f"{len(shard.tokens):,} tokens")
    return shard


def _token_type(name: Any) -> Any:
    """The dtype of tokens in a file; ValueError unless it is one that tokens have."""
    if name not in TOKEN_TYPES:
        raise ValueError(name)
    return np.dtype(name).newbyteorder("<")


def _disagree(folder: Path, expected: str, got: str) -> CorruptDataError:
    return CorruptDataError(
        "a token shard's files disagree",
        where=folder,
        expected=expected,
        got=got,
        next_step="remove the folder and run again",
    )


def mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """A file as a read-only 1-D array; an empty file (which cannot be mapped) as an empty array."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))  # every slice of a memmap object costs 5 microseconds
