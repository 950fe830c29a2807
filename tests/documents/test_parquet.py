"""What a parquet file may ask for while it is read."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.documents.columns import BATCH_BYTES, ROWS
from corpusmill.documents.parquet import footer_of, read_rows
from corpusmill.errors import CorpusmillError
from tests.raising import raises

MIB = 1 << 20


def parquet(texts: list[str], **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts, "id": [str(row) for row in range(len(texts))]}), file, **options)
    return file


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "zstd", "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
        {"compression": "zstd", "use_dictionary": False, "column_encoding": {"text": "PLAIN"}},
    ],
    ids=["one-value-of-a-dictionary", "all-alike-with-the-one-before", "zeros-packed"],
)
def test_parquet_rows_that_no_file_of_its_size_can_hold_are_refused_in_little_memory(options: dict[str, Any]) -> None:
    file = parquet(["x" * MIB] * 150, **options)
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    try:
        with raises("source.decompression_bomb"):
            list(read_rows(file, source="a.parquet", text_field="text", id_field="id"))
    finally:
        pa.set_memory_pool(usual)
    assert counted.max_memory() < 150 * MIB


@pytest.mark.parametrize("group_rows", [100, 10_000])
def test_parquet_batches_end_by_rows_and_by_bytes_and_hold_every_row_once(group_rows: int) -> None:
    texts = [chr(65 + row % 26) * (row % 40_000) for row in range(5000)]
    texts[70] = "y" * (2 * BATCH_BYTES)
    file = parquet(texts, row_group_size=group_rows, compression="none", use_dictionary=False)
    batches = list(read_rows(file, source="a.parquet", text_field="text", id_field="id"))
    assert [text.decode() for batch in batches for text in batch.texts()] == texts
    assert [int(row) for batch in batches for row in batch.line_numbers] == list(range(5000))
    assert [item.decode() for batch in batches for item in batch.each_id()] == [str(row) for row in range(5000)]
    assert max(batch.documents for batch in batches) <= ROWS
    assert all(len(batch.text) < 2 * BATCH_BYTES for batch in batches[1:])


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_parquet_footer_says_of_column_chunks_what_pyarrow_says(compression: str, use_dictionary: bool) -> None:
    rows = 1000
    table = pa.table(
        {
            "text": [chr(65 + row % 26) * (row % 50) for row in range(rows)],
            "nested": [{"list": [1.5] * (row % 3), "flag": row % 2 == 0, "more": None} for row in range(rows)],
            **{f"column {number}": pa.array(range(rows), pa.int64()) for number in range(20)},
        },
        metadata={"k" * 200: "v" * 70_000},
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=64, compression=compression, use_dictionary=use_dictionary)
    metadata = pq.ParquetFile(file).metadata
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    expected = [[group.column(place) for place in range(group.num_columns)] for group in groups]
    chunks = footer_of(file, "a.parquet")
    assert [[chunk.path for chunk in group] for group in chunks] == [
        [column.path_in_schema for column in group] for group in expected
    ]
    assert {chunk.codec for group in chunks for chunk in group} == {compression}
    assert [(chunk.compressed_bytes, chunk.decompressed_bytes) for group in chunks for chunk in group] == [
        (column.total_compressed_size, column.total_uncompressed_size) for group in expected for column in group
    ]
    assert [(chunk.values, chunk.column) for group in chunks for chunk in group] == [
        (column.num_values, column.path_in_schema.partition(".")[0]) for group in expected for column in group
    ]
    assert [chunk.start for group in chunks for chunk in group] == [
        column.dictionary_page_offset or column.data_page_offset for group in expected for column in group
    ]


def test_parquet_with_any_bit_of_its_footer_flipped_is_read_or_refused_and_ends_no_process() -> None:
    """pyarrow's own metadata of a column chunk is a C++ exception for some of them, and nobody catches it."""
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["a", "b"] * 20}), file, store_schema=False)
    good = file.getvalue()
    outcomes = set()
    for at in range(len(good) - 8 - int.from_bytes(good[-8:-4], "little"), len(good) - 8):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            try:
                list(read_rows(io.BytesIO(bad), source="a", text_field="text", id_field="id"))
                outcomes.add("read")
            except CorpusmillError:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_parquet_row_whose_id_is_not_utf8_is_rejected_as_a_line_would_be() -> None:
    ids = pa.array([b"a", b"\xff", None, b"d"], pa.binary()).cast(pa.string(), safe=False)
    file = io.BytesIO()
    pq.write_table(pa.table({"text": ["1", "2", "3", "4"], "id": ids}), file)
    (batch,) = read_rows(file, source="a.parquet", text_field="text", id_field="id")
    assert [text.decode() for text in batch.texts()] == ["1", "3", "4"]
    assert [item.decode() for item in batch.each_id()] == ["a", "", "d"]
    assert [(rejection.line_number, rejection.reason.value) for rejection in batch.rejections] == [(1, "invalid_utf8")]
