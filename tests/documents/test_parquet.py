"""What a parquet file may ask for while it is read."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.documents.parquet import BATCH_BYTES, ROWS, read_rows
from pipeline.errors import CorruptDataError

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
        with pytest.raises(CorruptDataError, match="bomb"):
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
    assert [one.decode() for batch in batches for one in batch.each_id()] == [str(row) for row in range(5000)]
    assert max(batch.documents for batch in batches) <= ROWS
    assert all(len(batch.text) < 2 * BATCH_BYTES for batch in batches[1:])
