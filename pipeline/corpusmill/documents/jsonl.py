"""Reads JSON lines: one object per line, its text under one key (field_names.py).

Every line is read whole and strictly by RFC 8259, so an accepted line is valid JSON in every field by orjson's
definition: valid UTF-8, no number beyond float64, at most 1,024 levels. A line that is not a document is never dropped
silently: it becomes a `Rejection` with one of nine reasons. Accepted: a last line without newline, ``\\r\\n``, a UTF-8
byte order mark at the start of the file, and duplicate keys (the last one counts, as in most parsers).

Price: one pass, single-threaded, little more than orjson and `str.encode` (benchmarks/json_lines.py). orjson needs up
to forty times a line's bytes, so it reads short lines, and long ones are read by msgspec without being built
(json_members): memory is about six blocks, or four times the longest line if that is more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
import orjson

from corpusmill.documents.batch import LONGEST_FIELDS_BYTES, DocumentBatch, Rejection, RejectionReason, batch_of
from corpusmill.documents.field_names import field_of, get_field
from corpusmill.documents.json_members import (
    LONGEST_PARSED_BYTES,
    find_value,
    is_json,
    is_utf8,
    is_within_limits,
    values_of,
)
from corpusmill.documents.json_strings import QUOTE, Line, decode
from corpusmill.documents.lines import BLOCK_BYTES, LONGEST_LINE_BYTES, LineBlock, read_line_blocks
from corpusmill.kernels.content_kernels import text_hashes

NO_NUMBER = re.compile(rb"-?\b(?:NaN|Infinity)\b")
_BLANK = re.compile(rb"[ \t\r\n]*")


def read_documents(
    stream: BinaryIO,
    *,
    source: str,
    text_field: str,
    id_field: str,
    fields: Sequence[str] = (),
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
) -> Iterator[DocumentBatch]:
    """Yields the documents of a decompressed `stream` in order, a batch for every `block_bytes` or so.

    `source` names the file in the batches; `text_field`, `id_field` and `fields` are names of fields (field_names.py).
    The documents do not depend on `block_bytes`, only the batches do. Errors of the stream (truncated, corrupt) pass
    through.
    """
    first_line = 0
    for block in read_line_blocks(stream, block_bytes=block_bytes, longest_line_bytes=longest_line_bytes):
        if block.cut:
            rejections = [Rejection(RejectionReason.LINE_TOO_LONG, first_line, block.data)]
            batch = batch_of(source, [], [], np.empty(0, np.uint64), block.stream_bytes, rejections)
        else:
            batch = _parse(block, source, text_field, id_field, fields, first_line)
        first_line += batch.lines
        yield batch


def _parse(
    block: LineBlock, source: str, text_field: str, id_field: str, fields: Sequence[str], first_line: int
) -> DocumentBatch:
    texts: list[bytes] = []
    ids: list[bytes] = []
    line_numbers: list[int] = []
    asked: list[bytes] = []
    spans: list[tuple[int, int]] = []
    rejections: list[Rejection] = []
    view = memoryview(block.data)
    for number, (start, end) in enumerate(block.spans(first=first_line == 0), start=first_line):
        parse = _parse_line if end - start <= LONGEST_PARSED_BYTES else _parse_long_line
        line = view[start:end]
        document = parse(line, text_field, id_field)
        if document is None:
            rejections.append(Rejection(why_rejected(line, text_field), number, line.tobytes()))
            continue
        if fields:
            values = _fields(line, fields)
            if len(values) > LONGEST_FIELDS_BYTES:
                rejections.append(Rejection(RejectionReason.FIELD_TOO_LONG, number, line.tobytes()))
                continue
            asked.append(values)
        texts.append(document[0])
        ids.append(document[1])
        line_numbers.append(number)
        spans.append((start, end))
    starts, ends = np.array(spans, np.uint64).reshape(-1, 2).T
    hashes = text_hashes(np.frombuffer(block.data, np.uint8), starts, ends)[0]
    numbers = np.array(line_numbers, np.uint64)
    return batch_of(source, texts, ids, numbers, block.stream_bytes, rejections, hashes, asked)


def _fields(line: Line, fields: Sequence[str]) -> bytes:
    """The JSON object of some fields of a line that is a document, without those that it lacks."""
    found = ((name, values_of(line, name, [(0, len(line))])[0]) for name in fields)
    return b"{" + b",".join(orjson.dumps(name) + b":" + value for name, value in found if value is not None) + b"}"


def _parse_line(line: Line, text_field: str, id_field: str) -> tuple[bytes, bytes] | None:
    """(text, id) of a line; None if it is not a document."""
    try:
        record = orjson.loads(line)
        if "." in text_field or "." in id_field:
            text, identity = field_of(record, text_field).encode(), get_field(record, id_field)
        else:
            text, identity = record[text_field].encode(), record.get(id_field)
    except (ValueError, KeyError, TypeError, AttributeError):  # in the order of `why_rejected`
        return None
    if identity is None or type(identity) is str:
        return text, (identity or "").encode()
    return text, _identity(line, id_field)


def _parse_long_line(line: Line, text_field: str, id_field: str) -> tuple[bytes, bytes] | None:
    """The same for a long line, without building its other members."""
    try:
        place = find_value(line, text_field)
        if place is None or line[place[0]] != QUOTE:
            return None
        rest = (line[: place[0]], line[place[1] :])
        if not is_utf8(*rest) or not is_within_limits(*rest):
            return None
        return decode(line, *place), _identity(line, id_field)
    except ValueError:
        return None


def _identity(line: Line, id_field: str) -> bytes:
    place = find_value(line, id_field)
    if place is None or line[place[0]] == ord("n"):
        return b""
    return decode(line, *place) if line[place[0]] == QUOTE else bytes(line[slice(*place)])


def why_rejected(line: Line, text_field: str) -> RejectionReason:
    """Why a line is rejected; TEXT_NOT_A_STRING if no other reason applies."""
    if _BLANK.fullmatch(line):
        return RejectionReason.BLANK_LINE
    if not is_json(line):
        return _why_unparsable(line)
    try:
        place = find_value(line, text_field)
    except ValueError:
        return RejectionReason.NOT_AN_OBJECT
    if place is None:
        return RejectionReason.MISSING_TEXT
    return RejectionReason.TEXT_NOT_A_STRING


def _why_unparsable(line: Line) -> RejectionReason:
    if not is_utf8(line):
        return RejectionReason.INVALID_UTF8
    # No other characters' escapes begin with D8 to DF, and none of 00 to 0F is half a pair.
    whole = bytes(line).replace(rb"\\", b"//").replace(rb"\ud", rb"\u0").replace(rb"\uD", rb"\u0")
    return RejectionReason.LONE_SURROGATE if is_json(whole) else RejectionReason.BROKEN_JSON


def has_nan(line: bytes) -> bool:
    """Whether a line would be JSON but for NaN or Infinity, which Python's json writes for floats."""
    return bool(NO_NUMBER.search(line)) and is_json(NO_NUMBER.sub(b"0", line))
