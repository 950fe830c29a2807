"""Parquet files as documents: a row takes the place of a line (pyarrow).

Only the text and the id column are read (columns.py).

Price: the pages of two columns in memory, decompressed, and BATCH_BYTES of text. A value of a megabyte that occurs once
in a dictionary can be that of every row: few rows at a time are decoded, and LARGEST_RATIO applies as for gzip and
zstd.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.documents.batch import DocumentBatch
from corpusmill.documents.columns import DECODED_ROWS, Rows, decoded_bytes, place_of, text_place
from corpusmill.documents.cuts import Cut, Uncut, next_part_bytes
from corpusmill.documents.decompressing import LARGEST_RATIO, UNSUSPICIOUS_BYTES, require_plausible
from corpusmill.documents.kinds import PARQUET, read_head, require_kind
from corpusmill.documents.parquet_footer import ColumnChunk, column_chunks
from corpusmill.errors import CorruptDataError
from corpusmill.kernels import advance
from corpusmill.storage import SeekableFile

MAGIC = b"PAR1"
UNREADABLE = (pa.ArrowException, OSError, ValueError)


class Placed(SeekableFile):
    """A parquet file of which only some byte ranges exist, at their original offsets.

    `stream` holds the ranges `pieces` [(offset in the file, size), ...] one after another.
    """

    def __init__(self, stream: BinaryIO, pieces: tuple[tuple[int, int], ...]) -> None:
        super().__init__(max(offset + size for offset, size in pieces))
        self._stream = stream
        self._places = []
        at = 0
        for offset, size in pieces:
            self._places.append((offset, size, at))
            at += size

    def _next(self, wanted: int) -> bytes:
        """Zeros between the ranges, which a prefetch of the footer may read."""
        filled = bytearray(wanted)
        for offset, length, at in self._places:
            first, last = max(offset, self._at), min(offset + length, self._at + wanted)
            if first < last:
                self._stream.seek(at + first - offset)
                filled[first - self._at : last - self._at] = self._stream.read(last - first)
        return bytes(filled)


def open_parquet(stream: BinaryIO, name: str) -> pq.ParquetFile:
    """Open a parquet file; SourceError if it is of another kind, CorruptDataError if it is malformed."""
    try:
        return pq.ParquetFile(stream, pre_buffer=False)
    except UNREADABLE as error:
        stream.seek(0)
        require_kind(read_head(stream), name, f"{PARQUET}, as its ending says", {PARQUET})
        raise corrupt(name, error) from error


def read_group(file: pq.ParquetFile, group: int, name: str) -> pa.Table:
    """A row group with all its columns. CorruptDataError if it is malformed."""
    try:
        table = file.read_row_group(group, use_threads=False)
    except UNREADABLE as error:
        raise corrupt(name, error) from error
    of_group = file.metadata.row_group(group)
    advance.note_done(sum(of_group.column(column).total_compressed_size for column in range(of_group.num_columns)))
    return table


def read_batches(file: pq.ParquetFile, name: str, rows: int = 1 << 16, **options: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at most so many at a time; `options` of pyarrow. CorruptDataError if it is malformed."""
    try:
        yield from file.iter_batches(rows, use_threads=False, **options)
    except UNREADABLE as error:
        raise corrupt(name, error) from error


def footer_of(stream: BinaryIO, name: str) -> list[list[ColumnChunk]]:
    """The column chunks of every row group. CorruptDataError for a malformed footer."""
    try:
        return column_chunks(stream)
    except UNREADABLE as error:
        raise corrupt(name, error) from error


def corrupt(name: str, error: Exception) -> CorruptDataError:
    return CorruptDataError(
        "parquet.not_readable: a parquet file cannot be read",
        where=name,
        expected="PAR1, row groups, a footer, PAR1",
        got=error,
        next_step="download it again, or fetch it from its origin again",
    )


