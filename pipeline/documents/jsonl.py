"""Reads JSON lines: one object a line, its text under one top-level key.

Every line is parsed whole by orjson (a strict RFC 8259 parser), so a line that is accepted here is valid JSON in
every field. A line that is not a document is never dropped in silence: it becomes a `Rejection` with one of eight
reasons. Accepted: a last line without newline, ``\\r\\n``, a UTF-8 byte order mark at the start of the file, and
duplicate keys (the last one counts, as in most parsers).

Price: one pass, single-threaded, about 370 MB/s of decompressed English text; memory is about five blocks, or four
times the longest line if that is more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.documents.batch import DocumentBatch, Rejection, RejectionReason
from pipeline.documents.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LONGEST_LINE_BYTES, read_line_blocks

JSON_WHITESPACE = b" \t\r\n"
OTHER = b"\xff"  # stands for an id that is neither a string nor an integer; no id is that


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
            batch = DocumentBatch(source, [], [], np.empty(0, np.uint64), block.stream_bytes, rejections)
        else:
            lines = block.data.split(b"\n")
            if not lines[-1]:
                lines.pop()
            if first_line == 0 and lines[0].startswith(BYTE_ORDER_MARK):
                lines[0] = lines[0][len(BYTE_ORDER_MARK) :]
            batch = _parse(lines, source, text_field, id_field, first_line, block.stream_bytes)
        first_line += batch.lines
        yield batch


def _parse(
    lines: list[bytes], source: str, text_field: str, id_field: str, first_line: int, line_bytes: int
) -> DocumentBatch:
    loads = orjson.loads
    texts: list[bytes] = []
    identities: list[Any] = []
    accept, accept_identity = texts.append, identities.append
    rejected: list[int] = []
    for index, line in enumerate(lines):
        try:
            record = loads(line)
            accept(record[text_field].encode())
            accept_identity(record.get(id_field))
        except (ValueError, KeyError, TypeError, AttributeError):  # in the order of `why_rejected`
            rejected.append(index)
    rejections = [
        Rejection(why_rejected(lines[index], text_field), first_line + index, lines[index]) for index in rejected
    ]
    kept = np.delete(np.arange(len(lines), dtype=np.uint64), rejected)
    ids = _id_bytes(identities, lines, kept, id_field)
    return DocumentBatch(source, texts, ids, kept + np.uint64(first_line), line_bytes, rejections)


def _id_bytes(identities: list[Any], lines: list[bytes], kept: NDArray[np.uint64], id_field: str) -> list[bytes]:
    """The documents' ids as `DocumentBatch` has them; document i stands in line `kept[i]`."""
    try:
        return list(map(str.encode, identities))
    except TypeError:
        pass
    # JSON writes an integer one way only, but for 0 and -0; of all else, 1.50 and 1e400, only the line has the text.
    ids = [
        b"" if one is None else one.encode() if type(one) is str else b"%d" % one if type(one) is int and one else OTHER
        for one in identities
    ]
    if OTHER in ids:
        others = [document for document, one in enumerate(ids) if one is OTHER]
        from pipeline.documents.json_members import find_members  # compiled, and most corpora never need it here

        chosen = [lines[line] for line in kept[others].tolist()]
        data, ends = b"".join(chosen), np.cumsum(list(map(len, chosen)))
        found = find_members(np.frombuffer(data, np.uint8), np.concatenate(([0], ends[:-1])), ends, id_field)
        for document, start, end in zip(others, found.value_start.tolist(), found.value_end.tolist(), strict=True):
            ids[document] = data[start:end]
    return ids


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
