"""What a reader of source files hands on: batches of documents, and what it had to leave out, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class RejectionReason(StrEnum):
    """Why a line of a source file is not a document. The strings are written to disk: never rename one."""

    BLANK_LINE = "blank_line"
    BROKEN_JSON = "broken_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_TEXT = "missing_text"
    TEXT_NOT_A_STRING = "text_not_a_string"
    INVALID_UTF8 = "invalid_utf8"
    LONE_SURROGATE = "lone_surrogate"
    LINE_TOO_LONG = "line_too_long"


@dataclass(frozen=True, slots=True)
class Rejection:
    """One line that is not a document.

    `line_number` is 0-based. `raw` is the line without its newline; of a line that is too long, only its beginning.
    """

    reason: RejectionReason
    line_number: int
    raw: bytes


@dataclass(frozen=True, slots=True, eq=False)
class DocumentBatch:
    """Consecutive lines of one source file, parsed.

    `texts`         one `bytes` a document: its text as UTF-8, verbatim
    `ids`           one `bytes` a document: its id as UTF-8; of an id that is not a string, its JSON as it stands in the
                    line; empty for a document without an id, or whose id is null
    `line_numbers`  uint64 (documents,): the 0-based line each document came from, ascending
    `rejections`    the lines in between that are not documents, ascending
    `line_bytes`    decompressed bytes that these lines took in the file, newlines and a byte order mark included, so
                    that the sum over a file's batches is the file's decompressed size
    """

    source: str
    texts: list[bytes]
    ids: list[bytes]
    line_numbers: NDArray[np.uint64]
    line_bytes: int
    rejections: list[Rejection]

    @property
    def lines(self) -> int:
        """Every line is a document or a rejection."""
        return len(self.texts) + len(self.rejections)
