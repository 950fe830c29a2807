"""Length and symbol rules of Gopher: Rae et al. 2021, "Scaling Language Models", appendix A.1.1, "Quality filtering".

A document is kept if it has 50 to 100,000 words of 3 to 10 characters on average, at most one `#` and at most one
ellipsis for ten words, fewer than 90 % of lines that begin with a bullet, at most 30 % of lines that end with an
ellipsis, letters in at least 80 % of its words, and two of the words *the be to of and that have with*. The paper does
not define words and bullets: here words are separated by white space, and bullets are `•`, `‣`, `-`, `*`.

    steps: [{use: "corpusmill.steps.gopher:Quality"}]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corpusmill.steps.answers import Batch, Reasons
from corpusmill.steps.text_kernels import (
    BULLETS,
    CHARACTERS,
    ELLIPSES,
    ELLIPSIS_LINES,
    FACTS,
    HASHES,
    LETTER_WORDS,
    LINES,
    STOP_WORDS,
    WORDS,
    character_table,
    stop_keys,
    word_facts,
)

BULLET_SIGNS = np.array([ord(sign) for sign in "•‣-*"], np.int64)
REASONS = (
    "too few words",
    "too many words",
    "word length",
    "symbols",
    "bullets",
    "ellipses at line ends",
    "words without letters",
    "too few stop words",
)


class Quality:
    """The rules; the thresholds are the paper's. A reason is the first rule that a document fails."""

    def __init__(
        self,
        minimum_words: int = 50,
        maximum_words: int = 100_000,
        minimum_word_length: float = 3,
        maximum_word_length: float = 10,
        maximum_symbols_per_word: float = 0.1,
        maximum_bullet_lines: float = 0.9,
        maximum_ellipsis_lines: float = 0.3,
        minimum_words_with_letters: float = 0.8,
        minimum_stop_words: int = 2,
    ) -> None:
        self.words = minimum_words, maximum_words
        self.word_length = minimum_word_length, maximum_word_length
        self.symbols_per_word = maximum_symbols_per_word
        self.bullet_lines, self.ellipsis_lines = maximum_bullet_lines, maximum_ellipsis_lines
        self.words_with_letters, self.stop_words = minimum_words_with_letters, minimum_stop_words

    def batch(self, batch: Batch) -> Reasons:
        """Which documents fail which rule."""
        facts = facts_of(batch)
        words, lines = facts[:, WORDS], facts[:, LINES]
        least, most = self.word_length
        length = facts[:, CHARACTERS] / np.maximum(words, 1)
        failed = [
            words < self.words[0],
            words > self.words[1],
            (words > 0) & ((length < least) | (length > most)),
            np.maximum(facts[:, HASHES], facts[:, ELLIPSES]) > self.symbols_per_word * words,
            (lines > 0) & (facts[:, BULLETS] >= self.bullet_lines * lines),
            facts[:, ELLIPSIS_LINES] > self.ellipsis_lines * lines,
            facts[:, LETTER_WORDS] < self.words_with_letters * words,
            facts[:, STOP_WORDS] < self.stop_words,
        ]
        return Reasons(REASONS, np.select(failed, np.arange(1, len(failed) + 1), 0))


def facts_of(batch: Batch) -> NDArray[np.int64]:
    """int64 (documents, FACTS): what word_facts counts."""
    facts = np.zeros((len(batch), FACTS), np.int64)
    text = np.ascontiguousarray(batch.text)
    word_facts(text.ctypes.data, batch.starts, batch.ends, character_table(), stop_keys(), BULLET_SIGNS, facts)
    return facts
