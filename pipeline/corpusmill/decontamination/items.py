"""Reads benchmarks from files: JSON lines or parquet, one item per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.parquet import open_parquet, read_batches
from corpusmill.errors import ConfigError

PARQUET = ".parquet"


@dataclass(frozen=True, slots=True)
class Fields:
    """The columns of a benchmark; an empty name means no such column. Only the question is required, in at least one
    row.
    """

    question: str = "question"
    answer: str = "answer"
    passage: str = ""
    id: str = "id"


BLANK = object()  # a line of white space


@dataclass(frozen=True, slots=True)
class Item:
    """A row of a benchmark. `name`: its id, or its number (from 1) where it has none."""

    benchmark: str
    name: str
    question: str
    answer: str = ""
    passage: str = ""


def read_items(stream: BinaryIO, path: str, benchmark: str, fields: Fields) -> Iterator[Item]:
    """The items of one file as stored. Blank lines are skipped; an item may be empty.

    ConfigError if the file cannot be read, a row is not an object, or no row has a question: with a wrong key, a
    benchmark would find nothing.
    """
    has_question = False
    for number, row in enumerate(_table_rows(stream, path) if path.endswith(PARQUET) else _lines(stream, path), 1):
        if row is BLANK:
            continue
        if not isinstance(row, dict):
            got = "null" if row is None else f"a value of type {type(row).__name__}"
            raise _unreadable(f"{path}, row {number:,}", "a JSON object", got)
        question, answer, passage = (row.get(name) for name in (fields.question, fields.answer, fields.passage))
        has_question = has_question or question is not None
        identity = row.get(fields.id)
        name = str(number) if identity is None or identity == "" else str(identity)
        yield Item(benchmark, name, _text(question), _text(answer), _text(passage))
    if not has_question:
        raise _unreadable(path, f"rows with a question under the key {fields.question!r}", "none")


def count_rows(stream: BinaryIO, path: str) -> int:
    """How many items a file holds, without parsing them."""
    if path.endswith(PARQUET):
        return int(open_parquet(stream, path).metadata.num_rows)
    with open_decompressed(stream, path) as lines:
        return sum(not line.isspace() for line in lines)


def _unreadable(where: str, expected: str, got: object) -> ConfigError:
    next_step = "fix the file, or name the fields that hold the benchmark's question, answer and passage"
    return ConfigError(
        "benchmark.not_readable: a benchmark cannot be read",
        where=where,
        expected=expected,
        got=got,
        next_step=next_step,
    )


def _text(value: Any) -> str:
    """A field as text: a list (choices, several right answers) as its parts, a line each."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    if isinstance(value, dict):
        return "\n".join(_text(part) for part in value.values() if isinstance(part, str | list))
    return str(value)


def _lines(stream: BinaryIO, path: str) -> Iterator[Any]:
    with open_decompressed(stream, path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                yield BLANK
                continue
            try:
                yield orjson.loads(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
            except ValueError as error:
                raise _unreadable(f"{path}, line {number:,}", "a JSON object", "other text") from error


def _table_rows(stream: BinaryIO, path: str) -> Iterator[Any]:
    for batch in read_batches(open_parquet(stream, path), path):
        yield from batch.to_pylist()
