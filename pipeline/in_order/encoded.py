"""A source's texts as tokens, with the special tokens that go around them and a mask of what is trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.export.framing import EmptyDocuments, Framing, SequenceBatch
from corpusmill.in_order.source import Source
from corpusmill.tokens.tokenizer import Tokenizer

Encoded = tuple[SequenceBatch, NDArray[np.bool_] | None]
"""A batch, and of each of its tokens whether it is trained on (None: all are)."""


def encoded(source: Source, key: str, tokenizer: Tokenizer) -> Iterator[Encoded]:
    for batch in source.read(key):
        tokens, ends = tokenizer.encode(batch.texts)
        mask = None
        if any(batch.no_loss):
            mask = np.ones(tokens.size, np.bool_)
            first = np.concatenate(([0], np.cumsum(batch.sequences))).astype(np.int64)
            for document, ranges in enumerate(batch.no_loss):
                if ranges:
                    text = batch.texts[first[document]]
                    start = int(ends[first[document] - 1]) if first[document] else 0
                    mask[start : int(ends[first[document]])] = trained_tokens(text, ranges, tokenizer)
        yield (tokens, ends, np.cumsum(batch.sequences, dtype=np.uint64)), mask


def trained_tokens(text: bytes, no_loss: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Of each token of a text, whether it lies outside all character ranges [first, last).

    As datatrove has it: from the token that holds the first character up to, without it, the token that holds the
    character behind the last. A range that reaches the text's end goes to its last token (datatrove cuts the document
    there, EOS and all).
    """
    ends = tokenizer.reference.token_ends(text)
    trained = np.ones(ends.size, np.bool_)
    # Byte position of each character, and the text's end.
    starts = [0, *accumulate(len(character.encode()) for character in text.decode())]
    for first, last in no_loss:
        low, high = (
            int(np.searchsorted(ends, starts[place], side="right")) if place < len(starts) - 1 else ends.size
            for place in (first, last)
        )
        trained[low:high] = False
    return trained


def framing_for(tokenizer: Tokenizer, *, eod: bool, bos: bool, empty_documents: EmptyDocuments) -> Framing:
    """Framing by the tokenizer's own special tokens; TokenizerError for BOS where it has none."""
    if bos and tokenizer.bos_id is None:
        raise TokenizerError(f"the tokenizer {tokenizer.name} has no BOS token", next_step="name it with --bos-token")
    framing = Framing(tokenizer.eot_id if eod else None, tokenizer.bos_id if bos else None, empty_documents)
    framing.refuse_unfit(tokenizer.vocabulary_size)
    return framing
