"""Framing: which special tokens surround the documents of a batch, and how documents without tokens are written.

A document is one sequence of tokens, or several (Megatron: a JSON list of texts, or sentences). Sequences without
tokens are dropped; BOS opens a document's first sequence, EOD ends its last.

    documents       a a a | b b, c | - | d              (-: no tokens; b b, c: one document of two sequences)
    skip            a a a # b b c # d #                 lengths 4 2 2 2     boundaries 0 1 3 4      - is left out
    boundary        the same tokens                     lengths 4 2 2 2     boundaries 0 1 3 3 4    - is a repeated one
    eod             a a a # b b c # # d #               lengths 4 2 2 1 2   boundaries 0 1 3 4 5    - is EOD alone

Source: Megatron-LM tools/preprocess_data.py (boundary; BigScience's version: skip), tools/preprocess_data_fast.py and
datatrove's DocumentTokenizer (eod).

Everything is array arithmetic but the copy of the sequences to their places, a memcpy each (kernels/slices.py).
One core frames 1,300 million tokens of 4 bytes a second in documents of 2,000 tokens, and 640 million in documents of
50. Price: 2 or 4 B a token for the result, 60 B a document.

Also the checks and counts that every writer shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.lazy import lazily
from corpusmill.tokens.token_shard import Batch, TokenArray, document_lengths

with lazily:
    from corpusmill.kernels import content_kernels, slices

if TYPE_CHECKING:
    from corpusmill.kernels.content_kernels import Words


def ignore_sums(_sums: NDArray[np.uint64]) -> None:
    """The default of `written`: ignores the token sums."""


def no_counts() -> dict[str, int]:
    return {"documents": 0, "documents_empty": 0, "tokens": 0, "special_tokens": 0, "bytes": 0}


def refuse_ids_beyond(vocabulary_size: int, tokens: TokenArray, dtype: np.dtype[Any], where: str) -> None:
    """CorruptDataError when a token id is not in the vocabulary, with the id and what `dtype` would make of it.

    NumPy narrows silently (70000 as uint16 is 4464), so this is called before every narrowing.
    """
    if tokens.size == 0 or int(tokens.max()) < vocabulary_size:
        return
    position = int(np.argmax(tokens >= vocabulary_size))
    token_id = int(tokens.ravel()[position])
    raise CorruptDataError(
        f"export.id_outside_vocabulary: token id {token_id} is not in a vocabulary of {vocabulary_size}",
        where=f"{where}, token {position}",
        expected=f"ids below {vocabulary_size}",
        got=f"{token_id}, which {dtype.name} would hold as {int(np.array(token_id).astype(dtype))}",
        next_step="check that the tokens were made by the tokenizer that this export names",
    )


def refuse_special_beyond(vocabulary_size: int, special_id: int) -> None:
    """ConfigError when the special token itself is outside the vocabulary."""
    if not 0 <= special_id < vocabulary_size:
        raise ConfigError(
            "export.special_outside_vocabulary: the special token is not in the vocabulary",
            expected=f"an id from 0 to {vocabulary_size - 1}",
            got=special_id,
            next_step="take the id of the end-of-text token from the tokenizer, and its size with added tokens",
        )


EmptyDocuments: TypeAlias = Literal["skip", "boundary", "eod"]
SequenceBatch: TypeAlias = tuple[TokenArray, NDArray[np.uint64], NDArray[np.uint64]]
"""(tokens, ends of sequences, ends of documents): the last counts sequences, uint64, cumulative within the batch."""

LONGEST_SEQUENCE_TOKENS = (1 << 31) - 1
"""Megatron's index holds a length as int32."""


@dataclass(frozen=True, slots=True)
class Framing:
    """The tokens around every document; None: no such token."""

    eod_id: int | None
    bos_id: int | None = None
    empty_documents: EmptyDocuments = "skip"

    @property
    def special_tokens(self) -> int:
        """Special tokens of a document."""
        return (self.eod_id is not None) + (self.bos_id is not None)

    def refuse_unfit(self, vocabulary_size: int) -> None:
        """ConfigError for a special token outside the vocabulary, and for `eod` without an EOD."""
        for special in (self.eod_id, self.bos_id):
            if special is not None:
                refuse_special_beyond(vocabulary_size, special)
        if self.empty_documents == "eod" and self.eod_id is None:
            raise ConfigError(
                "framing.empty_document_without_eod: a document without tokens cannot become EOD if no EOD is written",
                expected="empty_documents: skip or boundary, or an EOD",
                got="empty_documents: eod, no EOD",
            )


@dataclass(frozen=True, slots=True)
class Framed:
    """A batch with its special tokens.

    `lengths` int64: of the sequences, special tokens included. `sequences` int64: of each document that is kept; 0 only
    under `boundary`. `documents_empty` counts documents without tokens, kept or not.
    """

    tokens: TokenArray
    lengths: NDArray[np.int64]
    sequences: NDArray[np.int64]
    special_tokens: int
    documents_empty: int

    @property
    def document_lengths(self) -> NDArray[np.int64]:
        """int64 (documents,): tokens of each document that is kept."""
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths)))
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.sequences)))
        return np.diff(ends[bounds])

    def token_sums(self, framing: Framing) -> Words:
        """uint64 (2, documents): the token sum of each document that is kept, without its special tokens."""
        lengths = self.document_lengths
        bare = (lengths - framing.special_tokens * (lengths > 0)).astype(np.uint64)
        starts = (np.cumsum(lengths) - lengths + (framing.bos_id is not None) * (lengths > 0)).astype(np.uint64)
        return content_kernels.token_sums(self.tokens, starts, bare, np.zeros(len(bare), np.uint64))

    def add_to(self, counts: dict[str, int]) -> None:
        """Add this batch to a writer's counts; `tokens` are document tokens, without the special ones."""
        counts["documents"] += self.sequences.size
        counts["documents_empty"] += self.documents_empty
        counts["tokens"] += self.tokens.size - self.special_tokens
        counts["special_tokens"] += self.special_tokens


