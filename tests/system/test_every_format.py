"""Every format of the registry in one build: verified, traced and read.

Whoever adds a format adds its settings here, or the first test fails.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.config.exports import FORMATS as CONFIGURED
from corpusmill.engine.build import Build
from corpusmill.export.formats import FORMATS
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.lineage import verify_records
from corpusmill.inspect.verify import render, verify_build
from tests.system.corpus import configuration, write_corpus

EXPORTS: dict[str, Any] = {
    "webdataset": {"context_tokens": 129, "contexts_per_shard": 50},
    "numpy": {"tokens_per_shard": 5000},
    "megatron": {"part_bytes": "40KiB"},
    "nanoset": {"file_bytes": "40KiB", "loss": True},
    "olmo": {"offsets": True},
    "parquet_documents": {"file_bytes": "40KiB", "rows_per_group": 4, "columns": ["input_ids", "position_ids"]},
    "parquet_contexts": {
        "context_tokens": 128,
        "file_bytes": "40KiB",
        "rows_per_group": 16,
        "columns": ["input_ids", "seq_lengths"],
    },
    "parquet_text": {"groups_per_file": 4, "rows_per_group": 4},
}


def built(root: Path, **changes: Any) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def outputs(root: Path, name: str) -> Path:
    return (root / "outputs" / name / "latest").resolve()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    write_corpus(folder / "corpus", documents=60)
    return folder


@pytest.fixture(scope="module")
def build(root) -> Build:
    return built(root, name="every", exports=EXPORTS)


def test_every_format_of_the_registry_is_here() -> None:
    assert list(EXPORTS) == list(FORMATS) == list(CONFIGURED)


def test_every_format_is_verified_traced_and_holds_all_documents(build, root) -> None:
    assert not verify_build(build).findings, render(verify_build(build))
    assert set(verify_records(build, 10_000, 0).records) == set(FORMATS)
    folder = outputs(root, "every")
    described = json.loads((folder / "dataset.json").read_text())["formats"]
    documents = build.total("tokenize", "documents_out") - build.total("tokenize", "documents_empty")
    for name, form in FORMATS.items():
        assert len(list((folder / name).iterdir())) > 1
        if form.framed:
            assert described[name]["records"] == documents


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.framed])
def test_formats_of_whole_documents_have_the_same_documents_in_the_same_order(build, root, name) -> None:
    dataset = open_dataset(outputs(root, "every"), build.config)
    expected, actual = dataset["megatron"], dataset[name]
    assert [ids.tolist() for ids in actual] == [ids.tolist() for ids in expected]
    assert actual.document(7).parts == expected.document(7).parts
    assert actual.text(7) == expected.text(7)


def test_text_in_parquet_is_the_text_of_the_same_documents(build, root) -> None:
    """Of cl100k_base, which decodes every id sequence to the bytes that it encoded."""
    dataset = open_dataset(outputs(root, "every"), build.config)
    documents, texts = dataset["megatron"], dataset["parquet_text"]
    decoded = [dataset.tokenizer.decode(ids[:-1]).decode() for ids in documents]
    assert [texts.text(number) for number in range(len(texts))] == decoded
    assert texts.document(7).parts == documents.document(7).parts[:-1]


def test_token_files_of_whole_documents_are_one_file_at_a_destination(build, root) -> None:
    folder = outputs(root, "every")
    paths = [
        sorted(path for path in (folder / name).iterdir() if path.suffix == form.data_suffix)
        for name, form in FORMATS.items()
        if form.shared_bytes(build.config.exports) is not None
    ]
    assert all(len({path.stat().st_ino for path in same}) == 1 for same in zip(*paths, strict=True))
