"""What Jaxformer's writer does, where a whole build is needed to see it."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

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
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus


def config(root: Path, **changes: object) -> DatasetConfig:
    settings = configuration(root, dedup={"mode": "none"}, exports={"numpy": {"tokens_per_shard": 700}}, **changes)
    return check_config(settings, where="test")


def build(root: Path, workers: int = 1, **changes: object) -> Build:
    return open_build(build_dataset(config(root, **changes), workers=workers))


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("jaxformer")


@pytest.fixture(scope="module")
def texts(root) -> list[str]:
    return write_corpus(root / "corpus", documents=40)


@pytest.fixture(scope="module")
def built(root, texts) -> Build:
    return build(root)


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
