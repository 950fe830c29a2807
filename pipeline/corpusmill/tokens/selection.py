"""Selects documents that are long enough: the others lose their tokens, so no record holds them.

Such a document keeps its place in the token shard, without tokens, like one that deduplication emptied: ordinals are
the text shard's still.

    ends before   5 7 7 20        minimum_tokens 3
    ends after    5 5 5 18        the second is too short; the third had none before
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Selection:
    """The minimum bytes of text and tokens of a document; 0: no minimum."""

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
