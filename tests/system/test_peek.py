"""A record of any export, back as text."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.builds.local import build_dataset
from corpusmill.cli import app
from corpusmill.config import DatasetConfig, check_config
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.datasets.merge import merge_exports
from corpusmill.inspect.datasets.peek import peek_record
from corpusmill.training.mixture.sources import open_source
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus
from tests.tokens.vocabularies import shared

EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> list[str]:
    return write_corpus(tmp_path_factory.getbasetemp() / "peek" / "corpus", documents=40)


@pytest.fixture(scope="module")
def outputs(texts, tmp_path_factory) -> Path:
    root = tmp_path_factory.getbasetemp() / "peek"
    build_dataset(check_config(configuration(root, dedup={"mode": "none"}), where="test"), workers=1)
    return root / "outputs" / "tiny" / "latest"


@pytest.mark.parametrize("pattern", ["megatron/*.bin", "nanoset/*.ds"])
def test_peek_document_of_an_export_is_a_source_text_and_its_eot(outputs, texts, pattern: str) -> None:
    path = min(outputs.glob(pattern))
    for record in range(3):
        actual = peek_record(path, record, 10**6)
        assert actual.text.endswith(EOT)
        assert actual.text.removesuffix(EOT) in texts
        assert actual.tokens == len(actual.ids)


def test_peek_empty_documents_are_records_of_their_own(texts, tmp_path) -> None:
    """A boundary without a sequence: records are documents, so that their numbers are those of `trace`."""
    write_corpus(tmp_path / "corpus", documents=40)
    changes = {"framing": {"empty_documents": "boundary"}, "exports": {"megatron": {}}, "dedup": {"mode": "none"}}
    build_dataset(check_config(configuration(tmp_path, **changes), where="test"), workers=1)
    path = min((tmp_path / "outputs/tiny/latest").glob("megatron/*.bin"))
    first = peek_record(path, 0, 1)
    assert first.records == len(texts)
    actual = [peek_record(path, record, 10**6).text.removesuffix(EOT) for record in range(len(texts))]
    assert sorted(actual) == sorted(texts)
    assert "" in actual
    with raises("record.unknown"):
        peek_record(path, len(texts), 1)


def test_peek_context_of_a_tar_is_its_tokens(outputs, texts) -> None:
    actual = peek_record(min(outputs.glob("webdataset/*.tar")), 2, 10**6)
    assert actual.tokens == 129
    piece = max(actual.text.split(EOT), key=len)[4:-4]  # a cut may split a character at either end
    assert any(piece in text for text in texts)


def test_peek_position_of_a_numpy_shard_shows_the_stream_from_there(outputs) -> None:
    path = min(outputs.glob("numpy/train/*.npy"))
    actual = peek_record(path, 17, 5)
    assert actual.ids.tolist() == np.load(path, allow_pickle=False)[17:22].tolist()
    assert actual.tokens == 5000 - 17


@pytest.mark.parametrize("pattern", ["megatron/*.bin", "nanoset/*.ds", "webdataset/*.tar", "numpy/train/*.npy"])
def test_peek_record_that_is_not_there_is_refused(outputs, pattern: str) -> None:
    for record in (10**6, 10**22):
        with raises("record.unknown"):
            peek_record(min(outputs.glob(pattern)), record, 1)


def test_peek_file_that_is_not_there_is_refused_as_that(tmp_path) -> None:
    with raises("dataset.file_outside", "no such file"):
        peek_record(tmp_path / "x.ds", 0, 1)


def test_peek_file_outside_a_dataset_is_refused(tmp_path) -> None:
    (tmp_path / "x.ds").write_bytes(b"")
    with raises("dataset.file_outside"):
        peek_record(tmp_path / "x.ds", 0, 1)


def test_peek_command_prints_ids_and_text(outputs) -> None:
    done = CliRunner().invoke(app, ["peek", str(min(outputs.glob("nanoset/*.ds"))), "--tokens", "4"])
    assert done.exit_code == 0, done.output
    assert "tokens, the first 4 shown" in done.output


@pytest.fixture(scope="module")
def named_by_file(tmp_path_factory) -> tuple[DatasetConfig, Path]:
    """A dataset whose tokenizer's name says nothing: a rank file, its pattern and its special token are configured."""
    root = tmp_path_factory.mktemp("named")
    write_corpus(root / "corpus", documents=24)
    tokenizer = {
        "name": "our-own-ranks",
        "file": str(shared("r50k_base.tiktoken")),
        "pattern": "r50k_base",
        "special_tokens": {EOT: 50256},
    }
    values = configuration(root, dedup={"mode": "none"}, tokenizer=tokenizer, exports={"nanoset": {}})
    config = check_config(values, where="test")
    build_dataset(config, workers=1)
    (root / "dataset.yaml").write_text(yaml.safe_dump(values))
    return config, root


def test_peek_tokenizer_known_by_its_file_alone_shows_ids_and_text_with_the_configuration(named_by_file) -> None:
    config, root = named_by_file
    path = min((root / "outputs/tiny/latest").glob("nanoset/*.ds"))
    ids_alone = CliRunner().invoke(app, ["peek", str(path)])
    assert ids_alone.exit_code == 0, ids_alone.output
    assert "no text: " in ids_alone.output
    assert "--config CONFIG" in ids_alone.output
    assert peek_record(path, 0, 10**6).ids.tolist() == peek_record(path, 0, 10**6, config).ids.tolist()
    assert peek_record(path, 0, 10**6, config).text.endswith(EOT)
    done = CliRunner().invoke(app, ["peek", str(path), "--tokens", "100000", "--config", str(root / "dataset.yaml")])
    assert done.exit_code == 0, done.output
    assert done.output.rstrip().endswith(EOT)


def test_peek_configuration_of_another_tokenizer_is_refused(outputs, named_by_file) -> None:
    with raises("peek.other_tokenizer"):
        peek_record(min(outputs.glob("nanoset/*.ds")), 0, 1, named_by_file[0])


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b'{"name": "x", "files": [], "vocabulary": {}, "formats": {}}'])
@pytest.mark.parametrize("name", ["0123456789ab", "copy"])
def test_peek_in_a_dataset_whose_description_is_damaged_is_refused(outputs, tmp_path, text: bytes, name: str) -> None:
    copy = tmp_path / name
    shutil.copytree(outputs.resolve(), copy)
    (copy / "dataset.json").write_bytes(text)
    for open_damaged in (open_dataset, open_source, lambda folder: peek_record(min(folder.glob("nanoset/*.ds")), 0, 1)):
        with raises("dataset.description_changed"):
            open_damaged(copy)
    if text != b"{}":  # which may be another program's
        with raises("dataset.description_changed"):
            merge_exports([copy / "nanoset"], tmp_path / "merged.ds")
