"""datasets 5.2.0 reads ids in parquet: every document once, in order, map-style and streamed, whole and over nodes."""

from __future__ import annotations

import os
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from datasets.distributed import split_dataset_by_node

LATEST = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest"
FILES = sorted(map(str, (LATEST / "parquet_documents").glob("*.parquet")))
COLUMNS = ["input_ids", "labels", "attention_mask", "position_ids", "seq_lengths"]


def documents() -> list[list[int]]:
    """Those of the Megatron parts, by their plain layout: the same documents in the same order."""
    found = []
    for path in sorted((LATEST / "megatron").glob("*.idx")):
        index = path.read_bytes()
        count = int.from_bytes(index[18:26], "little")
        lengths = np.frombuffer(index, "<i4", count, 34)
        tokens = np.fromfile(path.with_suffix(".bin"), "<i4")
        found += [piece.tolist() for piece in np.split(tokens, np.cumsum(lengths)[:-1])]
    return found


def test_folder_loads_as_the_split_train_with_every_document_in_order(tmp_path) -> None:
    folder = str(LATEST / "parquet_documents")
    loaded = datasets.load_dataset("parquet", data_dir=folder, cache_dir=str(tmp_path))
    assert list(loaded) == ["train"]
    assert loaded["train"].column_names == COLUMNS
    assert loaded["train"]["input_ids"][:] == documents()
    assert len(FILES) > 1
    for row in loaded["train"]:
        size = len(row["input_ids"])
        assert row["labels"] == row["input_ids"]
        assert row["attention_mask"] == [1] * size
        assert row["position_ids"] == list(range(size))
        assert row["seq_lengths"] == [size]


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
def test_nodes_that_stream_read_every_row_once(nodes, tmp_path) -> None:
    seen = []
    for node in range(nodes):
        stream = datasets.load_dataset(
            "parquet", data_files=FILES, split="train", streaming=True, cache_dir=str(tmp_path)
        )
        seen += [tuple(row["input_ids"]) for row in split_dataset_by_node(stream, rank=node, world_size=nodes)]
    assert sorted(seen) == sorted(map(tuple, documents()))


def test_folder_holds_nothing_but_parquet_without_nulls() -> None:
    assert {path.suffix for path in (LATEST / "parquet_documents").iterdir()} == {".parquet"}
    assert all(column.null_count == 0 for path in FILES for column in pq.read_table(path).columns)
