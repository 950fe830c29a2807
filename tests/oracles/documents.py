"""Obviously right versions of what `corpusmill/documents` and the writeback do, on whole files in memory."""

from __future__ import annotations

import json
import math

import numpy as np

from corpusmill.documents.text_shard import IndexedSource
from tests.oracles.content import text_hash


def lines_of(data: bytes) -> list[bytes]:
    """Every line without its newline; a last line need not end."""
    lines = data.split(b"\n")
    return lines[:-1] if not lines[-1] else lines


def documents_of(data: bytes, text_field: str) -> tuple[list[tuple[int, bytes]], list[tuple[int, str]]]:
    """([(line, text)], [(line, reason)]), lines 0-based."""
    documents, rejections = [], []
    for number, line in enumerate(lines_of(data)):
        outcome = _outcome(line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line, text_field)
        if isinstance(outcome, bytes):
            documents.append((number, outcome))
        else:
            rejections.append((number, outcome))
    return documents, rejections


def _outcome(line: bytes, text_field: str) -> bytes | str:
    if not line.strip(b" \t\r"):
        return "blank_line"
    try:
        text = line.decode("utf-8", "strict")
        record = json.loads(text, parse_constant=_refuse, parse_int=_finite, parse_float=_finite)
        every_pair = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
        json.dumps(every_pair, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return "invalid_utf8"
    except UnicodeEncodeError:
        return "lone_surrogate"
    except ValueError:
        return "broken_json"
    return _text(record, text_field)


def _refuse(name: str) -> None:
    raise ValueError(name)


def _finite(digits: str) -> float:
    if math.isinf(float(digits)):
        raise ValueError(digits)
    return float(digits)


def _text(record: object, text_field: str) -> bytes | str:
    if not isinstance(record, dict):
        return "not_an_object"
    if text_field not in record:
        return "missing_text"
    return record[text_field].encode() if isinstance(record[text_field], str) else "text_not_a_string"


def ids_of(data: bytes, text_field: str, id_field: str) -> list[bytes]:
    """Each document's id: a string's UTF-8, nothing for null or none, the JSON in the line for anything else."""
    ids = []
    lines = lines_of(data.removeprefix(b"\xef\xbb\xbf"))
    for number, _ in documents_of(data, text_field)[0]:
        line = lines[number]
        value = json.loads(line, parse_int=str, parse_float=str).get(id_field)
        spans = member_spans(line, id_field)
        raw = line[slice(*spans[-1])] if spans else b"null"
        ids.append(b"" if value is None else value.encode() if raw.startswith(b'"') else raw)
    return ids


def text_shard_of(texts: list[bytes]) -> tuple[bytes, list[int]]:
    """(`tokenized`, the values of `offset`)"""
    tokenized, offsets = b"", []
    for text in texts:
        offsets.append(len(tokenized))
        tokenized += b"\xff" + text
    return tokenized, offsets


def indexed_source(path: str, data: bytes, documents: list[tuple[int, bytes]], first_byte: int = 0) -> IndexedSource:
    """What a text shard holds of a file: `documents` as (line, text), behind `first_byte` bytes of other files."""
    tokenized, offsets = text_shard_of([text for _, text in documents])
    lines = lines_of(data.removeprefix(b"\xef\xbb\xbf"))
    return IndexedSource(
        path,
        first_document=0,
        text=np.frombuffer(bytes(first_byte) + tokenized, np.uint8),
        bounds=np.array([*offsets, len(tokenized)], np.uint64) + np.uint64(first_byte),
        line_numbers=np.array([number for number, _ in documents], np.uint64),
        line_hashes=np.array([text_hash(lines[number])[0] for number, _ in documents], np.uint64),
    )


def member_spans(line: bytes, key: str) -> list[tuple[int, int]]:
    """The byte spans of the values of `key` at the top level of a valid JSON object, one a duplicate."""
    text = line.decode()
    scan = json.JSONDecoder().raw_decode
    spans, at = [], text.index("{") + 1
    while text[at:].lstrip()[0] != "}":
        at = _next(text, at)
        name, at = scan(text, at)
        at = _next(text, _next(text, at) + 1)  # over the colon
        _, end = scan(text, at)
        if name == key:
            spans.append((len(text[:at].encode()), len(text[:end].encode())))
        at = _next(text, end)
        at += text[at] == ","
    return spans


def _next(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def records_written_back(
    data: bytes, documents: list[int], ranges: list[list[tuple[int, int]]], *, annotate: bool
) -> list[list[tuple[str, object]]]:
    """What must be read from the output, as pairs so that order and duplicate keys count. Ranges are per document,
    relative to its text."""
    records = []
    for number, span in zip(documents, ranges, strict=True):
        line = lines_of(data.removeprefix(b"\xef\xbb\xbf"))[number]
        pairs = json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str)
        last = max(place for place, (key, _) in enumerate(pairs) if key == "text")
        text = pairs[last][1].encode()
        if annotate:
            pairs.append(("sa_remove_ranges", [[str(start), str(end)] for start, end in span]))
        else:
            removed = {place for start, end in span for place in range(start, end)}
            pairs[last] = ("text", bytes(byte for place, byte in enumerate(text) if place not in removed).decode())
        records.append(pairs)
    return records