def row_group_cuts(stream: BinaryIO, name: str, size_bytes: int, target_bytes: int) -> list[Cut] | Uncut:
    """Parts of whole row groups, of at most about `target_bytes`; each takes the footer, too."""
    open_parquet(stream, name)
    chunks = footer_of(stream, name)
    groups = len(chunks)
    if groups < 2:
        return Uncut(
            "one shard because a parquet file of one row group cannot be split",
            "rewrite it with a row_group_size of some 10,000 rows",
        )
    stream.seek(size_bytes - 8)
    footer = size_bytes - 8 - int.from_bytes(stream.read(4), "little")
    starts = [min((chunk.start for chunk in group), default=0) for group in chunks]
    if starts != sorted(starts) or footer < starts[-1]:
        return Uncut("one shard because the row groups of this parquet file are not in order", "rewrite it")
    bounds = [*starts, footer]
    cuts: list[Cut] = []
    first = 0
    while first < groups:
        wanted = bounds[first] + next_part_bytes(footer - bounds[first], target_bytes)
        group = max(first + 1, bisect_right(bounds, wanted) - 1)
        pieces = ((bounds[first], bounds[group] - bounds[first]), (footer, size_bytes - footer))
        cuts.append(Cut("rows", pieces, row_groups=(first, group)))
        first = group
    return cuts


def read_rows(
    stream: BinaryIO,
    *,
    source: str,
    text_field: str,
    id_field: str,
    row_groups: tuple[int, int] | None = None,
    name: str = "",
    fields: Sequence[str] = (),
) -> Iterator[DocumentBatch]:
    """The rows of a parquet file, or of its row groups [first, last), as documents; row numbers start at 0 there.

    `name`: of the file in messages, if `source` is that of a part.
    """
    name = name or source
    file = open_parquet(stream, name)
    schema = file.schema_arrow
    text = text_place(schema, name, text_field)
    identity = place_of(schema, id_field)
    others = {field: place_of(schema, field) for field in fields}
    rows = Rows(source, text, identity, others)
    columns = [".".join(place) for place in dict.fromkeys((text, identity, *others.values())) if place]
    for batch in read_few(file, stream, name, columns, row_groups):
        try:
            yield from rows.add(batch, DECODED_ROWS)
        except UNREADABLE as error:
            raise corrupt(name, error) from error
    yield from rows.rest()


def read_few(
    file: pq.ParquetFile,
    stream: BinaryIO,
    name: str,
    columns: list[str] | None,
    row_groups: tuple[int, int] | None = None,
    *,
    most_rows: int = DECODED_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The rows of these columns (None: of all), at most so many at a time, fewer if they could be a bomb.

    `file`: that of `stream`, opened. CorruptDataError if it is malformed or a bomb.
    """
    chunks_of = footer_of(stream, name)
    groups = {group: chunks_of[group] for group in range(*(row_groups or (0, len(chunks_of))))}
    file_bytes = stream.seek(0, io.SEEK_END)
    compressed_bytes = value_bytes = 0
    try:
        for group, chunks in groups.items():
            compressed, pages = _column_bytes(chunks, columns)
            compressed_bytes = min(file_bytes, compressed_bytes + compressed)
            require_plausible(name, compressed_bytes, pages)
            plausible_bytes = max(UNSUSPICIOUS_BYTES, LARGEST_RATIO * compressed)
            rows = min(most_rows, max(1, plausible_bytes // max(1, pages)))  # no value is larger than its page
            decoded_rows = 0
            for batch in file.iter_batches(rows, row_groups=[group], columns=columns):
                decoded_rows += batch.num_rows
                value_bytes += decoded_bytes(batch)
                require_plausible(name, compressed_bytes, value_bytes)
                yield batch
            advance.note_done(compressed)
            stated_rows = {chunk.values for chunk in chunks if columns and chunk.path == columns[0]}
            if {decoded_rows} != (stated_rows or {file.metadata.row_group(group).num_rows}):
                raise ValueError(f"row group {group} does not have as many rows as values of {columns and columns[0]}")
    except UNREADABLE as error:
        raise corrupt(name, error) from error


def _column_bytes(chunks: list[ColumnChunk], columns: list[str] | None) -> tuple[int, int]:
    """(compressed, decompressed) bytes of the pages of these columns of a row group, as the footer states them."""
    read = [chunk for chunk in chunks if columns is None or _is_of(chunk, columns)]
    return sum(chunk.compressed_bytes for chunk in read), sum(chunk.decompressed_bytes for chunk in read)


def _is_of(chunk: ColumnChunk, columns: list[str]) -> bool:
    return any(chunk.path == column or chunk.path.startswith(f"{column}.") for column in columns)
