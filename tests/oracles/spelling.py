"""A vocabulary's arrays as plain bytes."""

from __future__ import annotations

from corpusmill.tokens.ranks import Spelling


def words_of(spelling: Spelling) -> list[bytes]:
    """The bytes of every token."""
    text = spelling.text.tobytes()
    return [text[start : start + length] for start, length in zip(spelling.starts, spelling.lengths, strict=True)]
