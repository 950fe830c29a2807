"""Adds an attribute to every document of a file: its repeated ranges, or the benchmark items it holds.

In: lines of JSON without the attribute, and its value for each document, a list. Out: the same lines, each with the
attribute as its last key, or in the object that a dotted key names. No other byte of the lines changes.

Written values are read again and summed (`Annotation.tally`), so a value that was truncated or went to another document
shows in the balance. Price: one search for a key for each document and attribute, twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.documents.field_names import overlap
from corpusmill.documents.json_members import find_value, find_values, insert_place, values_of
from corpusmill.documents.located import find_line_ends, locate
from corpusmill.documents.text_shard import IndexedSource
from corpusmill.errors import ConfigError
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import placed_sum, text_hashes
from corpusmill.kernels.slices import copy_slices, starts_of

_EMPTY_LIST = b"[]"

_in_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(slots=True)
class Annotation:
    """An attribute, and a content sum of the values written so far.

    `key`               of the line's object, or a dotted path (`metadata.ranges`), whose objects are added where they
                        lack; in parquet the name of a column, dots included
    `value_of`          the value, a list, of a document: its number within the file
    `replace_existing`  without it, a document (a parquet table) that already has the key is an error; null counts as
                        absent. Nothing but the last key's value is ever replaced
    `column`            the type of its column in parquet (pyarrow)
    `tally`             `tally_of` of the values that were read again
    """

    key: str
    value_of: Callable[[int], list[Any]]
    replace_existing: bool = False
    column: Any = None
    tally: ContentSum = field(default=NOTHING)

    def count(self, values: Iterable[tuple[int, list[Any]]], unit: int, first_ordinal: int) -> None:
        """Add values that were read again, each with its document's number within the file."""
        self.tally += tally_of({first_ordinal + number: value for number, value in values}, unit)


def tally_of(values: Mapping[int, list[Any]], unit: int) -> ContentSum:
    """The content sum of a shard's values, by the documents' ordinals; empty lists add nothing to it."""
    present = {ordinal: value for ordinal, value in values.items() if value}
    texts = [orjson.dumps(value, option=orjson.OPT_SORT_KEYS) for value in present.values()]
    return placed_sum(text_parts(texts), unit, np.fromiter(present, np.uint64, len(present)))


def text_parts(texts: list[bytes]) -> NDArray[np.uint64]:
    """uint64 (2, n): the hashes of each text, which a content sum weights and adds."""
    joined = np.frombuffer(b"".join(texts), np.uint8)
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))
    ends = np.cumsum(lengths, dtype=np.uint64)
    return text_hashes(joined, ends - lengths, ends)


def annotate_lines(
    data: bytes,
    documents: NDArray[np.int64],
    annotation: Annotation,
    indexed: IndexedSource,
    text_field: str,
    unit: int,
) -> bytes:
    """`data` with the attribute in each of its lines; `documents`: int64 (lines,), their numbers within the file.

    ConfigError for a key that the text field occupies, or that exists already.
    """
    path = key_path(annotation.key, text_field)
    lines = _lines(data)
    edits = [*_edits(data, lines, documents, path, annotation, indexed)]
    spans = np.array([span for span, _ in edits], np.int64).reshape(-1, 2)
    written = with_edits(data, spans, [value for _, value in edits])
    values = zip(documents.tolist(), _values(written, _lines(written), path), strict=True)
    annotation.count(values, unit, indexed.first_document)
    return written


def key_path(key: str, text_field: str) -> list[str]:
    """The keys of a dotted path; ConfigError for one that cannot hold an attribute."""
    path = key.split(".")
    if overlap(key, text_field) or not all(path):
        raise ConfigError(
            "annotation.no_place: the annotation has no place",
            where=f"annotate_key: {key}",
            expected=f"a key, or keys joined by dots, of which the first is not the text field {text_field!r}",
            next_step="name another annotate_key",
        )
    return path


def with_edits(data: bytes, spans: NDArray[np.int64], replacements: Sequence[bytes] = ()) -> bytes:
    """`data` without some spans of it, and with replacements for the first of them.

    `spans`: int64 (n, 2), [start, end) of each, in any order. ValueError for spans that overlap or lie outside.
    """
    order = np.argsort(spans[:, 0], kind="stable")
    sizes = np.zeros(len(spans), np.uint64)
    sizes[: len(replacements)] = [*map(len, replacements)]
    ends = np.append(spans[order, 0], len(data))
    kept = np.insert(spans[order, 1], 0, 0)  # where what stays before each span begins
    if (kept > ends).any() or (spans[:, 0] > spans[:, 1]).any():
        raise ValueError("edits that overlap, or reach beyond the data")
    starts, lengths = np.zeros((2, len(ends), 2), np.uint64)  # of what stays, and of what replaces the span behind it
    starts[:, 0], lengths[:, 0] = kept, ends - kept
    starts[:-1, 1], lengths[:-1, 1] = (len(data) + starts_of(sizes))[order], sizes[order]
    written = np.empty(int(lengths.sum()), np.uint8)
    source = np.frombuffer(b"".join([data, *replacements]) if replacements else data, np.uint8)
    copy_slices(source, starts.ravel(), lengths.ravel(), written)
    return written.tobytes()


