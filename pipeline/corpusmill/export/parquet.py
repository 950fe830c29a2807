"""Ids or text in parquet, a record a row: `<stem>.parquet`, for Trainer, TRL, Axolotl, SkyRL, Megatron-Bridge, MaxText,
and nanochat.

    PAR1 | row group: a page or more of each column, each with its CRC | ... | footer | its bytes u32 | PAR1

    input_ids       list<int32>   the record with its special tokens; rows are never padded
    labels          list<int32>   the same: models shift labels themselves
    attention_mask  list<int8>    ones
    loss_mask       list<int8>    token: 0 for a document's first token, which nothing predicts, then ones; label: ones
    position_ids    list<int32>   0, 1, 2 ... from the beginning of a document
    seq_lengths     list<int32>   tokens of each document; they add up to the row
    seq_start_id    list<int32>   where each document begins; the first 0
    text            string        alone: the document's text, compressed by zstd; no BOS or EOS, which loaders add

A context that begins within a document begins as one: its position is 0. Where its documents end is known from
packing; EOT in a text, or none around documents, does not matter.

Source: huggingface/transformers, trl, axolotl-ai-cloud/axolotl, NovaSky-AI/SkyRL and NVIDIA-NeMo/Megatron-Bridge; the
readers take lists, not lists of a fixed size. Columns appear as asked for, in that order.

Invariants: row groups have `rows_per_group` rows but for the last of a file, whatever the batches; no column has a
null. Pages of ids are neither compressed nor dictionaries: ids hardly repeat within a page.

Price: memory is a row group of all columns. The bytes depend on pyarrow's version, which receipts name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusmill.config.exports import LARGEST_LIST_COLUMN
from corpusmill.errors import CorruptDataError, PermanentError
from corpusmill.export.files import whole_file
from corpusmill.export.framing import Framing, ignore_sums, no_counts, refuse_ids_beyond
from corpusmill.export.framing import frame as framed_batch
from corpusmill.kernels.content_kernels import token_sums
from corpusmill.kernels.slices import starts_of
from corpusmill.tokens.token_shard import Batch

if TYPE_CHECKING:
    from corpusmill.kernels.content_kernels import Words

ONE_A_PIECE = {"seq_lengths", "seq_start_id"}
TEXT = pa.schema([pa.field("text", pa.large_string())])
TEXTS_A_PAGE = 16  # or more, up to 1 MiB: a page of 2 GiB cannot be written
BYTES = {"attention_mask": pa.int8(), "loss_mask": pa.int8()}


class Rows(NamedTuple):
    """Consecutive rows: ids int32; tokens of each row, tokens of each of their pieces, pieces of each row, int64.

    A piece is what a row has of a document: all of it, or in a context a part.
    """

    ids: NDArray[Any]
    lengths: NDArray[np.int64]
    pieces: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def documents(cls, ids: NDArray[Any], lengths: NDArray[np.int64]) -> Rows:
        """Rows that are a document each."""
        return cls(ids, lengths, lengths, np.ones(len(lengths), np.int64))

    @classmethod
    def one(cls, ids: NDArray[Any], pieces: NDArray[Any]) -> Rows:
        """One row of these pieces."""
        return cls(ids.astype("<i4"), np.array([len(ids)]), pieces.astype(np.int64), np.array([len(pieces)]))

    @property
    def fit_together(self) -> bool:
        """Whether each row is filled by its pieces, none of which is empty."""
        ends, pieces = np.cumsum(self.lengths), np.append(0, np.cumsum(self.pieces))
        if int(self.counts.sum()) != len(self.pieces) or int(self.lengths.sum()) != len(self.ids):
            return False
        filled = pieces[np.cumsum(self.counts)]
        return bool((self.pieces > 0).all() and np.array_equal(filled, ends))


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
            yield Rows.documents(framed.tokens, framed.document_lengths)

    _write(path, rows(), rows_per_group, schema_of(columns), lambda group: table_of(group, columns, loss_mask))
    return counts


def write_contexts(
    path: Path,
    contexts: Iterable[Rows],
    *,
    vocabulary_size: int,
    columns: Sequence[str],
    loss_mask: str,
    rows_per_group: int,
    written: Callable[[Words], None] = ignore_sums,
) -> dict[str, int]:
    """Write a context a row, its special tokens among its ids; without a context, no file. Returns records, tokens.

    Ids may be of any integer type. `written` as in write_documents. CorruptDataError for ids outside the vocabulary and
    for pieces that do not fill their contexts, StorageFullError when the device is full.
    """
    counts = {"records": 0, "tokens": 0}
    refuse_ids_beyond(np.iinfo("<i4").max, np.array([vocabulary_size - 1]), np.dtype("<i4"), str(path))

    def rows() -> Iterator[Rows]:
        for batch in contexts:
            where = f"the batch that begins at context {counts['records']}"
            refuse_ids_beyond(vocabulary_size, batch.ids, np.dtype("<i4"), where)
            if not batch.fit_together:
                raise CorruptDataError(
                    "rows.pieces_do_not_fill: the pieces of contexts do not fill them",
                    where=f"{path}, {where}",
                    expected=f"pieces of {len(batch.ids):,} tokens in {len(batch.lengths):,} contexts",
                    got=f"{len(batch.pieces):,} pieces of {int(batch.pieces.sum()):,} tokens",
                )
            lengths = batch.lengths.astype(np.uint64)
            written(token_sums(batch.ids, starts_of(lengths), lengths, np.zeros(len(lengths), np.uint64)))
            counts["records"] += len(lengths)
            counts["tokens"] += len(batch.ids)
            yield batch._replace(ids=batch.ids.astype("<i4"))

    _write(path, rows(), rows_per_group, schema_of(columns), lambda group: table_of(group, columns, loss_mask))
    return counts


def write_texts(
    path: Path, texts: Iterable[Batch], *, rows_per_group: int, written: Callable[[Words], None] = ignore_sums
) -> dict[str, int]:
    """Write a text a row, of batches (UTF-8 uint8, cumulative ends); without a text, no file. Returns records, bytes.

    `written` as in write_documents, of bytes. CorruptDataError for what is not UTF-8, StorageFullError when the device
    is full.
    """
    counts = {"records": 0, "bytes": 0}

    def rows() -> Iterator[Rows]:
        for text, ends in texts:
            lengths = np.diff(ends, prepend=np.uint64(0))
            written(token_sums(text, starts_of(lengths), lengths, np.zeros(len(lengths), np.uint64)))
            counts["records"] += len(lengths)
            counts["bytes"] += len(text)
            yield Rows.documents(text, lengths.astype(np.int64))

    def table(group: Rows) -> pa.Table:
        offsets = np.append(0, np.cumsum(group.lengths))
        column = pa.LargeStringArray.from_buffers(
            len(group.lengths),
            pa.py_buffer(np.ascontiguousarray(offsets).data),
            pa.py_buffer(np.ascontiguousarray(group.ids).data),
        )
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptDataError(
                "rows.text_not_utf8: a text is not UTF-8",
                where=f"{path}, a row group that ends before row {counts['records']:,}",
                expected="UTF-8",
                next_step="report this, it is a bug: such a text is not tokenized",
            ) from error
        return pa.Table.from_arrays([column], schema=TEXT)

    options = {"compression": "zstd", "compression_level": 3, "write_batch_size": TEXTS_A_PAGE}
    _write(path, rows(), rows_per_group, TEXT, table, **options)
    return counts


def _write(
    path: Path,
    batches: Iterable[Rows],
    rows_per_group: int,
    schema: pa.Schema,
    table: Callable[[Rows], pa.Table],
    **options: Any,
) -> None:
    with whole_file(path) as file, ExitStack() as opened:
        writer = None
        for rows in _groups(batches, rows_per_group):
            if writer is None:
                writer = opened.enter_context(
                    pq.ParquetWriter(
                        file,
                        schema,
                        use_dictionary=False,
                        write_statistics=False,
                        write_page_checksum=True,
                        store_schema=False,
                        **({"compression": "none"} | options),
                    )
                )
            writer.write_table(table(rows), row_group_size=rows_per_group)


def _groups(batches: Iterable[Rows], rows_per_group: int) -> Iterator[Rows]:
    """The same rows, so many at a time; the last time the rest."""
    waiting: list[Rows] = []
    held = 0
    for batch in batches:
        waiting.append(batch)
        held += len(batch.lengths)
        if held < rows_per_group:
            continue
        parts = list(_parts(_together(waiting), rows_per_group))
        held %= rows_per_group
        waiting = [parts.pop()] if held else []
        yield from parts
    if held:
        yield _together(waiting)


def _together(rows: list[Rows]) -> Rows:
    return Rows(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


def _parts(rows: Rows, size: int) -> Iterator[Rows]:
    """The same rows, `size` at a time."""
    ids, pieces = (np.append(0, np.cumsum(counted)) for counted in (rows.lengths, rows.counts))
    for first in range(0, len(rows.lengths), size):
        last = min(first + size, len(rows.lengths))
        own = slice(first, last)
        yield Rows(
            rows.ids[ids[first] : ids[last]],
            rows.lengths[own],
            rows.pieces[pieces[first] : pieces[last]],
            rows.counts[own],
        )


def table_of(rows: Rows, columns: Sequence[str], loss_mask: str) -> pa.Table:
    """The rows with these columns. PermanentError for more ids than pyarrow's lists hold in a row group."""
    if len(rows.ids) > LARGEST_LIST_COLUMN:
        raise PermanentError(
            "rows.group_too_large: a row group has more ids than a list column can hold",
            expected=f"{LARGEST_LIST_COLUMN:,} or less",
            got=f"{len(rows.ids):,} in {len(rows.lengths):,} rows",
            next_step="lower rows_per_group of this export" if len(rows.lengths) > 1 else "leave this document out",
        )
    schema = schema_of(columns)
    arrays: list[Any] = []
    for name in columns:
        sizes = rows.counts if name in ONE_A_PIECE else rows.lengths
        offsets: Any = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
        values: Any = pa.array(_values(name, rows, loss_mask))
        arrays.append(pa.ListArray.from_arrays(offsets, values).cast(schema.field(name).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(name: str, rows: Rows, loss_mask: str) -> NDArray[Any]:
    """The values of a column, row after row."""
    starts = np.cumsum(rows.pieces) - rows.pieces
    if name in {"input_ids", "labels"}:
        return rows.ids
    if name == "seq_lengths":
        return rows.pieces.astype(np.int32)
    if name == "seq_start_id":
        begins = np.repeat(np.cumsum(rows.lengths) - rows.lengths, rows.counts)
        return (starts - begins).astype(np.int32)
    if name == "position_ids":
        return (np.arange(len(rows.ids)) - np.repeat(starts, rows.pieces)).astype(np.int32)
    ones = np.ones(len(rows.ids), np.int8)
    if name == "loss_mask" and loss_mask == "token":
        ones[starts[rows.pieces > 0]] = 0
    return ones
