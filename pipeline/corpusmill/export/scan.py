"""Checks of tokens that Megatron's and Nanoset's verifiers share: ids in the vocabulary, special tokens in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.export.files import fault
from corpusmill.export.framing import Framing
from corpusmill.tokens.token_shard import TokenArray

BLOCK_TOKENS = 1 << 22
BLOCK_DOCUMENTS = 1 << 16
"""Verifiers read this much at a time: 16 MB of tokens, under 2 MB of index."""


def scan_ids(path: Path, tokens: TokenArray, vocabulary_size: int, *, data_offset: int = 0) -> None:
    """VerificationError at the first of `tokens` that is not below `vocabulary_size`.

    `data_offset` is the byte of `path` at which token 0 begins. Negative int32 ids are caught as huge unsigned ones.
    """
    unsigned = np.dtype(f"<u{tokens.dtype.itemsize}")
    for first in range(0, tokens.size, BLOCK_TOKENS):
        block = tokens[first : first + BLOCK_TOKENS].view(unsigned)
        if int(block.max()) >= vocabulary_size:
            place = int(np.argmax(block >= vocabulary_size))
            raise fault(
                f"export.id_not_in_vocabulary: token {first + place} is not in the vocabulary",
                path,
                data_offset + (first + place) * unsigned.itemsize,
                expected=f"ids below {vocabulary_size}",
                got=int(tokens[first + place]),
            )


def scan_special_tokens(
    path: Path,
    tokens: TokenArray,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    framing: Framing,
    first_document: int,
) -> None:
    """VerificationError at the first document, of those in [starts, ends), without its special tokens."""
    for special, places, does in ((framing.eod_id, ends - 1, "end"), (framing.bos_id, starts, "begin")):
        wrong = tokens[places] != special if special is not None else np.zeros(1, np.bool_)
        if bool(wrong.any()):
            document = int(np.argmax(wrong))
            place = int(places[document])
            raise fault(
                f"export.special_token_missing: document {first_document + document} does not {does} with its special"
                " token",
                path,
                place * tokens.dtype.itemsize,
                expected=special,
                got=int(tokens[place]),
            )
