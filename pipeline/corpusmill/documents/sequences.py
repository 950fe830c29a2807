"""Reads JSON lines whose text is a string or a list of strings, under one of several keys of the line's object.

    {"text": ["first part", "", "second part"], "title": "one string"}     text: 3 sequences, title: 1

Every requested key must hold text in every line, so that the documents of all keys stay aligned; other lines are
rejected. Lines and valid JSON are defined as in jsonl.py.

Price: as jsonl.py, and a Python step per sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.documents.batch import DocumentBatch, Rejection, RejectionReason, batch_of
from corpusmill.documents.field_names import MISSING, field_of, get_field
from corpusmill.documents.jsonl import why_rejected
from corpusmill.documents.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LONGEST_LINE_BYTES, LineBlock, read_line_blocks

CharacterRanges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class SequenceBatch:
    """Consecutive lines of one source file.

    `texts`         one `bytes` per sequence: its text as UTF-8
    `sequences`     uint64 (documents,): how many sequences each document has
    `no_loss`       [first, last) of characters of each document that are not trained on, None if its line lacks the
                    key; empty without a `ranges_key`
    `rejected`      the lines that are not documents, as a batch without documents
    """

    texts: list[bytes]
    sequences: NDArray[np.uint64]
    no_loss: list[CharacterRanges | None]
    rejected: DocumentBatch


@dataclass(frozen=True, slots=True)
class NumberedBlock:
    """A block of lines of `source`, and the number of the first of them."""

    source: str
    lines: LineBlock
    first_line: int


def numbered_blocks(stream: BinaryIO, *, source: str, block_bytes: int = BLOCK_BYTES) -> Iterator[NumberedBlock]:
    """All lines of a file in blocks, each of which `sequences_of` parses independently."""
    first_line = 0
    for block in read_line_blocks(stream, block_bytes=block_bytes, longest_line_bytes=LONGEST_LINE_BYTES):
        yield NumberedBlock(source, block, first_line)
        first_line += block.lines


def sequences_of(
    block: NumberedBlock, *, key: str, keys: Sequence[str] = (), ranges_key: str | None = None
) -> SequenceBatch:
    """The sequences under `key`, in order; all of `keys` must hold text.

    `ranges_key`: the key of a list of [first, last) character ranges of a text that is one string, as datatrove's
    `no_loss_ranges`; a line may lack it. Ranges beyond the text are malformed.
    """
    wanted = tuple(dict.fromkeys((key, *keys)))
    rejections: list[Rejection] = []
    lines: list[bytes] = []
    if block.lines.cut:
        rejections.append(Rejection(RejectionReason.LINE_TOO_LONG, block.first_line, block.lines.data))
    else:
        lines = block.lines.data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if block.first_line == 0 and lines[0].startswith(BYTE_ORDER_MARK):
            lines[0] = lines[0][len(BYTE_ORDER_MARK) :]
    texts: list[bytes] = []
    counts: list[int] = []
    no_loss: list[CharacterRanges | None] = []
    for number, line in enumerate(lines, block.first_line):
        try:
            record = orjson.loads(line)
            sequences = [_texts(field_of(record, key)) for key in wanted]
        except (ValueError, KeyError, TypeError, AttributeError):
            rejections.append(Rejection(_why(line, wanted), number, line))
            continue
        try:
            ranges = _ranges(record, ranges_key, sequences[0])
        except (ValueError, TypeError):
            rejections.append(Rejection(RejectionReason.MALFORMED_RANGES, number, line))
            continue
        texts += sequences[0]
        counts.append(len(sequences[0]))
        if ranges_key is not None:
            no_loss.append(ranges)
    rejected = batch_of(block.source, [], [], np.empty(0, np.uint64), block.lines.stream_bytes, rejections)
    return SequenceBatch(texts, np.array(counts, np.uint64), no_loss, rejected)


def _texts(value: Any) -> list[bytes]:
    if type(value) is str:
        return [value.encode()]
    if type(value) is not list:
        raise TypeError("neither a string nor a list")
    return [str.encode(text) for text in value]  # TypeError for anything but a string


def _ranges(record: dict[str, Any], key: str | None, texts: list[bytes]) -> CharacterRanges | None:
    """The ranges of a line, None if it lacks the key; TypeError or ValueError if they are malformed, or of a text of
    several sequences.
    """
    value = MISSING if key is None else get_field(record, key, MISSING)
    if value is MISSING:
        return None
    if not value and value in (None, []):
        return []
    if type(value) is not list or len(texts) != 1:
        raise TypeError("no list, or ranges of several texts")
    characters = len(texts[0].decode())
    ranges = [(first, last) for first, last in value]
    for first, last in ranges:
        if not (type(first) is type(last) is int and 0 <= first <= last <= characters):
            raise ValueError("no range of the text's characters")
    return ranges


def _why(line: bytes, keys: Sequence[str]) -> RejectionReason:
    """Why a line is rejected: of several keys, one without text may be missing."""
    reason = why_rejected(line, keys[0])
    if reason is RejectionReason.TEXT_NOT_A_STRING and any(
        get_field(orjson.loads(line), key, MISSING) is MISSING for key in keys
    ):
        return RejectionReason.MISSING_TEXT
    return reason
