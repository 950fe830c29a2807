"""The checks and counts that every exporter shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.tokens.token_shard import TokenArray


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
