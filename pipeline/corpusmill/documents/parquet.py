"""Parquet files as documents: a row takes the place of a line (pyarrow).

Only the text and the id column are read. The text column is string, large_string, or a dictionary of these; the id
column may be any type: strings are kept as they are, other values become JSON. A row whose text is null or not UTF-8 is
rejected, like a malformed line.

Price: the pages of two columns in memory, decompressed, and BATCH_BYTES of text. A value of a megabyte that occurs once
in a dictionary can be that of every row: few rows at a time are decoded, and LARGEST_RATIO applies as for gzip and
zstd.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.documents.batch import DocumentBatch, Rejection, RejectionReason, batch_of
from corpusmill.documents.cuts import Cut, Uncut, next_part_bytes
from corpusmill.documents.decompressing import LARGEST_RATIO, UNSUSPICIOUS_BYTES, require_plausible
from corpusmill.documents.kinds import PARQUET, read_head, require_kind
from corpusmill.documents.parquet_footer import ColumnChunk, column_chunks
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.kernels import advance
from corpusmill.storage import SeekableFile

ROWS, BATCH_BYTES = 4096, 16 << 20  # limits of a batch: rows, and bytes of text after which it ends
DECODED_ROWS = 32
"""Rows that are decoded at once. Of 3 KB of text each: as fast as 4,096; 4 would take three times as long."""

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
        raise _corrupt(name, error) from error


def read_group(file: pq.ParquetFile, group: int, name: str) -> pa.Table:
    """A row group with all its columns. CorruptDataError if it is malformed."""
    try:
        table = file.read_row_group(group, use_threads=False)
    except UNREADABLE as error:
        raise _corrupt(name, error) from error
    of_group = file.metadata.row_group(group)
    advance.note_done(sum(of_group.column(column).total_compressed_size for column in range(of_group.num_columns)))
    return table


def read_batches(file: pq.ParquetFile, name: str, rows: int = 1 << 16, **options: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at most so many at a time; `options` of pyarrow. CorruptDataError if it is malformed."""
    try:
        yield from file.iter_batches(rows, use_threads=False, **options)
    except UNREADABLE as error:
        raise _corrupt(name, error) from error


def footer_of(stream: BinaryIO, name: str) -> list[list[ColumnChunk]]:
    """The column chunks of every row group. CorruptDataError for a malformed footer."""
    try:
        return column_chunks(stream)
    except UNREADABLE as error:
        raise _corrupt(name, error) from error


def _corrupt(name: str, error: Exception) -> CorruptDataError:
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


def text_column(file: pq.ParquetFile, name: str, text_field: str) -> pa.DataType:
    """The type of the text column. SourceError, which lists the columns, if it is missing or of another type."""
    schema = file.schema_arrow
    place = schema.get_field_index(text_field)
    kind: pa.DataType | None = schema.field(place).type if place >= 0 else None
    value = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if kind is None or value is None or not (pa.types.is_string(value) or pa.types.is_large_string(value)):
        raise SourceError(
            "parquet.no_text_column: a parquet file has no column of text of that name",
            where=name,
            expected=f"a column {text_field} (source.text_field) of string, large_string or a dictionary of these",
            got=", ".join(f"{field.name} {field.type}" for field in schema),
            next_step="set source.text_field to the column that holds the text",
        )
    return kind


def read_rows(
    stream: BinaryIO,
    *,
    source: str,
    text_field: str,
    id_field: str,
    row_groups: tuple[int, int] | None = None,
    name: str = "",
) -> Iterator[DocumentBatch]:
    """The rows of a parquet file, or of its row groups [first, last), as documents; row numbers start at 0 there.

    `name`: of the file in messages, if `source` is that of a part.
    """
    name = name or source
    file = open_parquet(stream, name)
    text_column(file, name, text_field)
    columns = [text_field, *([id_field] if id_field != text_field and id_field in file.schema_arrow.names else [])]
    chunks = footer_of(stream, name)
    groups = {group: chunks[group] for group in range(*(row_groups or (0, len(chunks))))}
    first_row = 0
    texts: list[bytes | None] = []
    identities: list[bytes] = []
    size_bytes = 0
    for batch in _decoded(file, name, columns, groups, stream.seek(0, io.SEEK_END)):
        texts += (values := utf8_values(batch.column(text_field)))
        identities += _ids(batch, id_field, name) if id_field in columns else [b""] * batch.num_rows
        size_bytes += sum(len(value or b"") for value in values)
        if size_bytes >= BATCH_BYTES or len(texts) + DECODED_ROWS > ROWS:
            yield _documents(texts, identities, source, first_row)
            first_row += len(texts)
            texts, identities, size_bytes = [], [], 0
    if texts:
        yield _documents(texts, identities, source, first_row)


