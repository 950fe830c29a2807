"""Repetition rules of Gopher: Rae et al. 2021, "Scaling Language Models", appendix A.1.1, table A1.

A document is dropped if too large a share of its lines or paragraphs are repeats, by number or by characters; if its
most frequent 2-, 3- or 4-gram takes too much of it; or if too much of it is in repeated 5- to 10-grams.
Lines are divided by line breaks, paragraphs by blank lines, words by white space. Shares of n-grams are of the
characters of all words. As in datatrove, the first occurrence of a line or an n-gram is not a repeat, and an n-gram
must occur at least twice to count as frequent.

    steps: [{use: "corpusmill.steps.repetition:Repetition"}]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corpusmill.steps.answers import Batch, Reasons
from corpusmill.steps.repetition_kernels import SHARES, repetition
from corpusmill.steps.text_kernels import character_table

RULES = {
    "repeated lines": 0.30,
    "repeated paragraphs": 0.30,
    "characters in repeated lines": 0.20,
    "characters in repeated paragraphs": 0.20,
    "most frequent 2-gram": 0.20,
    "most frequent 3-gram": 0.18,
    "most frequent 4-gram": 0.16,
    "repeated 5-grams": 0.15,
    "repeated 6-grams": 0.14,
    "repeated 7-grams": 0.13,
    "repeated 8-grams": 0.12,
    "repeated 9-grams": 0.11,
    "repeated 10-grams": 0.10,
}


class Repetition:
    """The rules; `maximum` replaces thresholds by name. A reason is the first rule that a document fails."""

    def __init__(self, maximum: dict[str, float] | None = None) -> None:
        if unknown := (maximum or {}).keys() - RULES:
            raise ValueError(f"no such rules: {', '.join(sorted(unknown))}")
        self.most = np.array(list({**RULES, **(maximum or {})}.values()))

    def batch(self, batch: Batch) -> Reasons:
        """Which documents fail which rule."""
        failed = shares_of(batch, self.most) > self.most
        return Reasons(tuple(RULES), np.where(failed.any(axis=1), failed.argmax(axis=1) + 1, 0))


def shares_of(batch: Batch, limits: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """float64 (documents, 13): the share of each of RULES. With `limits`, one for each of RULES, the first share of a
    document that is above its limit is right, and those before it are not above theirs; others may be 0."""
    shares = np.zeros((len(batch), SHARES))
    text = np.ascontiguousarray(batch.text)
    longest = int((batch.ends - batch.starts).max(initial=0))
    words, entries = longest // 2 + 2, 1 << (longest + 2).bit_length()
    hashes, grams = (np.empty(words, np.uint64) for _ in range(2))
    lengths, bounds, places, slots = (np.empty(words, np.int64) for _ in range(4))
    keys, marks, times = np.empty(entries, np.uint64), np.zeros(entries, np.int64), np.empty(2 * entries, np.int32)
    repetition(
        *(text.ctypes.data, batch.starts, batch.ends, character_table()),
        *(np.zeros(SHARES) if limits is None else limits, limits is None),
        *(hashes, lengths, bounds, grams, places, slots, keys, marks, times, shares),
    )
    return shares