def _lines(data: bytes) -> list[tuple[int, int]]:
    """Where the JSON of each line begins and ends."""
    line_ends = find_line_ends(data)
    block = locate(data, line_ends, np.arange(len(line_ends)), 0)
    return list(zip(block.starts.tolist(), block.ends.tolist(), strict=True))


def _edits(
    data: bytes,
    lines: list[tuple[int, int]],
    documents: NDArray[np.int64],
    path: list[str],
    annotation: Annotation,
    indexed: IndexedSource,
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """[start, end) of what is replaced in each line, and its replacement."""
    values = find_values(data, path[0], lines)
    for line, first, document in zip(lines, values, documents.tolist(), strict=True):
        value = _json(annotation.value_of(document))
        depth, span, separator = _place(data, line, first, path)
        if separator is not None:
            yield span, separator + _nested(path[depth:], value)[1:-1]
            continue
        if data[span[0] : span[1]] != b"null":
            require_place(path, depth, indexed.where(document), replace_existing=annotation.replace_existing)
        yield span, _nested(path[depth:], value)


def require_place_in(record: dict[str, Any], path: Sequence[str], where: str, *, replace_existing: bool) -> None:
    """ConfigError, as annotate_lines raises it, if an attribute has no place in a parsed line."""
    value: Any = record
    for depth, key in enumerate(path, 1):
        value = value.get(key)
        if value is None:
            return
        if depth == len(path) or not isinstance(value, dict):
            require_place(path, depth, where, replace_existing=replace_existing)
            return


def require_place(path: Sequence[str], depth: int, where: str, *, replace_existing: bool) -> None:
    """ConfigError unless the value at the first `depth` keys of a path, if not null, may be replaced: the last
    key's value alone.
    """
    at = ".".join(path[:depth])
    if depth < len(path):
        raise ConfigError(
            "annotation.not_an_object: a document has something other than an object where the annotation's object"
            " must be",
            where=where,
            expected=f"an object, null or nothing at {at!r}",
            next_step="name another annotate_key",
        )
    if not replace_existing:
        raise ConfigError(
            "annotation.key_taken: a document already has the annotation's key",
            where=where,
            expected=f"null or nothing at {at!r}",
            next_step="name another annotate_key, or set replace_existing if the old value may go",
        )


def require_column(columns: Collection[str], key: str, where: str, *, replace_existing: bool) -> None:
    """ConfigError if a parquet file has a column of an annotation's name that may not be replaced."""
    if key in columns and not replace_existing:
        raise ConfigError(
            "annotation.column_taken: a parquet file already has a column with the annotation's name",
            where=f"{where}, column {key}",
            expected="no such column",
            next_step="name another annotate_key, or set replace_existing if the old values may go",
        )


def _place(
    data: bytes, line: tuple[int, int], first: tuple[int, int] | None, path: list[str]
) -> tuple[int, tuple[int, int], bytes | None]:
    """(how many keys of the path exist, the bytes to replace by the rest, the separator before a new member).

    `first`: where the line has the value of the first key. The separator is None if the path ends at an existing value,
    or runs into one that is not an object.
    """
    within, value = line, first
    for depth, key in enumerate(path):
        if depth:
            value = find_value(data, key, *within)
        if value is None:
            at, separator = insert_place(data, *within)
            return depth, (at, at), separator
        if data[value[0]] != ord("{"):
            return depth + 1, value, None
        within = value
    return len(path), within, None


def _values(data: bytes, lines: list[tuple[int, int]], path: list[str]) -> Iterator[list[Any]]:
    """The list that each line has at a path; empty if there is none."""
    for member in values_of(data, path[0], lines):
        value = member
        for key in path[1:]:
            value = None if value is None else values_of(value, key, [(0, len(value))])[0]
        annotated = orjson.loads(value) if value is not None and len(value) > len(_EMPTY_LIST) else []
        yield annotated if isinstance(annotated, list) else []


def _json(value: list[Any]) -> bytes:
    return _in_json(value).encode() if value else _EMPTY_LIST


def _nested(path: list[str], value: bytes) -> bytes:
    """`value` inside one object for every key of `path`."""
    for key in reversed(path):
        value = b"{" + orjson.dumps(key) + b": " + value + b"}"
    return value
