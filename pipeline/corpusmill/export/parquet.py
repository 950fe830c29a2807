"""Ids in parquet, a record a row: `<stem>.parquet`, for Trainer, TRL, Axolotl, SkyRL, Megatron-Bridge and MaxText.

    PAR1 | row group: a page or more of each column, each with its CRC | ... | footer | its bytes u32 | PAR1

    input_ids       list<int32>   the record with its special tokens; rows are never padded
    labels          list<int32>   the same: models shift labels themselves
    attention_mask  list<int8>    ones
    loss_mask       list<int8>    token: 0 for the first token, which nothing predicts, then ones; label: ones
    position_ids    list<int32>   0, 1, 2 ... from the beginning of a document
    seq_lengths     list<int32>   tokens of each document; they add up to the row
    seq_start_id    list<int32>   where each document begins; the first 0

Source: huggingface/transformers, trl, axolotl-ai-cloud/axolotl, NovaSky-AI/SkyRL and NVIDIA-NeMo/Megatron-Bridge; the
readers take lists, not lists of a fixed size. Columns appear as asked for, in that order.

Invariants: row groups have `rows_per_group` rows but for the last of a file, whatever the batches; no column has a
null. Pages are neither compressed nor dictionaries: ids hardly repeat within a page.

Price: memory is a row group of all columns. The bytes depend on pyarrow's version, which receipts name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusmill.export.checks import scan_ids, scan_special_tokens
from corpusmill.export.files import fault, file_bytes, whole_file
from corpusmill.export.framing import Framing, ignore_sums, no_counts, refuse_ids_beyond
from corpusmill.export.framing import frame as framed_batch
from corpusmill.tokens.token_shard import Batch

if TYPE_CHECKING:
    from corpusmill.kernels.content_kernels import Words

ONE_A_DOCUMENT = {"seq_lengths", "seq_start_id"}
BYTES = {"attention_mask": pa.int8(), "loss_mask": pa.int8()}
Rows: TypeAlias = tuple[NDArray[Any], NDArray[np.int64]]
"""(ids of consecutive rows, int32; tokens of each row)."""


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of a file with these columns."""
    kinds = {name: BYTES.get(name, pa.int32()) for name in columns}
    return pa.schema([pa.field(name, pa.list_(pa.field("element", kind))) for name, kind in kinds.items()])


def write_documents(
    path: Path,
    batches: Iterable[Batch],
    framing: Framing,
    *,
    vocabulary_size: int,
    columns: Sequence[str],
    loss_mask: str,
    rows_per_group: int,
    written: Callable[[Words], None] = ignore_sums,
) -> dict[str, int]:
    """Write a document a row; without a document, no file. Returns documents, tokens, special_tokens.

    `written` is given the token sums (content_kernels.py) of each batch's documents. CorruptDataError for malformed
    batches and ids outside the vocabulary, StorageFullError when the device is full.
    """
    framing.refuse_unfit(vocabulary_size)
    counts = no_counts()
    dtype = np.dtype("<i4")
    refuse_ids_beyond(np.iinfo(dtype).max, np.array([vocabulary_size - 1]), dtype, str(path))

    def rows() -> Iterator[Rows]:
        read = 0
        for batch in batches:
            framed = framed_batch(batch, framing, dtype=dtype, vocabulary_size=vocabulary_size, first_document=read)
            read += batch[-1].size
            written(framed.token_sums(framing))
            framed.add_to(counts)
            yield framed.tokens, framed.document_lengths

    with whole_file(path) as file:
        for number, (ids, lengths) in enumerate(_groups(rows(), rows_per_group)):
            if number == 0:
                writer = pq.ParquetWriter(
                    file,
                    schema_of(columns),
                    compression="none",
                    use_dictionary=False,
                    write_statistics=False,
                    write_page_checksum=True,
                    store_schema=False,
                )
            writer.write_table(_table(ids, lengths, columns, loss_mask), row_group_size=rows_per_group)
        if counts["documents"]:
            writer.close()
    return counts


def _groups(batches: Iterable[Rows], rows_per_group: int) -> Iterator[Rows]:
    """The same rows, so many at a time; the last time the rest."""
    waiting: list[Rows] = []
    held = 0
    for ids, lengths in batches:
        waiting.append((ids, lengths))
        held += len(lengths)
        if held < rows_per_group:
            continue
        whole, sizes = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        ends = np.cumsum(sizes)
        first = begin = 0
        for last in range(rows_per_group, held + 1, rows_per_group):
            yield whole[begin : ends[last - 1]], sizes[first:last]
            first, begin = last, int(ends[last - 1])
        waiting, held = [(whole[begin:], sizes[first:])], held - first
    if held:
        ids, lengths = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        yield ids, lengths


