"""Accounts that do not balance fail the build, by name, whichever step's receipt lies; nothing of it is delivered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.reprocess import ask_for_shard
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import Outcome, Receipt
from corpusmill.engine.stage import Graph
from corpusmill.kernels.content import ContentSum
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

Lie = Callable[[Receipt], object]


def one_more(count: str) -> Lie:
    return lambda receipt: receipt.counts.update({count: receipt.counts[count] + 1})


def other_content(name: str = "content") -> Lie:
    def lie(receipt: Receipt) -> None:
        receipt.details[name] = str(ContentSum.parse(receipt.details[name]) + ContentSum(1))

    return lie


def other_cell(receipt: Receipt) -> None:
    cell = receipt.details["files"][0]["cells"][0]
    cell[1] = str(ContentSum.parse(cell[1]) + ContentSum(0, 1))


def one_less_exported(name: str, what: str) -> Lie:
    def lie(receipt: Receipt) -> None:
        next(detail for detail in receipt.details["files"] if detail["name"].startswith(f"{name}/"))[what] -= 1

    return lie


MANIFEST = ("manifest", "dataset")
FORMATS = ("webdataset", "numpy", "megatron", "nanoset")
OF_CONTENT = {"text", "kept text", "content", *(f"{name} content" for name in (*FORMATS, "documents", "contexts"))}
# (the step whose receipt lies, its lie, the step whose accounts notice, the account)
LIES = [
    (("index", "00000"), one_more("lines"), ("index", "00000"), "lines"),
    (("index", "00000"), one_more("documents_out"), ("tokenize", "00000"), "documents"),
    (("index", "00000"), one_more("text_bytes_out"), ("tokenize", "00000"), "text bytes"),
    (("union", "00000"), one_more("removed_bytes"), ("tokenize", "00000"), "text bytes"),
    (("union", "00000"), one_more("removed_bytes"), ("writeback", "00000"), "text bytes"),
    (("union", "00000"), one_more("ranges_in"), MANIFEST, "ranges"),
    (("match", "00000"), one_more("ranges"), MANIFEST, "ranges"),
    (("writeback", "00000"), one_more("documents_out"), ("writeback", "00000"), "documents"),
    (("tokenize", "00000"), one_more("documents_out"), ("scatter", "documents-00000"), "documents"),
    (("tokenize", "00000"), one_more("tokens"), ("scatter", "contexts-00000"), "tokens"),
    (("audit", "00000"), one_more("documents"), ("audit", "00000"), "audited documents"),
    (("scatter", "contexts-00000"), one_more("pad_tokens"), ("scatter", "contexts-00000"), "tokens"),
    (("scatter", "contexts-00000"), other_content(), MANIFEST, "contexts content"),
    (("gather", "contexts-00000"), one_more("records"), ("gather", "contexts-00000"), "records"),
    (("gather", "documents-00000"), one_more("slots"), ("gather", "documents-00000"), "slots"),
    (("gather", "documents-00000"), other_content(), MANIFEST, "documents content"),
    (("index", "00000"), other_content(), ("writeback", "00000"), "text"),
    (("writeback", "00000"), one_more("documents_intact"), ("writeback", "00000"), "lines"),
    (("writeback", "00000"), other_content("text_content"), ("writeback", "00000"), "text"),
    (("writeback", "00000"), other_content("kept_content"), MANIFEST, "kept text"),
    (("tokenize", "00000"), other_content("text_content"), MANIFEST, "kept text"),
    (("tokenize", "00000"), other_content(), ("scatter", "documents-00000"), "content"),
    (("tokenize", "00000"), other_content(), ("scatter", "contexts-00000"), "content"),
    (("scatter", "documents-00000"), other_content("documents_content"), ("scatter", "documents-00000"), "content"),
    (("scatter", "contexts-00000"), other_content("repeated_content"), ("scatter", "contexts-00000"), "content"),
    (("scatter", "contexts-00000"), one_more("special_slots"), ("scatter", "contexts-00000"), "slots"),
    (("gather", "documents-00000"), other_content("places_content"), MANIFEST, "numpy content"),
    *((("export", name), other_cell, MANIFEST, f"{name} content") for name in ("webdataset", "numpy", "megatron")),
    *(
        (("export", name), one_less_exported(name, "slots"), MANIFEST, f"{name} tokens")
        for name in ("webdataset", "numpy", "megatron", "nanoset")
    ),
    *(
        (("export", name), one_less_exported(name, "records"), MANIFEST, f"{name} records")
        for name in ("webdataset", "megatron", "nanoset")
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("balance")
    write_corpus(root / "corpus", documents=16)
    return build_dataset(check_config(configuration(root), where="test"), workers=1)


def step_with(build: Build, stage: str, unit: str) -> tuple[str, str]:
    """The step; of an export, named by its format, the first unit that wrote a file of it."""
    if stage != "export":
        return stage, unit
    wrote = (
        item
        for item in build.units(stage)
        if any(file["name"].startswith(f"{unit}/") for file in build.receipt(stage, item).details["files"])
    )
    return stage, next(wrote)


@pytest.mark.parametrize(
    ("lying", "lie", "noticing", "account"), LIES, ids=[f"{item[0][0]}-{item[2][0]}-{item[3]}" for item in LIES]
)
def test_receipt_that_lies_is_noticed_by_the_next_account_that_includes_it(
    built: Path, lying: tuple[str, str], lie: Lie, noticing: tuple[str, str], account: str, caplog: Any
) -> None:
    build = open_build(built)
    build.run(*noticing)
    step = step_with(build, *lying)
    lied = deepcopy(build.receipt(*step))
    lie(lied)
    build.hold(lied)
    if account in OF_CONTENT:
        build.run(*noticing)  # the steps to blame ran once more, and what they say now is true
        assert f"{' '.join(noticing)} does not balance" in caplog.text
        assert build.receipt(*step) != lied
        return
    with raises("step.unbalanced") as caught:
        build.run(*noticing)
    printed = str(caught.value).splitlines()
    assert printed[0] == f"error[step.unbalanced]: {' '.join(noticing)} does not balance"
    (line,) = [item for item in printed if item.strip().startswith(f"{account}  ")]
    assert line.endswith((" missing", " too many"))
    assert any(item.strip().startswith("receipt ") and item.endswith("receipt.json") for item in printed)


def delivered(root: Path) -> list[Path]:
    return [path for path in (root / "outputs").rglob("*") if path.is_file()]


def test_step_that_lost_a_document_fails_the_build_until_it_is_done_again_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "corpus", documents=16)
    config = check_config(configuration(tmp_path), where="test")
    stage = GRAPH["tokenize"]

    def losing(*given: Any) -> Outcome:
        outcome: Outcome = stage.work.run(*given)
        outcome.counts["documents_out"] -= 1
        return outcome

    with monkeypatch.context() as patched:
        lost = dataclasses.replace(stage, work=dataclasses.replace(stage.work, run=losing))
        changed = Graph(lost if item is stage else item for item in GRAPH)
        patched.setattr("corpusmill.builds.graph.GRAPH", changed)
        with raises("step.unbalanced", "tokenize 00000"):
            build_dataset(config, workers=1)
    with raises(
        "step.unbalanced", "1 missing", "corpusmill reprocess CONFIG --stage tokenize --shard 0"
    ):  # the receipt is there, and would be reused
        build_dataset(config, workers=1)
    assert delivered(tmp_path) == []
    ask_for_shard(open_build(plan_dataset(config)), "tokenize", "00000")
    build_dataset(config, workers=1)
    assert delivered(tmp_path)
