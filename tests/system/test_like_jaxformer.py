"""What Jaxformer's writer does, where a whole build is needed to see it."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset, run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.errors import (
    TransientError,
)
from corpusmill.report.summary import from_json
from tests.oracles.cl100k import cl100k
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

EOT = 100257


def config(root: Path, **changes: object) -> DatasetConfig:
    settings = configuration(root, dedup={"mode": "none"}, exports={"numpy": {"tokens_per_shard": 700}}, **changes)
    return check_config(settings, where="test")


def build(root: Path, workers: int = 1, **changes: object) -> Build:
    return open_build(build_dataset(config(root, **changes), workers=workers))


def stream(root: Path) -> np.ndarray:
    folder = root / "outputs/tiny/latest/numpy"
    return np.concatenate([np.load(path) for split in ("test", "train") for path in sorted(folder.glob(f"{split}/*"))])


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("jaxformer")


@pytest.fixture(scope="module")
def texts(root) -> list[str]:
    return write_corpus(root / "corpus", documents=40)


@pytest.fixture(scope="module")
def built(root, texts) -> Build:
    return build(root)


def test_numpy_every_document_once_behind_its_eot(built, root, texts) -> None:
    encoding = cl100k()
    whole = stream(root)
    actual = np.split(whole, np.flatnonzero(whole == EOT))[1:]
    expected = sorted([EOT, *encoding.encode_ordinary(text)] for text in texts if text)
    assert sorted(item.tolist() for item in actual) == expected
    assert max(len(item) for item in actual) > 700  # a document longer than a shard


def test_numpy_hash_of_the_stream_is_the_same_for_four_workers(built, root, texts, tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    build(tmp_path, workers=4)
    item, four = (hashlib.sha256(stream(folder).tobytes()).hexdigest() for folder in (root, tmp_path))
    assert item == four


def test_numpy_upload_sends_only_what_differs_and_verifies_the_rest(built, root) -> None:
    folder = (root / "outputs/tiny/latest").resolve()
    shards = sorted(folder.glob("numpy/train/*.npy"))
    shards[0].write_bytes(shards[0].read_bytes()[:-4] + b"\0\0\0\0")  # the name is there, the bytes are not
    again = build(root)
    assert again.receipt("upload", "00000").traffic["files_sent"] >= 1
    digests = {
        output.name: output.sha256 for unit in again.units("export") for output in again.receipt("export", unit).outputs
    }
    for name, digest in digests.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_numpy_stale_shard_at_the_destination_is_refused_by_name(built, root) -> None:
    stale = (root / "outputs/tiny/latest").resolve() / "numpy/train/train_9999.npy"
    stale.write_bytes(b"of an older run")
    with raises("destination.delivery_differs", "train_9999.npy"):
        build(root)
    stale.unlink()


def test_numpy_interrupted_run_continued_gives_the_stream_of_an_undisturbed_one(built, root, tmp_path) -> None:
    """The original starts again at document 0 and loses what straddles."""
    write_corpus(tmp_path / "corpus", documents=40)
    first = build(tmp_path)
    for unit in first.units("export")[1::2]:
        (first.folder("export", unit) / "receipt.json").unlink()
    for shard in (tmp_path / "outputs").rglob("train_000[1-5].npy"):
        shard.unlink()
    build(tmp_path)
    assert (stream(tmp_path) == stream(root)).all()


def test_numpy_upload_that_cannot_write_fails_the_run(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    (tmp_path / "outputs").write_text("a file where a folder is needed")
    with raises("destination.not_writable"):
        build(tmp_path)
    assert not list((tmp_path / "work/tiny").glob("upload/*/receipt.json"))


def test_numpy_store_that_does_not_answer_fails_the_upload_and_a_retry_sends_everything(
    tmp_path, hasty, monkeypatch
) -> None:
    """The original drops the shard, deletes its local copy and writes a checkpoint as if it had arrived."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    write_corpus(tmp_path / "corpus", documents=8)
    nobody = [{"path": "s3://corpus/tiny", "endpoint_url": "http://127.0.0.1:9"}]
    with raises("s3.unavailable"):
        build(tmp_path, destinations=nobody)  # before anything is read
    assert not (tmp_path / "work/tiny/export").exists()
    with raises("s3.unavailable") as caught:  # as if it had answered then
        run_build(plan_dataset(config(tmp_path, destinations=nobody)), workers=1)
    assert isinstance(caught.value, TransientError)  # a scheduler tries again
    assert not list((tmp_path / "work/tiny").glob("upload/*/receipt.json"))
    exported = {path: path.stat().st_mtime_ns for path in (tmp_path / "work/tiny/export").rglob("*.npy")}
    assert exported  # nothing local is deleted
    again = build(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in exported} == exported
    assert again.receipt("upload", "00000").traffic["files_sent"] >= len(exported)


def test_numpy_nothing_but_the_dataset_is_left_at_the_destination(built, root) -> None:
    folder = (root / "outputs/tiny/latest").resolve()
    listed = {load["name"] for load in json.loads((folder / "dataset.json").read_text())["files"]}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {*listed, "SHA256SUMS", "dataset.json", "shuffle_quality.json"}


def test_numpy_every_shard_says_how_many_tokens_a_second(tmp_path, caplog) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    with caplog.at_level(logging.INFO, logger="corpusmill.engine.running"):
        built = build(tmp_path)
    printed = [record.getMessage() for record in caplog.records if " tokens/s" in record.getMessage()]
    for unit in built.units("tokenize"):
        receipt = built.receipt("tokenize", unit)
        (line,) = [item for item in printed if item.startswith(f"tokenize {unit}:")]
        rate = receipt.counts["tokens"] / max(receipt.seconds, 1e-3)
        assert f"{rate:,.0f} tokens/s" in line
    assert any(line.startswith("export ") for line in printed)
    summary = from_json((built.folder("report", "report") / "summary.json").read_bytes())
    assert {"tokenize", "export"} <= {stage.stage for stage in summary.stages if stage.timed_bytes}


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_numpy_small_corpora_keep_train_data(tmp_path, shards: int) -> None:
    write_corpus(tmp_path / "corpus", documents=30)
    tokens = len(stream_of_whole(tmp_path))
    exports = {"numpy": {"tokens_per_shard": -(-tokens // shards), "test_shards": 350}}
    settings = configuration(tmp_path, dedup={"mode": "none"}, exports=exports)
    build_dataset(check_config(settings, where="test"), workers=1)
    folder = (tmp_path / "outputs/tiny/latest/numpy").resolve()
    assert len(list(folder.glob("train/*.npy"))) == shards - shards // 2


def stream_of_whole(root: Path) -> np.ndarray:
    build(root)
    return stream(root)
