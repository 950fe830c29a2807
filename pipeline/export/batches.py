"""Batches of documents, and the checks that every exporter shares.

A batch is `(tokens, ends)`: bare document tokens (uint16 or uint32, 1-D) and the cumulative exclusive token end of
each document within the batch (uint64). Megatron and Nanoset append a token to every document, Jaxformer prepends one;
framing.py puts them there.

    tokens   a a a b b        ends  3 5
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.export.files import TokenArray

Batch: TypeAlias = tuple[TokenArray, NDArray[np.uint64]]

LONGEST_TOKENS = (1 << 31) - 2
"""Megatron's index holds a length, EOD included, as int32. All formats share the limit: `.ds` and `.bin` of the same
documents are the same bytes, so a document must fit both or neither.
"""


def ignore_sums(_sums: NDArray[np.uint64]) -> None:
    """The default of `written`: ignores the token sums."""


def no_counts() -> dict[str, int]:
    return {"documents": 0, "documents_empty": 0, "tokens": 0, "special_tokens": 0, "bytes": 0}


def document_lengths(batch: Batch, first_document: int = 0) -> NDArray[np.int64]:
    """Tokens of each document (int64), after checking that the batch is one.

    Raises CorruptDataError for a wrong dtype or shape, decreasing ends, ends that do not match the tokens, and a
    document longer than LONGEST_TOKENS. `first_document` is the ordinal of the batch's first document, for the message.
    """
    tokens, ends = batch
    if tokens.ndim != 1 or tokens.dtype not in (np.uint16, np.uint32) or ends.ndim != 1 or ends.dtype != np.uint64:
        raise CorruptDataError(
            "a batch of documents has the wrong arrays",
            where=f"the batch that begins at document {first_document}",
            expected="1-D tokens of uint16 or uint32, 1-D ends of uint64",
            got=f"{tokens.ndim}-D tokens of {tokens.dtype}, {ends.ndim}-D ends of {ends.dtype}",
        )
    reach = int(ends[-1]) if ends.size else 0
    if reach != tokens.size or bool((ends[1:] < ends[:-1]).any()):
        raise CorruptDataError(
            "the ends of a batch do not describe its tokens",
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
            "a document is too long for an int32 length",
            where=f"document {first_document + document}",
            expected=f"at most {LONGEST_TOKENS} tokens and one special token",
            got=f"{int(lengths[document])} tokens",
            next_step="split or reject documents of that length before tokenizing",
        )
    return lengths


def refuse_ids_beyond(vocabulary_size: int, tokens: TokenArray, dtype: np.dtype[Any], where: str) -> None:
    """CorruptDataError when a token id is not in the vocabulary, with the id and what `dtype` would make of it.

    NumPy narrows silently (70000 as uint16 is 4464), so this is called before every narrowing.
    """
    if tokens.size == 0 or int(tokens.max()) < vocabulary_size:
        return
    position = int(np.argmax(tokens >= vocabulary_size))
    token_id = int(tokens.ravel()[position])
    raise CorruptDataError(
        f"token id {token_id} is not in a vocabulary of {vocabulary_size}",
        where=f"{where}, token {position}",
        expected=f"ids below {vocabulary_size}",
        got=f"{token_id}, which {dtype.name} would hold as {int(np.array(token_id).astype(dtype))}",
        next_step="check that the tokens were made by the tokenizer that this export names",
    )


def refuse_special_beyond(vocabulary_size: int, special_id: int) -> None:
    """ConfigError when the special token itself is outside the vocabulary."""
    if not 0 <= special_id < vocabulary_size:
        raise ConfigError(
            "the special token is not in the vocabulary",
            expected=f"an id from 0 to {vocabulary_size - 1}",
            got=special_id,
            next_step="take the id of the end-of-text token from the tokenizer, and its size with added tokens",
        )
