"""Reads JSON lines: one object a line, its text under one top-level key.

Every line is read whole and strictly by RFC 8259, so a line that is accepted here is valid JSON in every field: by a
compiled kernel, and what that does not vouch for by orjson. A line that is not a document is never dropped in silence:
it becomes a `Rejection` with one of eight reasons. Accepted: a last line without newline, ``\\r\\n``, a UTF-8 byte
order mark at the start of the file, and duplicate keys (the last one counts, as in most parsers).

Price: one pass, single-threaded, about twice as fast as orjson and `str.encode` (benchmarks/json_lines.py); memory is
about six blocks, or four times the longest line if that is more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.documents.batch import SEPARATOR, DocumentBatch, Rejection, RejectionReason, batch_of
from pipeline.documents.json_records import scan_records
from pipeline.documents.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LONGEST_LINE_BYTES, LineBlock, read_line_blocks
from pipeline.words import WORD_BYTES, address_of

JSON_WHITESPACE = b" \t\r\n"
SHORTEST_LINE = b'{"":""}\n'


def read_documents(
    stream: BinaryIO,
    *,
    source: str,
    text_field: str,
    id_field: str,
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
) -> Iterator[DocumentBatch]:
    """Yields the documents of a decompressed `stream` in order, a batch for every `block_bytes` or so.

    `source` names the file in the batches; `text_field` and `id_field` are keys of the line's object, taken literally.
    What comes out, taken together, does not depend on `block_bytes`. Errors of the stream (truncated, corrupt) pass
    through.
    """
    first_line = 0
    for block in read_line_blocks(stream, block_bytes=block_bytes, longest_line_bytes=longest_line_bytes):
        if block.cut:
            rejections = [Rejection(RejectionReason.LINE_TOO_LONG, first_line, block.data)]
            batch = batch_of(source, [], [], np.empty(0, np.uint64), block.stream_bytes, rejections)
        else:
            batch = _parse(block, source, text_field, id_field, first_line)
        first_line += batch.lines
        yield batch


def _parse(block: LineBlock, source: str, text_field: str, id_field: str, first_line: int) -> DocumentBatch:
    data, size = block.data, len(block.data)
    most_documents = size // len(SHORTEST_LINE) + 1
    text, ids = (np.empty(size + WORD_BYTES, np.uint8) for _ in range(2))
    bounds, id_bounds = (np.empty(most_documents + 1, np.int64) for _ in range(2))
    bounds[0] = id_bounds[0] = 0
    line_numbers = np.empty(most_documents, np.uint64)
    text_key, id_key = (np.frombuffer(key.encode(), np.uint8) for key in (text_field, id_field))
    lines, texts, identities = (address_of(one) for one in (data, text, ids))
    rejections: list[Rejection] = []
    at = len(BYTE_ORDER_MARK) if first_line == 0 and data.startswith(BYTE_ORDER_MARK) else 0
    line, documents = first_line, 0
    while at < size or line == first_line:  # nothing but a byte order mark is a line, too
        at, line, documents = scan_records(
            lines, texts, identities, at, size, line, text_key, id_key, documents, bounds, id_bounds, line_numbers
        )
        if at < size or line == first_line:
            end = data.find(b"\n", at)
            raw = data[at:end] if end >= 0 else data[at:]
            record = _parse_line(raw, text_field, id_field)
            if record is None:
                rejections.append(Rejection(why_rejected(raw, text_field), line, raw))
            else:
                _put(text, bounds, documents, SEPARATOR + record[0])
                _put(ids, id_bounds, documents, record[1])
                line_numbers[documents] = line
                documents += 1
            at, line = at + len(raw) + 1, line + 1
    return DocumentBatch(
        source,
        text[: bounds[documents]],
        bounds[: documents + 1],
        ids[: id_bounds[documents]],
        id_bounds[: documents + 1],
        line_numbers[:documents],
        block.stream_bytes,
        rejections,
    )


def _put(data: NDArray[np.uint8], bounds: NDArray[np.int64], place: int, value: bytes) -> None:
    start = int(bounds[place])
    data[start : start + len(value)] = np.frombuffer(value, np.uint8)
    bounds[place + 1] = start + len(value)


def _parse_line(line: bytes, text_field: str, id_field: str) -> tuple[bytes, bytes] | None:
    """(text, id) of a line that the kernel does not vouch for; None if it is no document."""
    try:
        record = orjson.loads(line)
        text, identity = record[text_field].encode(), record.get(id_field)
    except (ValueError, KeyError, TypeError, AttributeError):  # in the order of `why_rejected`
        return None
    if identity is None or type(identity) is str:
        return text, (identity or "").encode()
    from pipeline.documents.json_members import find_members  # compiled, and most corpora never need it here

    found = find_members(np.frombuffer(line, np.uint8), np.array([0]), np.array([len(line)]), id_field)
    return text, line[found.value_start[0] : found.value_end[0]]


def why_rejected(line: bytes, text_field: str) -> RejectionReason:
    """Why a line that is no document of a text is none; of a document, that its text is no string."""
    if not line.strip(JSON_WHITESPACE):
        return RejectionReason.BLANK_LINE
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _why_unparsable(line)
    if not isinstance(record, dict):
        return RejectionReason.NOT_AN_OBJECT
    if text_field not in record:
        return RejectionReason.MISSING_TEXT
    return RejectionReason.TEXT_NOT_A_STRING


def _why_unparsable(line: bytes) -> RejectionReason:
    """orjson's messages are not an interface, so the standard library, which lets lone surrogates pass, decides."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return RejectionReason.INVALID_UTF8
    try:
        # Numbers stay strings: Python limits the digits of an int, and no number's value matters here.
        record = json.loads(text, parse_constant=_refuse_constant, parse_int=str, parse_float=str)
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return RejectionReason.LONE_SURROGATE
    except (ValueError, RecursionError):
        return RejectionReason.BROKEN_JSON
    return RejectionReason.BROKEN_JSON  # Valid by the letter, beyond orjson: 1e999, or more than 1,024 levels deep.


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
