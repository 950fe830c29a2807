"""Reads and verifies the files of parquet.py by pyarrow: pages by CRC, columns by what ids and pieces imply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusmill.export.checks import scan_ids, scan_special_tokens
from corpusmill.export.files import fault, file_bytes
from corpusmill.export.framing import Framing
from corpusmill.export.parquet import Rows, schema_of, table_of

TEXT_READ = pa.schema([pa.field("text", pa.string())])


@dataclass
class ParquetRows:
    """An opened file; the row group read last stays in memory."""

    path: Path
    file: pq.ParquetFile
    column: str
    ends: list[int]  # of row groups, in rows
    _last: tuple[int, Any] = field(default=(-1, None))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, number: int) -> NDArray[Any]:
        """The ids of a row, or the bytes of its text. VerificationError for a damaged page."""
        group, place = self.place(number)
        if self._last[0] != group:
            table = _read_group(self.path, self.file, group, [self.column])
            values, lengths = values_of(table.column(0))
            self._last = (group, (values, np.append(0, np.cumsum(lengths))))
        values, bounds = self._last[1]
        row: NDArray[Any] = values[bounds[place] : bounds[place + 1]]
        return row

    def place(self, number: int) -> tuple[int, int]:
        """(row group, row in it) of a row."""
        group = int(np.searchsorted(self.ends, number, side="right"))
        return group, number - (self.ends[group - 1] if group else 0)


def open_file(path: Path, column: str = "input_ids") -> ParquetRows:
    """Open a file and read its footer. VerificationError for one that is not parquet with such a column."""
    size = file_bytes(path)
    try:
        opened = pq.ParquetFile(path, page_checksum_verification=True)
        rows = [opened.metadata.row_group(group).num_rows for group in range(opened.metadata.num_row_groups)]
        kind = opened.schema_arrow.field(opened.schema_arrow.names.index(column)).type
    except (pa.ArrowException, OSError, ValueError) as error:  # names that are no UTF-8 are a ValueError, too
        raise fault(
            "rows.not_readable: the footer cannot be read",
            path,
            max(0, size - 8),
            expected=f"parquet with a column {column}",
            got=type(error).__name__,
        ) from error
    right = pa.string() if column == "text" else schema_of([column]).field(0).type
    if kind != right:
        raise fault(f"rows.column_type: {column} has another type", path, 0, expected=str(right), got=str(kind))
    return ParquetRows(path, opened, column, np.cumsum(rows).tolist())


def _read_group(path: Path, file: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.Table:
    try:
        table = file.read_row_group(group, columns=list(columns), use_threads=False).combine_chunks()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise fault(
            f"rows.group_not_readable: row group {group} cannot be read",
            path,
            file.metadata.row_group(group).column(0).data_page_offset,
            expected="pages with their CRC",
            got=type(error).__name__,
        ) from error
    stated = file.metadata.row_group(group).num_rows
    if table.num_rows != stated:
        raise fault(
            f"rows.rows_miscounted: row group {group} has another number of rows than the footer states",
            path,
            0,
            expected=stated,
            got=table.num_rows,
        )
    if any(column.null_count for column in table.columns):
        raise fault(f"rows.null: row group {group} has a null", path, 0, expected="values", got="null")
    return table


def values_of(column: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(values, how many of them each row has) of an array of lists, or of strings, whose values are bytes. A chunked
    array may have strings of more than 2 GiB.
    """
    of_text = not pa.types.is_list(column.type)
    column = column.cast(pa.large_binary()) if of_text else column
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if of_text:
        _, offsets, data = column.buffers()
        bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
        return np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]], np.diff(bounds)
    return column.flatten().to_numpy(zero_copy_only=False), column.value_lengths().to_numpy().astype(np.int64)


def verify_documents(
    path: Path, *, vocabulary_size: int, framing: Framing, columns: Sequence[str], loss_mask: str, rows_per_group: int
) -> dict[str, int]:
    """Check every page and value of a file whose rows are documents.

    VerificationError, naming the file, for what open_file refuses, other columns or types than asked for, row groups of
    another size, damaged pages, ids outside the vocabulary, rows without their special tokens, and columns that do not
    follow from the ids. Returns documents, tokens, special_tokens.
    """
    documents = tokens = 0
    for group, table in _checked_groups(path, vocabulary_size, columns, rows_per_group):
        ids, lengths = values_of(table.column("input_ids"))
        least = framing.special_tokens + (framing.empty_documents == "skip")
        _require_lengths(path, group, lengths, least, None)
        ends = np.cumsum(lengths)
        scan_special_tokens(path, ids, ends - lengths, ends, framing, documents)
        _require_columns(path, group, table, Rows.documents(ids, lengths), loss_mask)
        documents, tokens = documents + len(lengths), tokens + len(ids)
    special = framing.special_tokens * documents
    return {"documents": documents, "tokens": tokens - special, "special_tokens": special}


def verify_texts(path: Path, *, rows_per_group: int) -> dict[str, int]:
    """Check every page of a file whose rows are texts: UTF-8, in row groups of this many but for the last.

    VerificationError, naming the file, for what open_file refuses and for all else. Returns records, bytes.
    """
    records = size = 0
    for _, table in _groups_of(path, open_file(path, "text"), TEXT_READ, rows_per_group):
        values, lengths = values_of(table.column(0))
        records, size = records + len(lengths), size + len(values)
    return {"records": records, "bytes": size}


