"""The bytes of a vocabulary's tokens as arrays: a list of 100,000 bytes objects takes five times as long to make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Spelling:
    """Token i has the id `ids[i]` and the bytes `text[starts[i] : starts[i] + lengths[i]]`; the later ones hold for an
    id that comes twice.

    ids, starts, lengths  int64 (tokens,)
    text                  uint8; may hold bytes of no token
    """

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    text: NDArray[np.uint8]

    @classmethod
    def of(cls, ids: Sequence[int], words: Sequence[bytes]) -> Spelling:
        """The tokens with these ids and bytes."""
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        text = np.frombuffer(b"".join(words), np.uint8)
        return cls(np.fromiter(ids, np.int64, len(ids)), np.cumsum(lengths) - lengths, lengths, text)

    def and_then(self, later: Spelling) -> Spelling:
        """These tokens and `later` ones."""
        starts = np.concatenate([self.starts, later.starts + len(self.text)])

        def joined(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(self, name), getattr(later, name)])

        return Spelling(joined("ids"), starts, joined("lengths"), joined("text"))