def frame(
    batch: Batch | SequenceBatch,
    framing: Framing,
    *,
    dtype: np.dtype[Any],
    vocabulary_size: int,
    first_document: int = 0,
) -> Framed:
    """The batch as `dtype` with its special tokens; `first_document` is the batch's first ordinal, for messages.

    Raises CorruptDataError as `document_lengths` and `refuse_ids_beyond` do, and for a sequence of 2^31 tokens or more.
    """
    tokens, ends, *rest = batch
    lengths = document_lengths((tokens, ends), first_document)
    refuse_ids_beyond(vocabulary_size, tokens, dtype, f"the batch that begins at document {first_document}")
    documents = rest[0].size if rest else lengths.size
    owners = _owners(lengths.size, rest[0]) if rest else np.arange(documents)
    filled = lengths > 0
    lengths, owners = lengths[filled], owners[filled]
    sequences = np.bincount(owners, minlength=documents)
    empty = np.flatnonzero(sequences == 0)
    if framing.empty_documents == "eod" and empty.size:
        owners = np.concatenate((owners, empty))
        order = np.argsort(owners, kind="stable")
        lengths, owners = np.concatenate((lengths, np.zeros(empty.size, np.int64)))[order], owners[order]
        sequences[empty] = 1
    elif framing.empty_documents == "skip":
        sequences = sequences[sequences > 0]
    changes = owners[1:] != owners[:-1]
    opens, closes = np.ones(owners.size, np.bool_), np.ones(owners.size, np.bool_)
    opens[1:], closes[:-1] = changes, changes
    lengths = lengths + (framing.bos_id is not None) * opens + (framing.eod_id is not None) * closes
    _refuse_too_long(lengths, owners, first_document)
    stream = _placed(tokens, lengths, framing, dtype, opens, closes)
    return Framed(stream, lengths, sequences, int(stream.size) - tokens.size, int(empty.size))


def write_framed(
    data: BinaryIO,
    batches: Iterable[Batch | SequenceBatch],
    framing: Framing,
    counts: dict[str, int],
    dtype: np.dtype[Any],
    vocabulary_size: int,
    written: Callable[[Words], None],
) -> Iterator[Framed]:
    """Write the tokens of all batches to `data`, the token file of every format of whole documents.

    Yields each batch as it was written, then adds it to `counts`; `written` is given the token sums of its documents.
    Raises as `frame` does.
    """
    read = 0
    for batch in batches:
        framed = frame(batch, framing, dtype=dtype, vocabulary_size=vocabulary_size, first_document=read)
        read += batch[-1].size
        data.write(framed.tokens.data)
        written(framed.token_sums(framing))
        yield framed
        framed.add_to(counts)


def _owners(sequences: int, document_ends: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The document of each sequence; CorruptDataError when the documents' ends do not describe the sequences."""
    counts = np.diff(document_ends, prepend=np.uint64(0)).astype(np.int64)
    if (counts < 0).any() or int(counts.sum()) != sequences:
        raise CorruptDataError(
            "export.batch_documents: the documents of a batch do not describe its sequences",
            expected=f"non-decreasing ends that reach {sequences} sequences",
            got=f"{document_ends[-3:].tolist()} at their end",
        )
    return np.repeat(np.arange(counts.size), counts)


def _refuse_too_long(lengths: NDArray[np.int64], owners: NDArray[np.int64], first_document: int) -> None:
    if lengths.size and int(lengths.max()) > LONGEST_SEQUENCE_TOKENS:
        longest = int(lengths.argmax())
        raise CorruptDataError(
            "export.sequence_too_long: a sequence is too long for an int32 length",
            where=f"document {first_document + int(owners[longest])}",
            expected=f"at most {LONGEST_SEQUENCE_TOKENS} tokens, special tokens included",
            got=f"{int(lengths[longest])} tokens",
            next_step="split or reject documents of that length before tokenizing",
        )


def _placed(
    tokens: TokenArray,
    lengths: NDArray[np.int64],
    framing: Framing,
    dtype: np.dtype[Any],
    opens: NDArray[np.bool_],
    closes: NDArray[np.bool_],
) -> TokenArray:
    """`tokens`, with EOD at the end of every sequence that closes a document, BOS where one opens it."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    opened = opens if framing.bos_id is not None else np.zeros(lengths.size, np.bool_)
    closed = closes if framing.eod_id is not None else np.zeros(lengths.size, np.bool_)
    bare = (lengths - opened - closed).astype(np.uint64)
    stream = np.empty(int(ends[-1]) if ends.size else 0, dtype)
    source = np.ascontiguousarray(tokens, tokens.dtype if tokens.itemsize == stream.itemsize else dtype)
    slices.copy_slices(source, slices.starts_of(bare), bare, stream, (starts + opened).astype(np.uint64))
    for special, places in ((framing.eod_id, ends[closed] - 1), (framing.bos_id, starts[opened])):
        if special is not None:
            stream[places] = special
    return stream
