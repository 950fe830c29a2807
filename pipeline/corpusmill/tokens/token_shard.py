"""What holds tokens: a batch of documents, as every stage and format streams them; token shards; record shards.

A batch is `(tokens, ends)`: bare document tokens (uint16 or uint32, 1-D) and the cumulative exclusive token end of each
document within the batch (uint64).

    tokens   a a a b b        ends  3 5

A token shard is written once per shard, and read by everything after it. Anyone can read one with numpy alone::

    import json, numpy as np
    from pathlib import Path

    folder = Path("work/web-en/tokenize/00017-9f2c3b5a7d1e4f60")
    about = json.loads((folder / "token_shard.json").read_text())
    ends = np.fromfile(folder / "ends", "<u8")                     # tokens up to the end of each document
    tokens = np.memmap(folder / "tokens", np.dtype(about["dtype"]).newbyteorder("<"), "r")
    document = lambda i: tokens[ends[i - 1] if i else 0 : ends[i]]  # ids of document i, no special tokens
    stream = np.concatenate([np.append(document(i), about["eot_id"]) for i in range(len(ends))])

A record shard holds records next to each other, each with its provenance (see the room's docstring).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError, TokenizerError
from corpusmill.kernels.mapping import mapped

if TYPE_CHECKING:
    from corpusmill.tokens.tokenizer import Tokenizer


TokenArray: TypeAlias = NDArray[np.integer[Any]]
"""A 1-D array of token ids: uint16, uint32, or Megatron's int32."""
Batch: TypeAlias = tuple[TokenArray, NDArray[np.uint64]]

LONGEST_TOKENS = (1 << 31) - 2
"""Megatron's index holds a length, EOD included, as int32. All formats share the limit: `.ds` and `.bin` of the same
documents are the same bytes, so a document must fit both or neither.
"""


def document_lengths(batch: Batch, first_document: int = 0) -> NDArray[np.int64]:
    """Tokens of each document (int64), after checking that the batch is one.

    Raises CorruptDataError for a wrong dtype or shape, decreasing ends, ends that do not match the tokens, and a
    document longer than LONGEST_TOKENS. `first_document` is the ordinal of the batch's first document, for the message.
    """
    tokens, ends = batch
    if tokens.ndim != 1 or tokens.dtype not in (np.uint16, np.uint32) or ends.ndim != 1 or ends.dtype != np.uint64:
        raise CorruptDataError(
            "export.batch_arrays: a batch of documents has the wrong arrays",
            where=f"the batch that begins at document {first_document}",
            expected="1-D tokens of uint16 or uint32, 1-D ends of uint64",
            got=f"{tokens.ndim}-D tokens of {tokens.dtype}, {ends.ndim}-D ends of {ends.dtype}",
        )
    reach = int(ends[-1]) if ends.size else 0
    if reach != tokens.size or bool((ends[1:] < ends[:-1]).any()):
        raise CorruptDataError(
            "export.batch_ends: the ends of a batch do not describe its tokens",
            where=f"the batch that begins at document {first_document}",
            expected=f"non-decreasing ends that reach {tokens.size} tokens",
            got=f"ends that reach {reach}" if reach != tokens.size else "ends that fall",
            next_step="verify the token shard that this batch was read from",
        )
    lengths = ends.astype(np.int64)
    lengths[1:] -= lengths[:-1].copy()
    if lengths.size and int(lengths.max()) > LONGEST_TOKENS:
        document = int(lengths.argmax())
        raise CorruptDataError(
            "export.document_too_long: a document is too long for an int32 length",
            where=f"document {first_document + document}",
            expected=f"at most {LONGEST_TOKENS} tokens and one special token",
            got=f"{int(lengths[document])} tokens",
            next_step="split or reject documents of that length before tokenizing",
        )
    return lengths


@dataclass(frozen=True)
class Selection:
    """Documents that are long enough: the minimum bytes of text and tokens of one; 0: no minimum.

    A shorter one keeps its place in the token shard, without tokens, like one that deduplication emptied: ordinals are
    the text shard's still.

        ends before   5 7 7 20        minimum_tokens 3
        ends after    5 5 5 18        the second is too short; the third had none before
    """

    minimum_bytes: int = 0
    minimum_tokens: int = 0

    def too_short(self, text_bytes: NDArray[np.uint64], tokens: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Of each document that has tokens: whether it is left out."""
        return (tokens > 0) & ((text_bytes < self.minimum_bytes) | (tokens < self.minimum_tokens))

    def apply(
        self, tokens: NDArray[Any], ends: NDArray[np.uint64], text_bytes: NDArray[np.uint64]
    ) -> tuple[NDArray[Any], NDArray[np.uint64], NDArray[np.bool_]]:
        """(tokens, ends) of a batch without documents that are too short, and a mask of these."""
        lengths = np.diff(ends, prepend=np.uint64(0))
        short = self.too_short(text_bytes, lengths)
        if not short.any():
            return tokens, ends, short
        kept = tokens[np.repeat(~short, lengths.astype(np.int64))]
        lengths[short] = 0
        return kept, np.cumsum(lengths, dtype=np.uint64), short


EOT, BOS, PADDING = "EOT", "BOS", "padding"
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
