"""Benchmarks: which files they are, and their items, one per row of JSON lines or parquet."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from corpusmill.config import absolute
from corpusmill.documents import reading
from corpusmill.documents.compression import NAMED_ENDINGS, SOURCE_ENDINGS, is_table, open_decompressed
from corpusmill.documents.field_names import get_field
from corpusmill.errors import BalanceError, ConfigError, full_device_explained
from corpusmill.storage import StoredFile, Wanted, fetch, list_sources, open_location, open_once


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
    for number, row in enumerate(reading.read_rows(stream, path) if is_table(path) else _lines(stream, path), 1):
        if row is BLANK:
            continue
        if not isinstance(row, dict):
            got = "null" if row is None else f"a value of type {type(row).__name__}"
            raise _unreadable(f"{path}, row {number:,}", "a JSON object", got)
        question, answer, passage = (get_field(row, name) for name in (fields.question, fields.answer, fields.passage))
        has_question = has_question or question is not None
        identity = get_field(row, fields.id)
        name = str(number) if identity is None or identity == "" else str(identity)
        yield Item(benchmark, name, _text(question), _text(answer), _text(passage))
    if not has_question:
        raise _unreadable(path, f"rows with a question under the key {fields.question!r}", "none")


def count_rows(stream: BinaryIO, path: str) -> int:
    """How many items a file holds, without parsing them."""
    if is_table(path):
        return reading.count_rows(stream, path)
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


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Where a benchmark is, and which of its columns to read."""

    name: str
    path: str
    fields: Fields
    endpoint_url: str | None = None
    sha256: str | None = None

    def files(self) -> list[StoredFile]:
        """Its files, in natural order of their names; SourceError if there is none."""
        return list_sources([absolute(self.path)], SOURCE_ENDINGS, self.endpoint_url, named=tuple(NAMED_ENDINGS))


def read_benchmark(benchmark: Benchmark, files: list[StoredFile]) -> tuple[list[Item], str]:
    """A benchmark's items, and the sha256 of its files concatenated.

    Errors as `read_items` raises them; ConfigError for a benchmark that is not the pinned one.
    """
    items: list[Item] = []
    digest = hashlib.sha256()
    for file in files:
        store, name = open_location(file.location, endpoint_url=benchmark.endpoint_url)
        with open_once(store, Wanted(name, file.size_bytes, file.identity)) as raw:
            data = raw.read()
        digest.update(data)
        rows = [*read_items(cast(BinaryIO, io.BytesIO(data)), file.name, benchmark.name, benchmark.fields)]
        _require_all(rows, count_rows(cast(BinaryIO, io.BytesIO(data)), file.name), file.name)
        items += rows
    if benchmark.sha256 not in {None, digest.hexdigest()}:
        raise ConfigError(
            "benchmark.changed: a benchmark differs from the one that the configuration pins",
            where=f"{benchmark.name}: {benchmark.path}",
            expected=f"sha256 {benchmark.sha256}",
            got=f"sha256 {digest.hexdigest()}",
            next_step="fetch the right one, or pin this one: corpusmill benchmarks CONFIG prints its sha256",
        )
    return items, digest.hexdigest()


def save_files(files: list[StoredFile], folder: Path, endpoint_url: str | None) -> None:
    """Fetch a benchmark's files, verified, into a folder that is a benchmark of the same sha256.

    StorageFullError for a full disk; errors as `fetch` raises them.
    """
    with full_device_explained(
        "benchmark.disk_full: no space left for a benchmark", where=folder, next_step="free space on that device"
    ):
        for file in files:
            store, name = open_location(file.location, endpoint_url=endpoint_url)
            path = folder / file.name
            fetch(store, Wanted(name, file.size_bytes, file.identity), path, path.with_name(path.name + ".partial"))


def hub_commit(files: list[StoredFile]) -> str:
    """The commit of the Hub dataset that the files were listed in; "" for files elsewhere."""
    named = re.match(r"hf://datasets/[^@]+@([0-9a-f]{40})/", files[0].location)
    return named[1] if named else ""


def _require_all(items: list[Item], rows: int, path: str) -> None:
    if len(items) != rows:
        raise BalanceError(
            "benchmark.rows_lost: not every row of a benchmark became an item",
            where=path,
            expected=f"{rows:,} items",
            got=f"{len(items):,}",
            next_step="report this with the file's first lines: it is a bug",
        )
