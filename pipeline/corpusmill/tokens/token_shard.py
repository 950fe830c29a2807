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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError, TokenizerError
from corpusmill.tokens.packing import BOS, EOT

if TYPE_CHECKING:
    from corpusmill.tokens.tokenizer import Tokenizer

PADDING = "padding"
TOKEN_SHARD_FILES = ("token_shard.json", "tokens", "ends", "source_ends")
TOKEN_TYPES = ("uint16", "uint32")


@dataclass(frozen=True)
class TokenShard:
    """An opened token shard; `tokens` and `ends` are memory-mapped and read-only.

    Under a budget (`as_shown`) a document is a showing of one: `shown` has its ordinal in the files, `first_tokens`
    where its tokens begin, and `ends` is cumulative over showings. Without them documents lie back to back.
    """

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
    shown: NDArray[np.uint64] | None = None
    first_tokens: NDArray[np.uint64] | None = None

    def special_id(self, role: str) -> int:
        """The id of EOT, BOS or padding; TokenizerError if the tokenizer has none."""
        number = {EOT: self.eot_id, BOS: self.bos_id, PADDING: self.pad_id}[role]
        if number is None:
            raise TokenizerError(
                f"tokenizer.no_special_token: the tokenizer {self.tokenizer} has no {role} token",
                next_step="name it as tokenizer.bos",
            )
        return number

    @property
    def documents(self) -> int:
        """Number of documents, those without tokens included."""
        return len(self.ends)

    @cached_property
    def starts(self) -> NDArray[np.uint64]:
        """uint64 (documents,): the position in `tokens` at which each document begins."""
        if self.first_tokens is not None:
            return self.first_tokens
        return np.concatenate([np.zeros(1, np.uint64), self.ends])[:-1]

    def in_files(self, ordinals: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """The ordinals in the shard's files of some documents."""
        return ordinals if self.shown is None else self.shown[ordinals]

    def as_shown(self, shown: NDArray[np.uint64], source_ends: NDArray[np.uint64]) -> TokenShard:
        """The shard with the documents `shown` (uint64, their ordinals) in that order, repetitions included.

        `source_ends`: showings up to the end of each source file in each epoch, as a shard's own. No token is copied.
        """
        lengths = np.diff(self.ends, prepend=np.uint64(0))[shown]
        ends = np.cumsum(lengths, dtype=np.uint64)
        return replace(self, ends=ends, source_ends=source_ends, shown=shown, first_tokens=self.starts[shown])

    def document(self, ordinal: int) -> NDArray[Any]:
        """The tokens of one document."""
        first = int(self.ends[ordinal - 1]) if ordinal else 0
        start = first if self.first_tokens is None else int(self.first_tokens[ordinal])
        return self.tokens[start : start + int(self.ends[ordinal]) - first]


def write_token_shard(
    batches: Iterable[tuple[NDArray[Any], NDArray[np.uint64]]],
    tokenizer: Tokenizer,
    folder: Path,
    source_ends: NDArray[np.uint64] | None = None,
) -> int:
    """Write (tokens, ends) batches, `ends` cumulative within each batch; returns the number of tokens in the shard.

    `source_ends`: documents up to the end of each source file; None: all documents are of one file.
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

    `token_shard.json` is written last: a folder without it is not a token shard.
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
        expected = f"the files {', '.join(TOKEN_SHARD_FILES)}, whole"
        raise _disagree(folder, expected, f"{type(error).__name__}: {error}") from error
    last = int(shard.ends[-1]) if shard.documents else 0
    if last != len(shard.tokens):
        raise _disagree(folder, f"{last:,} tokens, as stated by its last end", f"{len(shard.tokens):,} tokens")
    if shard.documents and bool((shard.ends[1:] < shard.ends[:-1]).any()):
        raise _disagree(folder, "ends that never fall", "an end below the one before it")
    return shard


def _token_type(name: Any) -> Any:
    """The dtype of tokens in a file; ValueError unless it is one that tokens have."""
    if name not in TOKEN_TYPES:
        raise ValueError(name)
    return np.dtype(name).newbyteorder("<")


def _disagree(folder: Path, expected: str, got: str) -> CorruptDataError:
    return CorruptDataError(
        "token_shard.files_disagree: a token shard's files disagree",
        where=folder,
        expected=expected,
        got=got,
        next_step="write it again: corpusmill tokenize; below a work folder, remove it and build again",
    )


def mapped(path: Path, dtype: Any) -> NDArray[Any]:
    """A file as a read-only 1-D array; an empty file (which cannot be mapped) as an empty array."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(str(path), dtype, mode="r"))  # every slice of a memmap object costs 5 microseconds
