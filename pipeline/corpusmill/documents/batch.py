"""Output of a reader of source files: batches of documents, and rejected lines with their reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from corpusmill.lazy import lazily

with lazily:
    from corpusmill.kernels import content_kernels


SEPARATOR = b"\xff"
"""Precedes every text; never occurs in UTF-8."""

LONGEST_FIELDS_BYTES = 1 << 20
"""Of the JSON of the fields that are asked for, of one document. Its values take up to forty times that in memory."""


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
    FIELD_TOO_LONG = "field_too_long"
    MALFORMED_RANGES = "malformed_ranges"


def malformed(reasons: Mapping[str, int]) -> int:
    """How many lines are malformed, of rejected ones by reason: blank lines are skipped and counted, and are not."""
    return sum(reasons.values()) - reasons.get(RejectionReason.BLANK_LINE.value, 0)


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
    """Consecutive lines of one source file, parsed. Documents lie back to back, as in a text shard.

    `text`          uint8 (documents + text_bytes,): before every document 0xFF, then its text as UTF-8, verbatim
    `bounds`        int64 (documents + 1,): document i is `text[bounds[i] + 1 : bounds[i + 1]]`
    `ids`           uint8 (id_bytes,): the documents' ids, UTF-8; an id that is not a string as its JSON in the line;
                        empty for a document without an id, or whose id is null
    `id_bounds`     int64 (documents + 1,): the id of document i is `ids[id_bounds[i] : id_bounds[i + 1]]`
    `line_numbers`  uint64 (documents,): the 0-based line each document came from, ascending
    `line_hashes`   uint64 (documents,): a hash of that line, without its newline and byte order mark; in parquet
                        files, a hash of the text
    `fields`        of each document the JSON object of the fields that are asked for, by their names (field_names.py),
                        without those that it lacks; () if none are asked for
    `rejections`    the lines in between that are not documents, ascending
    `line_bytes`    decompressed bytes that these lines took in the file, newlines and a byte order mark included, so
                    that the sum over a file's batches is the file's decompressed size
    """

    source: str
    text: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    ids: NDArray[np.uint8]
    id_bounds: NDArray[np.int64]
    line_numbers: NDArray[np.uint64]
    line_hashes: NDArray[np.uint64]
    line_bytes: int
    rejections: list[Rejection]
    fields: Sequence[bytes] = ()

    @property
    def documents(self) -> int:
        return len(self.line_numbers)

    @property
    def lines(self) -> int:
        """The number of lines: documents and rejections."""
        return self.documents + len(self.rejections)

    @property
    def text_lengths(self) -> NDArray[np.int64]:
        """int64 (documents,): the bytes of each text."""
        return np.diff(self.bounds) - 1

    def texts(self) -> list[bytes]:
        """Each text on its own."""
        whole = self.text.tobytes()
        return [whole[start + 1 : end] for start, end in pairwise(self.bounds.tolist())]

    def each_id(self) -> list[bytes]:
        """Each id on its own."""
        whole = self.ids.tobytes()
        return [whole[start:end] for start, end in pairwise(self.id_bounds.tolist())]


def batch_of(
    source: str,
    texts: Sequence[bytes],
    ids: Sequence[bytes],
    line_numbers: NDArray[np.uint64],
    line_bytes: int,
    rejections: list[Rejection],
    line_hashes: NDArray[np.uint64] | None = None,
    fields: Sequence[bytes] = (),
) -> DocumentBatch:
    """A batch of separate texts and ids, UTF-8; the default of `line_hashes` is the texts' hashes."""
    text = np.frombuffer(SEPARATOR.join((b"", *texts)), np.uint8)
    bounds, id_bounds = (np.zeros(len(texts) + 1, np.int64) for _ in range(2))
    np.cumsum([len(text) + 1 for text in texts], out=bounds[1:])
    np.cumsum([len(name) for name in ids], out=id_bounds[1:])
    whole_ids = np.frombuffer(b"".join(ids), np.uint8)
    if line_hashes is None:
        starts, ends = bounds[:-1].astype(np.uint64) + np.uint64(1), bounds[1:].astype(np.uint64)
        line_hashes = content_kernels.text_hashes(text, starts, ends)[0]
    return DocumentBatch(
        source, text, bounds, whole_ids, id_bounds, line_numbers, line_hashes, line_bytes, rejections, fields
    )
