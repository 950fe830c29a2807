"""One reader for every kind of source file, by its name or, on standard input, by its first bytes.

JSON lines, compressed or not     jsonl.py, compression.py     read forwards
parquet                           parquet.py                   seekable
Arrow IPC files and streams       arrow.py                     read forwards
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, cast

from corpusmill.documents.compression import (
    ARROW_ENDING,
    PARQUET_ENDING,
    Compression,
    compression_of,
    is_parquet,
    is_table,
    open_decompressed,
)
from corpusmill.documents.decompressing import PieceStream
from corpusmill.documents.kinds import ARROW_FILE, ARROW_STREAM, PARQUET, Rejoined, kind_of, read_head
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.documents import arrow, columns, jsonl, parquet
    from corpusmill.documents.batch import DocumentBatch

NARROW_ROWS = 1 << 14  # that are decoded at once, of a few columns of short values

log = logging.getLogger(__name__)

Reader = Literal["lines", "parquet", "arrow"]


def reader_of(name: str) -> Reader:
    """How a file of this name is read."""
    if not is_table(name):
        return "lines"
    return "parquet" if is_parquet(name) else "arrow"


def read_documents(
    stream: BinaryIO,
    name: str,
    *,
    text_field: str,
    id_field: str,
    fields: Sequence[str] = (),
    source: str = "",
    row_groups: tuple[int, int] | None = None,
    compression: Compression | None = None,
) -> Iterator[DocumentBatch]:
    """The documents of a whole file, or of row groups [first, last) of parquet, in order.

    `name`: of the file, by which it is read; `fields`: what is read of each document besides its text and id; `source`:
    its name in the batches, if it is another. `compression`: of lines, instead of what the name says. Errors as the
    kind's own reader raises them.
    """
    named: dict[str, Any] = {"source": source or name, "text_field": text_field, "id_field": id_field, "fields": fields}
    match reader_of(name):
        case "parquet":
            yield from parquet.read_rows(stream, name=name, row_groups=row_groups, **named)
        case "arrow":
            yield from arrow.read_rows(stream, name=name, **named)
        case _:
            with open_decompressed(stream, name, compression) as lines:
                yield from jsonl.read_documents(lines, **named)


def open_lines(
    stream: BinaryIO,
    name: str,
    *,
    texts: Sequence[str] | None = None,
    others: Sequence[str] = (),
    compression: Compression | None = None,
) -> BinaryIO:
    """The decompressed lines of a file, of which a table's rows are those of JSON objects.

    `texts`, `others`: of a table, the columns of texts, which it must have, and others, which it may lack; by default
    all columns.
    """
    kind = reader_of(name)
    if kind == "lines":
        return open_decompressed(stream, name, compression)
    table = _Table(stream, name, kind)
    places = None if texts is None else table.places(texts, others)
    return cast("BinaryIO", PieceStream(table.lines(places)))


def read_rows(stream: BinaryIO, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a table as objects of JSON."""
    yield from _Table(stream, name, reader_of(name)).rows()


def read_columns(stream: BinaryIO, name: str, wanted: Sequence[str]) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """(the names of which a table has no column, or several; the values of each row, as Python has them)."""
    table = _Table(stream, name, reader_of(name))
    places = [columns.place_of(table.schema, column) for column in wanted]
    lacking = [column for column, place in zip(wanted, places, strict=True) if not place]
    return lacking, table.values(places)


def count_rows(stream: BinaryIO, name: str) -> int:
    """How many rows a table has."""
    if reader_of(name) == "parquet":
        return int(parquet.open_parquet(stream, name).metadata.num_rows)
    return sum(batch.num_rows for batch in arrow.ArrowTable(stream, name, lambda _: []).batches())


class _Table:
    """A table, opened, whichever kind it is."""

    def __init__(self, stream: BinaryIO, name: str, kind: Reader) -> None:
        self._stream, self._name = stream, name
        self._parquet = parquet.open_parquet(stream, name) if kind == "parquet" else None
        self._arrow = arrow.ArrowTable(stream, name) if kind == "arrow" else None
        self.schema: Any = self._arrow.schema if self._arrow else self._parquet and self._parquet.schema_arrow

    def places(self, texts: Sequence[str], others: Sequence[str]) -> dict[str, tuple[str, ...]]:
        with self._readable():
            found = {name: columns.text_place(self.schema, self._name, name, lists=True) for name in texts}
            found |= {name: columns.place_of(self.schema, name) for name in others}
            return {name: place for name, place in found.items() if place}

    def lines(self, places: dict[str, tuple[str, ...]] | None) -> Iterator[bytes]:
        lost = 0
        with self._readable():
            for batch in self._batches(places):
                lost += columns.undecodable(batch) if places is None else 0
                yield from columns.rows_as_lines([batch], places)
        if lost:
            log.warning("%s: %d texts are not UTF-8: they become null", self._name, lost)

    def rows(self) -> Iterator[dict[str, Any]]:
        with self._readable():
            for batch in self._batches(None):
                yield from columns.rows_of(batch)

    def values(self, places: list[tuple[str, ...]]) -> Iterator[tuple[Any, ...]]:
        with self._readable():
            for batch in self._batches({".".join(place): place for place in places}, NARROW_ROWS):
                yield from zip(*(columns.listed(columns.field_at(batch, place)) for place in places), strict=True)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """CorruptDataError for what pyarrow and Python say of values that cannot be read."""
        try:
            yield
        except arrow.UNREADABLE as error:
            raise (arrow if self._arrow else parquet).corrupt(self._name, error) from error

    def _batches(self, places: dict[str, tuple[str, ...]] | None, most_rows: int | None = None) -> Iterator[Any]:
        if self._arrow:
            yield from self._arrow.batches()
        elif self._parquet:
            wanted = None if places is None else [".".join(place) for place in places.values()]
            yield from parquet.read_few(
                self._parquet, self._stream, self._name, wanted, most_rows=most_rows or columns.DECODED_ROWS
            )


@contextmanager
def standard_input(stream: BinaryIO, name: str) -> Iterator[tuple[BinaryIO, str, Compression]]:
    """(stream, name by which it is read, compression of lines) of standard input, whose first bytes show its kind.

    Parquet is first written to a temporary file, since its footer is at its end.
    """
    head = read_head(stream)
    rejoined = cast("BinaryIO", Rejoined(head, stream))
    kind = kind_of(head)
    if kind is not None and kind.name == PARQUET:
        with tempfile.TemporaryFile() as file:
            shutil.copyfileobj(rejoined, file, 1 << 20)
            file.seek(0)
            yield cast("BinaryIO", file), name + PARQUET_ENDING, Compression.NONE
    elif kind is not None and kind.name in {ARROW_FILE, ARROW_STREAM}:
        yield rejoined, name + ARROW_ENDING, Compression.NONE
    else:
        yield rejoined, name, compression_of(name, head)
