"""`corpusmill estimate` with decisions, `forget` and steps: every document of a sample has its own file and line."""

from __future__ import annotations

import json
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.estimates import Estimate
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, make_documents

LINE = ["file", "line"]
STEP = """
import zlib

def kept(document):
    return zlib.crc32(f"{document.file} {document.line}".encode()) % 2 == 0
"""


def kept(file: str, line: int) -> bool:
    """Half of all lines, as the step decides."""
    return zlib.crc32(f"{file} {line}".encode()) % 2 == 0


def write_sources(root: Path, files: int = 24, kind: str = "jsonl", documents: int = 20) -> list[dict[str, Any]]:
    """Files of documents with ids; returns a decision about each: id, file, line, keep."""
    (root / "corpus").mkdir()
    decisions = []
    for number in range(files):
        name = f"{number:02d}.{kind}"
        texts = make_documents(documents, seed=number)
        rows = [{"id": f"{number}-{line}", "text": text} for line, text in enumerate(texts, 1)]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), root / "corpus" / name, row_group_size=4)
        else:
            (root / "corpus" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        lines = range(1, len(rows) + 1)
        decisions += [
            {"id": f"{number}-{line}", "file": name, "line": line, "keep": kept(name, line)} for line in lines
        ]
    (root / "decisions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in decisions))
    return decisions


def config_of(root: Path, sample_bytes: str, shard_bytes: str = "1MB", **changes: Any) -> DatasetConfig:
    values = {
        "source": {"paths": [str(root / "corpus")], "shard_bytes": shard_bytes},
        "estimate": {"sample_bytes": sample_bytes},
        "exports": {"webdataset": {"context_tokens": 129}},
        "dedup": {"mode": "none"},
        **changes,
    }
    return check_config(configuration(root, **values), where="test")


def decided(root: Path, key: str | list[str], **changes: Any) -> dict[str, Any]:
    path = str(root / "decisions.jsonl")
    return {"decisions": [{"name": "half", "path": path, "key": key, "keep": "keep == true", **changes}]}


def tokens(actual: Estimate) -> tuple[int, int, int]:
    return actual.tokens_low, actual.tokens, actual.tokens_high


@pytest.mark.parametrize("key", quick([LINE, "id"], 1))
def test_estimate_of_everything_with_decisions_is_what_the_build_comes_to(tmp_path: Path, key: Any) -> None:
    write_sources(tmp_path, files=6)
    config = config_of(tmp_path, "1GB", **decided(tmp_path, key))
    actual = estimate_dataset(config)
    built = open_build(build_dataset(config, workers=1))
    assert 0 < built.total("tokenize", "documents_out") < 120
    assert actual.tokens == built.total("tokenize", "tokens")


@pytest.mark.slow
def test_estimate_of_a_sample_honours_decisions_by_line_as_by_id_and_steps_see_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path)
    (tmp_path / "by_line.py").write_text(STEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    by_id = estimate_dataset(config_of(tmp_path, "60kB", **decided(tmp_path, "id")))
    by_line = estimate_dataset(config_of(tmp_path, "60kB", **decided(tmp_path, LINE)))
    by_step = estimate_dataset(config_of(tmp_path, "60kB", steps=[{"use": "by_line:kept"}]))
    late = estimate_dataset(config_of(tmp_path, "60kB", steps=[{"use": "by_line:kept", "before": "writeback"}]))
    assert by_id.scale > 2
    assert tokens(by_line) == tokens(by_step) == tokens(late) == tokens(by_id)
    assert by_id.tokens < estimate_dataset(config_of(tmp_path, "60kB")).tokens


@pytest.mark.parametrize("case", quick(product(["parquet", "jsonl"], ["60kB", "1GB"]), 1))
def test_estimate_of_parts_honours_decisions_by_line_of_the_whole_file(
    tmp_path: Path, case: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, sample_bytes = case
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)
    write_sources(tmp_path, files=2, kind=kind, documents=150)
    config = config_of(tmp_path, sample_bytes, "8KiB", **decided(tmp_path, LINE))
    built = open_build(build_dataset(config, workers=1))
    assert len(built.units("index")) > 2
    low, actual, high = tokens(estimate_dataset(config))
    assert low <= built.total("tokenize", "tokens") <= high
    assert (actual == built.total("tokenize", "tokens")) == (sample_bytes == "1GB")


@pytest.mark.parametrize("key", ["id", LINE])
def test_estimate_where_every_line_is_forgotten_fails_as_the_build_does(tmp_path: Path, key: Any) -> None:
    write_sources(tmp_path, files=4)
    forget = {"path": str(tmp_path / "decisions.jsonl"), "key": key, "copies": "keep"}
    config = config_of(tmp_path, "20kB", forget=forget)
    with raises("dataset.no_text") as of_build:
        build_dataset(config, workers=1)
    with raises("dataset.no_text", str(of_build.value).splitlines()[0]):
        estimate_dataset(config)


def test_estimate_of_everything_refuses_unmatched_decisions_as_the_build_does(tmp_path: Path) -> None:
    write_sources(tmp_path, files=4)
    with (tmp_path / "decisions.jsonl").open("a") as rows:
        rows.write('{"id": "nobody", "file": "99.jsonl", "line": 1, "keep": true}\n')
    with raises("decisions.unmatched"):
        estimate_dataset(config_of(tmp_path, "1GB", **decided(tmp_path, LINE)))