def _decoded(
    file: pq.ParquetFile, name: str, columns: list[str], groups: dict[int, list[ColumnChunk]], file_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Decode at most DECODED_ROWS at a time, fewer if they could be a bomb. Raises CorruptDataError for a bomb."""
    compressed_bytes = decoded_bytes = 0
    try:
        for group, chunks in groups.items():
            compressed, pages = _column_bytes(chunks, columns)
            compressed_bytes = min(file_bytes, compressed_bytes + compressed)
            require_plausible(name, compressed_bytes, pages)
            plausible_bytes = max(UNSUSPICIOUS_BYTES, LARGEST_RATIO * compressed)
            rows = min(DECODED_ROWS, max(1, plausible_bytes // max(1, pages)))  # no value is larger than its page
            decoded_rows = 0
            for batch in file.iter_batches(rows, row_groups=[group], columns=columns):
                decoded_rows += batch.num_rows
                decoded_bytes += batch.nbytes
                require_plausible(name, compressed_bytes, decoded_bytes)
                yield batch
            advance.note_done(compressed)
            if [decoded_rows] != [chunk.values for chunk in chunks if chunk.column == columns[0]]:
                raise ValueError(f"row group {group} does not have as many rows as values of {columns[0]}")
    except UNREADABLE as error:
        raise _corrupt(name, error) from error


def _column_bytes(chunks: list[ColumnChunk], columns: list[str]) -> tuple[int, int]:
    """(compressed, decompressed) bytes of the pages of these columns of a row group, as the footer states them."""
    read = [chunk for chunk in chunks if chunk.column in columns]
    return sum(chunk.compressed_bytes for chunk in read), sum(chunk.decompressed_bytes for chunk in read)


def _documents(texts: list[bytes | None], identities: list[bytes], source: str, first_row: int) -> DocumentBatch:
    accepted: list[bytes] = []
    ids: list[bytes] = []
    rows: list[int] = []
    rejections = []
    for row, (text, identity) in enumerate(zip(texts, identities, strict=True)):
        reason = _why_rejected(text, identity)
        if reason is None and text is not None:
            accepted.append(text)
            ids.append(identity)
            rows.append(first_row + row)
        else:
            assert reason is not None  # noqa: S101
            rejections.append(Rejection(reason, first_row + row, text or b""))
    size = sum(map(len, accepted)) + sum(map(len, ids)) + sum(len(rejection.raw) for rejection in rejections)
    return batch_of(source, accepted, ids, np.array(rows, np.uint64), size, rejections)


def utf8_values(column: Any) -> list[bytes | None]:
    """A text column's values as raw bytes, valid UTF-8 or not; None for null."""
    if isinstance(column.type, pa.DictionaryType):
        column = column.dictionary_decode()
    binary = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    values: list[bytes | None] = column.cast(binary).to_pylist()
    return values


def _why_rejected(text: bytes | None, identity: bytes) -> RejectionReason | None:
    if text is None:
        return RejectionReason.TEXT_NOT_A_STRING
    try:
        text.decode()
        identity.decode()
    except UnicodeDecodeError:
        return RejectionReason.INVALID_UTF8
    return None


def _ids(batch: pa.RecordBatch, id_field: str, name: str) -> list[bytes]:
    """Ids as bytes: strings as they are, valid UTF-8 or not, other values as JSON, null as b""."""
    column = batch.column(id_field)
    kind = column.type.value_type if isinstance(column.type, pa.DictionaryType) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [value or b"" for value in utf8_values(column)]
    try:
        values = column.to_pylist()
    except UNREADABLE as error:
        raise _corrupt(name, error) from error
    return [b"" if value is None else json.dumps(value, default=str, ensure_ascii=False).encode() for value in values]
