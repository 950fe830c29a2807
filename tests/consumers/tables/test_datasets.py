"""datasets 5.2.0 reads rows in parquet: every record once, in order, map-style and streamed, whole and over nodes."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def contexts() -> list[list[int]]:
    """Those of the tars, by their members' plain JSON."""
    found = []
    for path in sorted((LATEST / "webdataset").glob("*.tar")):
        with tarfile.open(path) as members:
            found += [json.loads(gzip.decompress(members.extractfile(member).read())) for member in members]
    return found


def test_contexts_load_in_one_order_and_their_pieces_fill_them(tmp_path) -> None:
    """The same tokens as in the tars, whose contexts have another length: a shard's stream, cut, in any order."""
    folder = str(LATEST / "parquet_contexts")
    loaded = datasets.load_dataset("parquet", data_dir=folder, cache_dir=str(tmp_path))
    assert list(loaded) == ["train"]
    rows = loaded["train"]
    assert rows.column_names == ["input_ids", "seq_lengths"]
    assert all(sum(row["seq_lengths"]) == len(row["input_ids"]) <= 128 for row in rows)
    pad = json.loads((LATEST / "dataset.json").read_text())["vocabulary"]["pad_id"]
    ids = Counter(token for context in contexts() for token in context if token != pad)
    assert Counter(token for row in rows for token in row["input_ids"] if token != pad) == ids


@pytest.mark.parametrize("nodes", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["parquet_contexts", "parquet_text"])
def test_nodes_that_stream_read_every_row_of_a_kind_once(kind, nodes, tmp_path) -> None:
    folder, seen = LATEST / kind, []
    files = sorted(map(str, folder.glob("*.parquet")))
    column = "text" if kind == "parquet_text" else "input_ids"
    for node in range(nodes):
        stream = datasets.load_dataset(
            "parquet", data_files=files, split="train", streaming=True, cache_dir=str(tmp_path)
        )
        seen += [str(row[column]) for row in split_dataset_by_node(stream, rank=node, world_size=nodes)]
    assert sorted(seen) == sorted(str(row) for file in files for row in pq.read_table(file).column(column).to_pylist())


def test_text_loads_as_two_splits_with_a_row_for_each_document_of_megatron(tmp_path) -> None:
    folder = str(LATEST / "parquet_text")
    loaded = datasets.load_dataset("parquet", data_dir=folder, cache_dir=str(tmp_path))
    assert list(loaded) == ["train", "validation"]
    texts = [*loaded["train"]["text"], *loaded["validation"]["text"]]
    assert len(texts) == len(documents())
    assert len(loaded["validation"]) % 8 == 0


@pytest.mark.parametrize("kind", ["parquet_documents", "parquet_contexts", "parquet_text"])
def test_datasets_first_row_is_shown(kind, shown, tmp_path) -> None:
    """A text is shown by its bytes."""
    files = sorted(map(str, (LATEST / kind).glob("*.parquet")))
    column = "text" if kind == "parquet_text" else "input_ids"
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    first, plain = loaded[0][column], pq.read_table(files[0]).column(column)[0].as_py()

    def every() -> Iterator[Any]:
        return (row[column] for row in loaded.with_format("numpy", columns=[column]))

    if kind == "parquet_text":
        shown("datasets", "load_dataset", kind, first.encode(), plain.encode(), every, dataset="")
    else:
        shown("datasets", "load_dataset", kind, first, plain, every)


def test_folder_holds_nothing_but_parquet_without_nulls() -> None:
    assert {path.suffix for path in (LATEST / "parquet_documents").iterdir()} == {".parquet"}
    assert all(column.null_count == 0 for path in FILES for column in pq.read_table(path).columns)
