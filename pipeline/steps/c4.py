"""Line rules of C4: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.2.

Lines stay that end in a full stop, an exclamation mark, a question mark or a closing quotation mark, have at least five
words, and do not speak of JavaScript. A document goes that has *lorem ipsum* or a curly bracket (code), or whose lines
that stay have fewer than three sentences. The paper counts sentences with a library; here one ends at `.`, `!` or `?`
before white space, a quotation mark or the end of a line. Its list of bad words is left to a step of your own.

    steps: [{use: "corpusmill.steps.c4:Lines"}]
"""

from __future__ import annotations

import re

from corpusmill.steps.answers import Answer, Document, Drop

ENDS = (".", "!", "?", '"', "\N{RIGHT DOUBLE QUOTATION MARK}")
SENTENCE_END = re.compile(r"[.!?]+(?=[\s\"\N{RIGHT DOUBLE QUOTATION MARK}]|$)")


class Lines:
    """The rules; the thresholds are the paper's."""

    def __init__(self, minimum_words: int = 5, minimum_sentences: int = 3) -> None:
        self.minimum_words, self.minimum_sentences = minimum_words, minimum_sentences

    def __call__(self, document: Document) -> Answer:
        if "{" in document.text:
            return Drop("curly bracket")
        if "lorem ipsum" in document.text.lower():
            return Drop("lorem ipsum")
        lines = [line for line in map(str.strip, document.text.split("\n")) if self._stays(line)]
        text = "\n".join(lines)
        if len(SENTENCE_END.findall(text)) < self.minimum_sentences:
            return Drop("too few sentences")
        return text

    def _stays(self, line: str) -> bool:
        return (
            line.endswith(ENDS)
            and not line.endswith("...")
            and len(line.split()) >= self.minimum_words
            and "javascript" not in line.lower()
        )