def verify_contexts(
    path: Path,
    *,
    context_tokens: int,
    vocabulary_size: int,
    columns: Sequence[str],
    loss_mask: str,
    rows_per_group: int,
) -> dict[str, int]:
    """Check every page and value of a file whose rows are contexts of at most `context_tokens`.

    VerificationError as in verify_documents, and for columns that contradict each other: the pieces are those that the
    first column with pieces states. Returns records, tokens.
    """
    records = tokens = 0
    for group, table in _checked_groups(path, vocabulary_size, columns, rows_per_group):
        ids, lengths = values_of(table.column("input_ids"))
        _require_lengths(path, group, lengths, 1, context_tokens)
        _require_columns(path, group, table, _stated_rows(table, ids, lengths, loss_mask), loss_mask)
        records, tokens = records + len(lengths), tokens + len(ids)
    return {"records": records, "tokens": tokens}


def _checked_groups(
    path: Path, vocabulary_size: int, columns: Sequence[str], rows_per_group: int
) -> Iterator[tuple[int, pa.Table]]:
    """The number and the table of each row group, of the right columns and size, its ids in the vocabulary."""
    for group, table in _groups_of(path, open_file(path), schema_of(columns), rows_per_group):
        scan_ids(path, values_of(table.column("input_ids"))[0], vocabulary_size)
        yield group, table


def _groups_of(
    path: Path, opened: ParquetRows, schema: pa.Schema, rows_per_group: int
) -> Iterator[tuple[int, pa.Table]]:
    """The number and the table of each row group, of the right columns and size."""
    _require_schema(path, opened, schema)
    for group in range(len(opened.ends)):
        table = _read_group(path, opened.file, group, schema.names)
        if table.num_rows != rows_per_group and group < len(opened.ends) - 1:
            raise fault(
                f"rows.group_size: row group {group} has another number of rows",
                path,
                0,
                expected=rows_per_group,
                got=table.num_rows,
            )
        yield group, table


def _require_schema(path: Path, opened: ParquetRows, schema: pa.Schema) -> None:
    if not opened.file.schema_arrow.equals(schema):
        raise fault(
            "rows.columns_differ: the columns are not those asked for",
            path,
            0,
            expected=", ".join(map(str, schema)),
            got=", ".join(map(str, opened.file.schema_arrow)),
        )


def _require_lengths(path: Path, group: int, lengths: NDArray[np.int64], least: int, most: int | None) -> None:
    if int(lengths.min(initial=least)) < least:
        raise fault(
            f"rows.row_too_short: row group {group} has a row that is too short",
            path,
            0,
            expected=least,
            got=int(lengths.min()),
        )
    if most is not None and int(lengths.max(initial=0)) > most:
        raise fault(
            f"rows.row_too_long: row group {group} has a row that is too long",
            path,
            0,
            expected=most,
            got=int(lengths.max()),
        )


def _require_columns(path: Path, group: int, table: pa.Table, rows: Rows, loss_mask: str) -> None:
    wrong = _wrong_column(table, rows, loss_mask) if rows.fit_together else "the lengths of pieces"
    if wrong:
        raise fault(
            f"rows.column_differs: {wrong} does not follow from the ids",
            path,
            0,
            expected=f"row group {group} as the ids have it",
            got="other values",
        )


def _wrong_column(table: pa.Table, rows: Rows, loss_mask: str) -> str:
    """The first column that these rows have otherwise, or ""."""
    expected = table_of(rows, table.column_names, loss_mask)
    return next((name for name in table.column_names if not expected.column(name).equals(table.column(name))), "")


def wrong_columns(
    path: Path, numbers: Iterable[int], expected: Iterable[Rows], columns: Sequence[str], loss_mask: str
) -> Iterator[str]:
    """For each of some rows, in ascending order, the first column that differs from what is expected, or ""."""
    opened = open_file(path)
    _require_schema(path, opened, schema_of(columns))
    read = -1
    for number, row in zip(numbers, expected, strict=True):
        group, place = opened.place(number)
        if group != read:
            table = _read_group(path, opened.file, group, columns)
            read = group
        yield _wrong_column(table.slice(place, 1), row, loss_mask)


def _stated_rows(table: pa.Table, ids: NDArray[Any], lengths: NDArray[np.int64], loss_mask: str) -> Rows:
    """The rows with the pieces that the first column states that has any; without one a row is a piece."""
    states = ["seq_lengths", "seq_start_id", "position_ids", *(["loss_mask"] if loss_mask == "token" else [])]
    stating = next((name for name in states if name in table.column_names), None)
    if stating is None:
        return Rows.documents(ids, lengths)
    values, counts = values_of(table.column(stating))
    if stating == "seq_lengths":
        return Rows(ids, lengths, values.astype(np.int64), counts)
    starts = np.cumsum(lengths) - lengths
    begins = np.repeat(starts, counts) + values if stating == "seq_start_id" else np.flatnonzero(values == 0)
    if stating != "seq_start_id":
        counts = np.diff(np.searchsorted(begins, np.append(starts, len(ids))))
    return Rows(ids, lengths, np.diff(begins, append=len(ids)).astype(np.int64), counts)
