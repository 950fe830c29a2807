"""Line rules of C4: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.2.

Lines are kept if they end in a full stop, an exclamation mark, a question mark or a closing quotation mark, have at
least five words, and do not mention JavaScript. A document is dropped if it has *lorem ipsum* or a curly bracket
(code), or if its kept lines have fewer than three sentences. The paper counts sentences with a library; here one ends
at `.`, `!` or `?` before white space, a quotation mark or the end of a line. Its list of bad words is left to a step of
your own.

    steps: [{use: "corpusmill.steps.c4:Lines"}]
"""

from __future__ import annotations

import numpy as np

from corpusmill.steps.answers import Answer, Batch, Drop
from corpusmill.steps.c4_kernels import CHANGED, CURLY, DUMMY, LOREM, SCRIPT, SHORT, plain_bytes, staying_lines
from corpusmill.steps.text_kernels import character_table

REASONS = {CURLY: "curly bracket", DUMMY: "lorem ipsum", SHORT: "too few sentences"}


class Lines:
    """The rules; the thresholds are the paper's."""

    def __init__(self, minimum_words: int = 5, minimum_sentences: int = 3) -> None:
        self.minimum_words, self.minimum_sentences = minimum_words, minimum_sentences

    def batch(self, batch: Batch) -> list[Answer]:
        """The answer for each document: its kept lines, or the reason why it is dropped."""
        text = np.ascontiguousarray(batch.text)
        fates, pieces = np.empty(len(batch), np.int8), np.empty(len(batch) + 1, np.int64)
        out = np.empty(int((batch.ends - batch.starts).sum()), np.uint8)
        staying_lines(
            *(text.ctypes.data, batch.starts, batch.ends, character_table(), plain_bytes(), SCRIPT, LOREM),
            *(self.minimum_words, self.minimum_sentences, fates, pieces, out),
        )
        answers: list[Answer] = [Drop(REASONS[fate]) if fate in REASONS else None for fate in fates.tolist()]
        for number in np.flatnonzero(fates == CHANGED).tolist():
            answers[number] = out[pieces[number] : pieces[number + 1]].tobytes().decode()
        return answers
