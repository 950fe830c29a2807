"""Shuffled text in parquet through whole builds: each document's text as writeback has it, and nanochat's way to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.datasets.dataset import Dataset, open_dataset
from corpusmill.inspect.datasets.peek import peek_record
from corpusmill.inspect.lineage import locate, verify_records
from corpusmill.inspect.verify import render, verify_build
from tests.raising import raises
from tests.system.corpus import configuration, make_documents, write_corpus
from tests.tokens.vocabularies import shared

ROWS = 3
EXPORTS = {"parquet_text": {"groups_per_file": 4, "held_out_groups": 4, "rows_per_group": ROWS}, "megatron": {}}
DECOMPOSED = "Cafe\u0301 \u1112\u1161\u11ab <|endoftext|> naïve"  # NFC and a special string: ids do not give it back


def build(root: Path, **changes: Any) -> tuple[Build, Dataset]:
    neox = {"name": "EleutherAI/gpt-neox-20b", "file": str(shared("gpt-neox-20b.tokenizer.json"))}
    values = configuration(root, **{"tokenizer": neox, "exports": EXPORTS, **changes})
    built = open_build(build_dataset(check_config(values, where="test"), workers=1))
    return built, open_dataset((root / "outputs" / "tiny" / "latest").resolve(), built.config)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("text")
    write_corpus(root / "corpus", documents=60)
    texts = [f"{number} {DECOMPOSED}" for number in range(8)]
    (root / "corpus" / "z.jsonl").write_text("".join(json.dumps({"id": text, "text": text}) + "\n" for text in texts))
    return root


@pytest.mark.parametrize("order", ["random", "source"])
def test_rows_are_the_deduplicated_texts_of_megatrons_documents_in_their_order(root, order: str) -> None:
    built, dataset = build(root, shuffle={"order": order, "seed": 7} if order == "random" else {"order": order})
    rows, documents = dataset["parquet_text"], dataset["megatron"]
    texts = [rows.text(number) for number in range(len(rows))]
    assert Counter(texts) == Counter(document["text"] for document in dataset.documents() if document["text"])
    assert sum(DECOMPOSED in text for text in texts) == 8
    assert sum(len(text.encode()) for text in texts) < sum(len(text.encode()) for text in make_documents(60))
    assert [rows.document(number).parts for number in range(len(rows))] == [
        documents.document(number).parts[:-1] for number in range(len(documents))
    ]
    (held,) = (record for record in locate(built, "z.jsonl", 3).records if record.export == "parquet_text")
    file = pq.read_table(dataset.folder / f"{held.file}.parquet")
    assert file.column("text")[held.record].as_py() == f"2 {DECOMPOSED}"
    assert verify_records(built, sample=10**6, seed=0).records["parquet_text"] == len(rows)
    assert not verify_build(built).findings, render(verify_build(built))
    first = dataset.folder / "parquet_text" / "train-00000.parquet"
    assert peek_record(first, 0, 10**6).text == texts[0]
    assert rows[1:].text(0) == texts[1]
    for of_ids in (rows.torch, rows[1:].torch_stream):
        with raises("dataset.text_has_no_ids"):
            of_ids()
    with raises("dataset.windows_of_contexts", "contexts or rows"):
        rows.windows(8)


def nanochat_rows(folder: Path, split: str, rank: int, world: int) -> Iterator[str]:
    """As nanochat deals them: the last file by name validates; of each file row groups rank, rank + world, ..."""
    paths = sorted(folder.glob("*.parquet"))
    for path in paths[:-1] if split == "train" else paths[-1:]:
        file = pq.ParquetFile(path)
        for group in range(rank, file.num_row_groups, world):
            yield from file.read_row_group(group).column("text").to_pylist()


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_of_nanochat_read_every_row_once_and_each_has_some_of_each_split(root, world: int) -> None:
    _, dataset = build(root)
    folder, rows = dataset.folder / "parquet_text", dataset["parquet_text"]
    dealt = {
        split: [list(nanochat_rows(folder, split, rank, world)) for rank in range(world)]
        for split in ("train", "validation")
    }
    assert all(rank for ranks in dealt.values() for rank in ranks)
    every = [text for ranks in dealt.values() for rank in ranks for text in rank]
    assert Counter(every) == Counter(rows.text(number) for number in range(len(rows)))
    files = [pq.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
    sizes = [[file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] for file in files]
    assert {size for file in [*sizes[:-2], sizes[-1], sizes[-2][:-1]] for size in file} == {ROWS}
    assert len(files) > 3
    assert str(files[0].schema_arrow.field("text").type) == "string"
    assert {file.metadata.row_group(0).column(0).compression for file in files} == {"ZSTD"}


def test_budget_shows_a_text_as_often_as_its_document(root) -> None:
    _, dataset = build(root, budget={str(root / "corpus"): "2.5 epochs"})
    rows, documents = dataset["parquet_text"], dataset["megatron"]
    times = Counter(rows.text(number) for number in range(len(rows)))
    assert {2, 3} == set(times.values())
    assert [rows.document(number).parts for number in range(len(rows))] == [
        documents.document(number).parts[:-1] for number in range(len(documents))
    ]


def test_documents_that_are_too_short_are_no_rows(root) -> None:
    built, dataset = build(root, selection={"minimum_bytes": 200})
    texts = {dataset["parquet_text"].text(number) for number in range(len(dataset["parquet_text"]))}
    assert len(texts) == len(dataset["megatron"])
    assert min(len(text.encode()) for text in texts) >= 200
    assert built.total("tokenize", "documents_short") >= 8
