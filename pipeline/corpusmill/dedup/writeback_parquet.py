"""Rewrites tables, parquet or Arrow: rows without their duplicate ranges, or with the ranges in a separate column.

Every other column, the schema with its metadata, the type of the text column (columns.py), the row groups or record
batches, of parquet the compression of every column, and of Arrow whether it is a file or a stream are kept; pyarrow
encodes them, so the bytes of a file depend on its version. Rejected rows are left out. In mode annotate the column is
list<list<int64>>, its name the whole of `annotate_key`, dots included; other annotations state the type of theirs
(`Annotation.column`).

An Arrow file, unlike a stream, can have one dictionary for a column, to which batches add: a dictionary of rewritten
texts has those of all batches so far.

Price: one row group in memory, decompressed; of an Arrow file with a dictionary of texts also its different texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusmill.dedup.annotations import Annotation, require_column, text_parts
from corpusmill.dedup.writeback import (
    WriteBackCounts,
    WriteBackOptions,
    documents_of,
    own_annotation,
    without_ranges,
)
from corpusmill.documents.arrow import ArrowTable
from corpusmill.documents.columns import (
    field_at,
    text_array,
    text_place,
    type_at,
    utf8_values,
    value_type,
    with_field,
)
from corpusmill.documents.compression import is_parquet
from corpusmill.documents.located import changed_source
from corpusmill.documents.parquet import footer_of, open_parquet, read_group
from corpusmill.documents.text_shard import IndexedSource
from corpusmill.errors import SourceError
from corpusmill.kernels.content import NOTHING
from corpusmill.kernels.content_kernels import placed_sum

RANGES = pa.list_(pa.list_(pa.int64()))


def write_back_table(
    stream: BinaryIO,
    sink: BinaryIO,
    *,
    row_groups: tuple[int, int] | None,
    indexed: IndexedSource,
    ranges: NDArray[np.uint64],
    options: WriteBackOptions,
    annotations: Sequence[Annotation] = (),
    unit: int = 0,
) -> WriteBackCounts:
    """Copies the rows of a parquet file, or of its row groups [first, last), and edits them; see write_back_file.

    Row numbers count from the first row of these row groups. Raises CorruptDataError for a row that changed since it
    was indexed, or a range that is not inside one document; ConfigError for an annotation whose column exists;
    SourceError for texts that an Arrow file's dictionary cannot number.
    """
    copied = (_Parquet if is_parquet(indexed.path) else _Arrow)(stream, indexed.path)
    place = text_place(copied.schema, indexed.path, options.text_field)
    arrays = _TextArrays(type_at(copied.schema, place), indexed.path, one_dictionary=copied.one_dictionary)
    annotated = options.mode == "annotate"
    of_file = documents_of(indexed, ranges, options)
    added = [*own_annotation(of_file, options, RANGES), *annotations]
    schema = _schema(copied.schema, added, indexed.path)
    rows = indexed.line_numbers.astype(np.int64)
    counts, first_row = WriteBackCounts(), 0
    with copied.writer(sink, schema) as write:
        for table in copied.tables(row_groups):
            low, high = np.searchsorted(rows, [first_row, first_row + table.num_rows]).tolist()
            kept = table.take(rows[low:high] - first_row)
            first_row += table.num_rows
            texts = [text or b"" for text in utf8_values(field_at(kept, place))]
            parts = text_parts(texts)
            _require_unchanged(parts, indexed, low)
            rewritten = indexed.rewritten[slice(*np.searchsorted(indexed.rewritten, [low, high]))]
            if len(rewritten):
                texts = _as_indexed(texts, indexed, low, rewritten)
                parts = text_parts(texts)
            if annotated and (len(rewritten) or (arrays.one_dictionary and len(indexed.rewritten))):
                kept = with_field(kept, place, arrays.of(texts))
            documents = np.arange(low, high)
            row_ranges = [of_file.ranges_of(document) for document in documents.tolist()]
            cut = texts if annotated else [*map(without_ranges, texts, row_ranges)]
            counts.documents_in += len(texts)
            changed_rows = np.array([*map(bool, row_ranges)], np.bool_)
            changed_rows[rewritten - low] = True
            counts.documents_changed += int(np.count_nonzero(changed_rows))
            counts.text_bytes_in += sum(map(len, texts))
            written = parts if annotated else text_parts(cut)
            ordinals = np.arange(low, high, dtype=np.uint64) + np.uint64(indexed.first_document)
            counts.text_content += placed_sum(parts, unit, ordinals)
            counts.kept_content += placed_sum(written, unit, ordinals)
            counts.text_bytes_out += sum(map(len, cut))
            if not annotated:
                counts.text_bytes_removed += sum(end - start for spans in row_ranges for start, end in spans)
                counts.documents_intact += int(np.count_nonzero((written == parts).all(axis=0)[~changed_rows]))
                emptied = changed_rows & np.array([not text for text in cut], np.bool_)
                counts.documents_empty += int(np.count_nonzero(emptied))
                kept = with_field(kept, place, arrays.of(cut))
                if options.drop_empty:
                    kept, documents = kept.filter(pa.array(~emptied)), documents[~emptied]
            kept = _annotated(kept, documents.tolist(), added, indexed, unit)
            counts.documents_out += kept.num_rows
            write(kept.cast(schema))
    if counts.documents_in != len(rows):
        raise changed_source(indexed, counts.documents_in, f"{indexed.place(first_row)[1]:,} rows up to its end")
    counts.noted_content = sum((annotation.tally for annotation in added), NOTHING)
    return counts


def _annotated(
    table: pa.Table, documents: list[int], annotations: Sequence[Annotation], indexed: IndexedSource, unit: int
) -> pa.Table:
    """A table whose rows are these documents, counted within the file, with a column for each annotation."""
    for annotation in annotations:
        values = pa.array([annotation.value_of(document) for document in documents], annotation.column)
        annotation.count(zip(documents, values.to_pylist(), strict=True), unit, indexed.first_document)
        table = _with_column(table, annotation.key, values)
    return table


def _require_unchanged(parts: NDArray[np.uint64], indexed: IndexedSource, first: int) -> None:
    """CorruptDataError for a row, of the documents from `first` on, whose text is not the one that was indexed."""
    changed = np.flatnonzero(parts[0] != indexed.line_hashes[first : first + parts.shape[1]])
    if len(changed):
        raise changed_source(indexed, first + int(changed[0]), "another text")


def _as_indexed(texts: list[bytes], indexed: IndexedSource, first: int, rewritten: NDArray[np.int64]) -> list[bytes]:
    """The texts of documents from `first` on, with those that a step changed replaced by the indexed text."""
    others = {document - first: indexed.text_of(document) for document in rewritten.tolist()}
    return [others.get(number, text) for number, text in enumerate(texts)]


def _schema(schema: pa.Schema, annotations: Sequence[Annotation], source: str) -> pa.Schema:
    """A schema with the columns of annotations."""
    for annotation in annotations:
        column = pa.field(annotation.key, annotation.column)
        place = schema.get_field_index(annotation.key)
        require_column(schema.names, annotation.key, source, replace_existing=annotation.replace_existing)
        schema = schema.append(column) if place < 0 else schema.set(place, column)
    return schema


def _with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.append_column(name, values) if place < 0 else table.set_column(place, name, values)


class _TextArrays:
    """Texts as arrays of a column's type. With `one_dictionary` each array's dictionary begins with that of the one
    before it.
    """

    def __init__(self, kind: Any, name: str, *, one_dictionary: bool) -> None:
        self._kind, self._name = kind, name
        self.one_dictionary = one_dictionary and pa.types.is_dictionary(kind)
        self._numbers: dict[bytes, int] = {}
        self._dictionary: Any = text_array([], value_type(kind))

    def of(self, texts: list[bytes]) -> Any:
        if not self.one_dictionary:
            return text_array(texts, self._kind)
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in texts]
        new = [*islice(self._numbers, len(self._dictionary), None)]
        try:
            if new:
                self._dictionary = pa.concat_arrays([self._dictionary, text_array(new, self._dictionary.type)])
            numbered = pa.array(numbers, self._kind.index_type)
            return pa.DictionaryArray.from_arrays(numbered, self._dictionary, ordered=self._kind.ordered)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise SourceError(
                "writeback.dictionary_full: the dictionary of a text column cannot hold the texts that are left",
                where=self._name,
                expected=f"texts that {self._kind} can number",
                got=f"{len(self._numbers):,} different texts, or more bytes than its type can place",
                next_step="save the file with a column of large_string, without a dictionary",
            ) from error


class _Parquet:
    """A parquet file to copy, a row group at a time."""

    one_dictionary = False

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._file = open_parquet(stream, name)
        self.schema = self._file.schema_arrow

    def tables(self, row_groups: tuple[int, int] | None) -> Iterator[pa.Table]:
        for group in range(*(row_groups or (0, self._file.metadata.num_row_groups))):
            yield read_group(self._file, group, self._name)

    @contextmanager
    def writer(self, sink: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
        compression: Any = {chunk.path: chunk.codec for chunk in (footer_of(self._stream, self._name) or [[]])[0]}
        with pq.ParquetWriter(sink, schema, compression=compression or "none") as writer:
            yield lambda table: writer.write_table(table, row_group_size=max(1, table.num_rows))


class _Arrow:
    """An Arrow file or stream to copy, a record batch at a time."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._table = ArrowTable(stream, name)
        self.schema = self._table.schema
        self.one_dictionary = self._table.is_file

    def tables(self, _row_groups: tuple[int, int] | None) -> Iterator[pa.Table]:
        for batch in self._table.batches():
            yield pa.Table.from_batches([batch])

    @contextmanager
    def writer(self, sink: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
        new: Any = pa.ipc.new_file if self._table.is_file else pa.ipc.new_stream
        options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=self.one_dictionary)
        with new(sink, schema, options=options) as writer:
            yield writer.write_table
