"""Whole builds: the counts of the report, what a change of settings leaves, and what is refused.

tests/search compares all that builds of random configurations deliver with an oracle.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.reprocess import digests
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.export import megatron
from corpusmill.report.summary import from_json
from tests.oracles.cl100k import cl100k
from tests.oracles.dataset import deduplicated_texts
from tests.raising import raises
from tests.system.corpus import configuration, reused, write_corpus

EOT = 100257


def build(root: Path, workers: int = 1, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=workers))


def outputs(root: Path) -> Path:
    return (root / "outputs" / "tiny" / "latest").resolve()


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture(scope="module")
def texts(root) -> list[str]:
    return write_corpus(root / "corpus")


@pytest.fixture(scope="module")
def kept(texts) -> list[str]:
    return deduplicated_texts(texts, 100)


@pytest.fixture(scope="module")
def documents(kept) -> Counter[tuple[int, ...]]:
    """Token ids of every document that has any, by tiktoken."""
    encoding = cl100k()
    return Counter(tuple(encoding.encode_ordinary(text)) for text in kept if text)


@pytest.fixture(scope="module")
def built(root, texts) -> Build:
    return build(root)


def test_build_report_states_the_counts_and_all_accounts_balance(built, texts, kept, documents) -> None:
    folder = built.folder("report", "report")
    summary = from_json((folder / "summary.json").read_bytes())
    assert summary.verdict == "complete"
    assert len(summary.checks) > 15
    assert not summary.failed_checks
    assert summary.duplicates is not None
    removed = sum(len(text.encode()) for text in texts) - sum(len(text.encode()) for text in kept)
    assert summary.duplicates.duplicate_bytes == removed
    assert summary.packing is not None
    assert summary.packing.real_tokens == sum(len(row) * times for row, times in documents.items())
    assert "<html" in (folder / "report.html").read_text()


def test_build_unchanged_ranges_stop_the_change_from_spreading(built, root) -> None:
    """Nothing repeats at 6,000 bytes either: the ranges are the same, so tokens and exports are reused."""
    build(root, dedup={"mode": "remove", "minimum_bytes": 5000})
    other = build(root, dedup={"mode": "remove", "minimum_bytes": 6000})
    assert not any(reused(other, "anchor", unit) for unit in other.units("anchor"))
    for stage in ("index", "tokenize", "scatter", "gather", "export"):
        assert all(reused(other, stage, unit) for unit in other.units(stage)), stage


def test_build_two_contents_lie_in_two_version_folders(built, root) -> None:
    first = outputs(root)
    build(root, shuffle={"seed": 8})
    second = outputs(root)
    assert first != second
    assert first.is_dir()
    assert json.loads((second.parent / "latest.json").read_text()) == {"version": second.name}


@pytest.mark.parametrize("content", ['{"text": ""}\n' * 5, ""])
def test_build_corpus_without_any_text_is_refused(tmp_path, content: str) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text(content)
    with raises("dataset.no_text"):
        build(tmp_path)


def test_build_of_which_steps_and_selection_leave_nothing_is_refused_with_the_counts(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "one two three four"}\n{"text": "one"}\n{"text": ""}\n')
    rows = tmp_path / "decisions.jsonl"
    rows.write_text('{"file": "a.jsonl", "line": 1, "score": 0}\n')
    decisions = [{"name": "quality", "path": str(rows), "key": ["file", "line"], "keep": "score >= 1"}]
    with raises("dataset.no_text", "3 lines, 3 documents: 1 dropped, 1 empty, 1 too short"):
        build(tmp_path, decisions=decisions, selection={"minimum_tokens": 9})


def test_build_exports_smaller_than_a_shard_are_whole(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text('{"text": "one two three"}\n')
    build(tmp_path)
    assert np.load(outputs(tmp_path) / "numpy/train/train_0000.npy").tolist() == [EOT, 606, 1403, 2380]
    assert megatron.open_part(outputs(tmp_path) / "megatron/tiny_00000_text_document").document(0).tolist() == [
        606,
        1403,
        2380,
        EOT,
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_build_one_and_four_workers_in_two_folders_write_the_same_bytes(tmp_path) -> None:
    actual = []
    for name, workers in (("first", 1), ("second/deeper", 4)):
        root = tmp_path / name
        root.mkdir(parents=True)
        write_corpus(root / "corpus", documents=60)
        built = build(root, workers=workers)
        actual.append((files_below(root / "outputs" / "tiny"), digests(built)))
    assert actual[0] == actual[1]
