"""A byte flipped after its receipt: the next step that opens it notices, and its producer alone runs again."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Graph
from corpusmill.engine.work import Inputs
from corpusmill.inspect.verify import render, verify_build
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, reused, write_corpus
from tests.system.kept import keep, put_back

STAGES = (
    "download",
    "index",
    "anchor",
    "shared",
    "context",
    "settle",
    "border",
    "match",
    "union",
    "tokenize",
    "scatter",
    "gather",
    "export",
)


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def outputs(root: Path) -> dict[str, bytes]:
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path: Path, at: int) -> None:
    """One bit of one byte; size and modification time stay."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# (what is damaged, what changes in the configuration so that a later stage opens it)
PARTS = {"exports": {"megatron": {"part_bytes": "20KiB"}}}
DAMAGE = [
    (("gather", "documents-00000"), "tokens", PARTS),
    (("gather", "documents-00000"), "records", PARTS),
    (("gather", "documents-00000"), "record_shard.json", PARTS),
    (("gather", "documents-00000"), ".blocks", PARTS),
    (("scatter", "documents-00000"), "tokens", {}),  # what read it is removed: nothing else makes gather run again
    (("tokenize", "00000"), "tokens", {"shuffle": {"seed": 8}}),
    (("tokenize", "00000"), "ends", {"shuffle": {"seed": 8}}),
    (("index", "00000"), "tokenized", {"dedup": {"mode": "remove", "minimum_bytes": 90}}),
    (("index", "00000"), "offset", {"dedup": {"mode": "remove", "minimum_bytes": 90}}),
    (
        ("anchor", "00000"),
        "anchor_buckets",
        {"dedup": {"mode": "remove", "minimum_bytes": 100, "keep": "every_string"}},
    ),
    (("anchor", "00000"), "anchors", {"dedup": {"mode": "remove", "minimum_bytes": 100, "keep": "every_string"}}),
    (("shared", "00000"), "contexts", {"dedup": {"mode": "remove", "minimum_bytes": 100, "keep": "every_string"}}),
    (("union", "00000"), "cut_ranges", {"selection": {"minimum_bytes": 30}}),
    (("download", "00000"), "files.json", {"source": {"text_field": "id"}}),
]


@pytest.fixture(scope="module")
def delivered() -> dict[str, dict[str, bytes]]:
    """By change, what a build from scratch delivers after it."""
    return {}


@pytest.fixture
def clean(tmp_path_factory, number: int, delivered: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    changes = DAMAGE[number][2]
    if (name := json.dumps(changes)) not in delivered:
        root = tmp_path_factory.mktemp("clean")
        write_corpus(root / "corpus", documents=40)
        build(root, **changed(root, changes))
        delivered[name] = outputs(root)
    return delivered[name]


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("damage")
    write_corpus(root / "corpus", documents=40)
    path = build(root).plan_receipt
    keep(root)
    return path


@pytest.fixture
def root(plan: Path) -> Path:
    """Where that was built, as it was."""
    put_back(plan.parents[4])
    return plan.parents[4]


def changed(root: Path, changes: dict[str, dict[str, object]]) -> dict[str, object]:
    plain = configuration(root)
    return {
        section: values if section == "exports" else {**plain.get(section, {}), **values}  # type: ignore[dict-item]
        for section, values in changes.items()
    }


@pytest.mark.parametrize("number", quick(range(len(DAMAGE)), 5), ids=[f"{step[0]} {name}" for step, name, _ in DAMAGE])
def test_damage_after_the_receipt_is_noticed_when_opened_and_mended_by_its_producer(root, plan, clean, number) -> None:
    step, name, changes = DAMAGE[number]
    built = open_build(plan)
    path = built.step_folder(*step) / name
    if not path.exists():
        pytest.fail(f"{step} has no {name}: {sorted(path.parent.iterdir())}")
    whole = path.read_bytes()
    flip(path, len(whole) // 2)
    if step[0] == "scatter":
        shutil.rmtree(built.step_folder("gather", "documents-00000"))
    again = build(root, **changed(root, changes))
    assert outputs(root) == clean
    assert path.read_bytes() == whole
    earlier = [(stage, unit) for stage in STAGES for unit in built.units(stage)]
    kept = [item for item in earlier if item in {(stage, unit) for stage in STAGES for unit in again.units(stage)}]
    assert again.step_folder(*step) == built.step_folder(*step)
    assert not reused(again, *step)
    same = [item for item in kept if again.step_folder(*item) == built.step_folder(*item)]
    removed = [("gather", "documents-00000")] if step[0] == "scatter" else []
    assert [item for item in same if not reused(again, *item)] == [step, *removed]
    assert verify_build(again).findings == ()


@pytest.mark.parametrize("advice", ["ignored", "followed"])
def test_damage_to_a_gathered_cell_is_never_delivered_whatever_verify_was_told(
    root, plan, tmp_path, advice: str
) -> None:
    """A wrong token in a cell, verify, another part size, the folder removed as advised."""
    built = open_build(plan)
    path = built.step_folder("gather", "documents-00000") / "tokens"
    (tmp_path / "corpus").symlink_to(root / "corpus")
    build(tmp_path, **PARTS)
    clean = outputs(tmp_path)

    def harmed_and_told() -> None:
        flip(path, 40)
        verification = verify_build(built)
        assert [finding.where for finding in verification.findings] == [str(path)]
        assert "remove the step folder that it names and build again" in render(verification)
        if advice == "followed":
            shutil.rmtree(path.parent)

    harmed_and_told()
    built = build(root, **PARTS)
    assert outputs(root) == clean
    assert verify_build(built).findings == ()
    harmed_and_told()  # what was delivered is right, and stays so
    built = build(root, **PARTS)
    assert outputs(root) == clean
    if advice == "followed":
        assert verify_build(built).findings == ()


def test_content_difference_runs_the_blamed_step_once_more_and_then_says_whose_fault_it_is(
    tmp_path, monkeypatch
) -> None:
    """A step that changes a token every time is the program's fault; one that did once is mended."""
    write_corpus(tmp_path / "corpus", documents=20)
    stage = GRAPH["gather"]
    lies = {"left": 1}

    def lying(inputs: Inputs, *given: Any) -> Outcome:
        outcome = stage.work.run(inputs, *given)
        if lies["left"] and inputs.unit == "documents-00000":
            lies["left"] -= 1
            outcome.details["content"] = f"{int(outcome.details['content'], 16) ^ 1:032x}"
        return outcome

    gather = replace(stage, work=replace(stage.work, run=lying))
    changed = Graph(gather if item is stage else item for item in GRAPH)
    monkeypatch.setattr("corpusmill.builds.graph.GRAPH", changed)
    monkeypatch.setattr("corpusmill.builds.local.GRAPH", changed)
    built = build(tmp_path)
    assert lies["left"] == 0
    assert verify_build(built).findings == ()
    lies["left"] = 99
    with raises("step.unbalanced", "it is a bug"):
        build(tmp_path, shuffle={"seed": 8})