def _table(ids: NDArray[np.int32], lengths: NDArray[np.int64], columns: Sequence[str], loss_mask: str) -> pa.Table:
    offsets: Any = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    single: Any = pa.array(np.arange(len(lengths) + 1, dtype=np.int32))
    schema = schema_of(columns)
    arrays: list[Any] = []
    for name in columns:
        values: Any = pa.array(_values(name, ids, lengths, loss_mask))
        column = pa.ListArray.from_arrays(single if name in ONE_A_DOCUMENT else offsets, values)
        arrays.append(column.cast(schema.field(name).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(name: str, ids: NDArray[np.int32], lengths: NDArray[np.int64], loss_mask: str) -> NDArray[Any]:
    """The values of a column, row after row, of rows that are a document each."""
    starts = np.cumsum(lengths) - lengths
    if name in {"input_ids", "labels"}:
        return ids
    if name == "seq_lengths":
        return lengths.astype(np.int32)
    if name == "seq_start_id":
        return np.zeros(len(lengths), np.int32)
    if name == "position_ids":
        return (np.arange(len(ids)) - np.repeat(starts, lengths)).astype(np.int32)
    ones = np.ones(len(ids), np.int8)
    if name == "loss_mask" and loss_mask == "token":
        ones[starts[lengths > 0]] = 0
    return ones


@dataclass
class ParquetRows:
    """An opened file; the row group read last stays in memory."""

    path: Path
    file: pq.ParquetFile
    ends: list[int]  # of row groups, in rows
    _last: tuple[int, Any] = field(default=(-1, None))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def row(self, number: int) -> NDArray[Any]:
        """The ids of a row. VerificationError for a damaged page."""
        group = int(np.searchsorted(self.ends, number, side="right"))
        if self._last[0] != group:
            self._last = (group, _read_group(self.path, self.file, group, ["input_ids"]).column(0))
        column = self._last[1]
        return np.asarray(column[number - (self.ends[group - 1] if group else 0)].values, np.int32)


def open_file(path: Path) -> ParquetRows:
    """Open a file and read its footer. VerificationError for one that is not parquet with a column of ids."""
    size = file_bytes(path)
    try:
        opened = pq.ParquetFile(path, page_checksum_verification=True)
        rows = [opened.metadata.row_group(group).num_rows for group in range(opened.metadata.num_row_groups)]
        ids = opened.schema_arrow.field(opened.schema_arrow.names.index("input_ids")).type
    except (pa.ArrowException, OSError, ValueError) as error:  # names that are no UTF-8 are a ValueError, too
        raise fault(
            "rows.not_readable: the footer cannot be read",
            path,
            max(0, size - 8),
            expected="parquet with a column input_ids",
            got=type(error).__name__,
        ) from error
    if ids != schema_of(["input_ids"]).field(0).type:
        raise fault("rows.column_type: ids are not a list of int32", path, 0, expected="list<int32>", got=str(ids))
    return ParquetRows(path, opened, np.cumsum(rows).tolist())


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
        raise fault(f"rows.null: row group {group} has a null", path, 0, expected="lists", got="null")
    return table


def ids_of(column: Any) -> Rows:
    """(ids, tokens of each row) of an array of lists."""
    return column.flatten().to_numpy(zero_copy_only=False), column.value_lengths().to_numpy().astype(np.int64)


def verify_documents(
    path: Path, *, vocabulary_size: int, framing: Framing, columns: Sequence[str], loss_mask: str, rows_per_group: int
) -> dict[str, int]:
    """Check every page and value of a file whose rows are documents.

    VerificationError, naming the file, for what open_file refuses, other columns or types than asked for, row groups of
    another size, damaged pages, ids outside the vocabulary, rows without their special tokens, and columns that do not
    follow from the ids. Returns documents, tokens, special_tokens.
    """
    opened = open_file(path)
    if not opened.file.schema_arrow.equals(schema_of(columns)):
        raise fault(
            "rows.columns_differ: the columns are not those asked for",
            path,
            0,
            expected=", ".join(map(str, schema_of(columns))),
            got=", ".join(map(str, opened.file.schema_arrow)),
        )
    documents = tokens = 0
    for group, end in enumerate(opened.ends):
        table = _read_group(path, opened.file, group, columns)
        if table.num_rows != rows_per_group and group < len(opened.ends) - 1:
            raise fault(
                f"rows.group_size: row group {group} has another number of rows",
                path,
                0,
                expected=rows_per_group,
                got=table.num_rows,
            )
        ids, lengths = ids_of(table.column("input_ids").combine_chunks())
        least = framing.special_tokens + (framing.empty_documents == "skip")
        if int(lengths.min(initial=least)) < least:
            raise fault(
                f"rows.row_too_short: row group {group} has a row that is too short",
                path,
                0,
                expected=least,
                got=int(lengths.min()),
            )
        ends = np.cumsum(lengths)
        scan_ids(path, ids, vocabulary_size)
        scan_special_tokens(path, ids, ends - lengths, ends, framing, end - len(lengths))
        expected = _table(ids, lengths, columns, loss_mask)
        wrong = [name for name in columns if not expected.column(name).equals(table.column(name))]
        if wrong:
            raise fault(
                f"rows.column_differs: {wrong[0]} does not follow from the ids",
                path,
                0,
                expected=f"row group {group} as the ids have it",
                got="other values",
            )
        documents, tokens = documents + len(lengths), tokens + len(ids)
    special = framing.special_tokens * documents
    return {"documents": documents, "tokens": tokens - special, "special_tokens": special}
