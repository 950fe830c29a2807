"""Unchanged stages: a look at every step finds the same, and a stage with any difference is looked at step by step."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, Check, Receipt, request_rerun, rerun_requested
from corpusmill.engine.preview import preview
from corpusmill.engine.rollup import is_unchanged, read_sealed, sealed
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.stage import Graph, StepName
from corpusmill.engine.work import Identity
from corpusmill.fingerprint import fingerprint
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents
from tests.system.kept import keep, put_back


@pytest.fixture(scope="module", params=["keep", "eager"])
def config(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> DatasetConfig:
    """A shard for each of three files."""
    root = tmp_path_factory.mktemp("unchanged")
    (root / "corpus").mkdir()
    for number in range(3):
        (root / f"corpus/{number}.jsonl").write_bytes(lines_of(make_documents(20, seed=number), 20 * number))
    source = {"paths": [str(root / "corpus")], "shard_bytes": 1}
    return check_config(configuration(root, source=source, reclaim=request.param), where="test")


@pytest.fixture(scope="module")
def plan(config: DatasetConfig) -> Path:
    path = build_dataset(config, workers=1)
    assert unchanged_stages(open_build(path)) == set(GRAPH.names)
    keep(path.parents[4])
    return path


@pytest.fixture
def built(config: DatasetConfig, plan: Path) -> RunnableBuild:
    """Built and noted; each test may change what it finds."""
    put_back(plan.parents[4])  # whose inodes are others
    assert not any(is_unchanged(open_build(plan), stage) for stage in GRAPH.names if open_build(plan).units(stage))
    build_dataset(config, workers=1)
    return open_build(plan)


def notes(build: Build) -> list[Path]:
    return sorted(build.plan_folder.glob(".rollup-*.standing"))


def without_notes(build: Build, graph: Graph = GRAPH) -> RunnableBuild:
    for path in notes(build):
        path.unlink()
    return RunnableBuild(build.plan_receipt, graph)


def unchanged_stages(build: Build) -> set[str]:
    return {stage for stage in build.graph.names if is_unchanged(build, stage)}


def test_every_stage_is_unchanged_after_a_build_and_names_the_folders_of_its_steps(built: Build) -> None:
    assert unchanged_stages(built) == set(GRAPH.names)
    slow = open_build(built.plan_receipt)
    for stage in GRAPH.names:
        for unit in slow.units(stage):
            assert built.place(stage, unit) == slow.step(stage, unit).place(slow.home(stage))
            assert built.find(stage, unit) == slow.find(stage, unit)


def test_unchanged_build_computes_no_fingerprint_of_its_stages(
    built: Build, config: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: set[str] = set()
    original = Build._find_step

    def find_step(build: Build, stage: Any, unit: str) -> Any:
        looked_at.add(stage.name)
        return original(build, stage, unit)

    monkeypatch.setattr(Build, "_find_step", find_step)
    assert all(row.fate == "reuse" for row in preview(open_build(built.plan_receipt)) if GRAPH[row.stage].reuse)
    assert looked_at == set()
    build_dataset(config, workers=1)
    assert looked_at == {stage.name for stage in GRAPH if not stage.reuse}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace('"counts"', '"count5"'))


def write_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replace_by_copy(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    copy.replace(path)


def some_output(build: Build, step: StepName) -> Path:
    receipt = build.receipt(*step)
    names = [output.name for output in receipt.outputs if output.size_bytes and output.name not in receipt.reclaimed]
    if not names:
        pytest.skip("all files of this step are reclaimed")
    return build.step_folder(*step) / names[0]


CHANGES: dict[str, Callable[[Build, StepName], None]] = {
    "receipt removed": lambda build, step: (build.step_folder(*step) / RECEIPT_NAME).unlink(),
    "receipt edited": lambda build, step: edit(build.step_folder(*step) / RECEIPT_NAME),
    "receipt written again": lambda build, step: write_again(build.step_folder(*step) / RECEIPT_NAME),
    "receipt replaced": lambda build, step: replace_by_copy(build.step_folder(*step) / RECEIPT_NAME),
    "asked again": lambda build, step: request_rerun(build.step_folder(*step)),
    "output cut": lambda build, step: truncate(some_output(build, step)),
    "output removed": lambda build, step: some_output(build, step).unlink(),
}


STAGES = ["export", "index", "scatter", "union", "download", "shared", "tokenize", "manifest"]


@pytest.mark.parametrize("case", quick(sorted(product(CHANGES, STAGES), key=fingerprint), 8, 4), ids=" of ".join)
def test_stage_with_a_changed_step_is_changed_and_is_previewed_as_without_notes(
    built: Build, config: DatasetConfig, case: tuple[str, str]
) -> None:
    change, stage = case
    before = built.receipt("manifest", "dataset").digest
    CHANGES[change](built, (stage, built.units(stage)[-1]))
    changed = open_build(built.plan_receipt)
    assert stage not in unchanged_stages(changed)
    with_notes = preview(changed)
    assert with_notes == preview(without_notes(built))
    build_dataset(config, workers=1)
    again = open_build(built.plan_receipt)
    assert again.receipt("manifest", "dataset").digest == before
    assert not any(rerun_requested(again.place(name, unit)) for name in GRAPH.names for unit in again.units(name))
    build_dataset(config, workers=1)
    assert unchanged_stages(open_build(built.plan_receipt)) == set(GRAPH.names)


class Other(Identity):
    other: bool


WORK: Any = GRAPH["index"].work


def other(graph: Graph, stage: str, **values: Any) -> Graph:
    return Graph(replace(node, **values) if node.name == stage else node for node in graph)


@pytest.mark.parametrize(
    "values",
    [
        {"version": 99},
        {"work": replace(WORK, identity=lambda _build, _unit: Other(True))},
        {"work": replace(WORK, identity=lambda _build, unit: Other(unit == "00001"))},
        {"work": replace(WORK, inputs=lambda _build, unit: {"parts": [("download", unit), ("download", "00000")]})},
    ],
)
def test_stage_of_other_version_settings_or_inputs_is_changed(built: Build, values: dict[str, Any]) -> None:
    graph = other(GRAPH, "index", **values)
    changed = RunnableBuild(built.plan_receipt, graph)
    assert "download" in unchanged_stages(changed)
    assert "index" not in unchanged_stages(changed)
    with_notes = preview(changed)
    assert with_notes == preview(without_notes(built, graph))


def test_stage_whose_inputs_have_other_digests_is_changed(built: Build) -> None:
    path = built.plan_folder / ".rollup-index"
    text = read_sealed(path)
    assert text is not None
    path.write_bytes(sealed(text[:-1] + bytes([text[-1] ^ 1])))
    assert "anchor" not in unchanged_stages(open_build(built.plan_receipt))


def test_stage_that_reclaimed_files_is_unchanged_only_with_their_readers(built: Build) -> None:
    (built.step_folder("export", built.units("export")[0]) / RECEIPT_NAME).unlink()
    left = unchanged_stages(open_build(built.plan_receipt))
    reclaimed = any(built.receipt("gather", unit).reclaimed for unit in built.units("gather"))
    assert ("gather" in left) == (not reclaimed)
    assert "tokenize" in left


@pytest.mark.parametrize("damage", [b"", b"{}", b"no seal\n{}", sealed(b'{"made_from": 1}'), sealed(b"\xff")])
def test_note_that_is_damaged_or_of_another_version_is_ignored_and_written_anew(
    built: Build, config: DatasetConfig, damage: bytes
) -> None:
    path = built.plan_folder / ".rollup-index.standing"
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert "index" not in unchanged_stages(open_build(built.plan_receipt))
    build_dataset(config, workers=1)
    assert path.read_bytes() == whole


def test_receipt_damaged_without_a_trace_runs_its_step_again(built: Build, config: DatasetConfig) -> None:
    """As when a disk flips a bit: the file system says nothing of it."""
    receipt = built.step_folder("index", "00001") / RECEIPT_NAME
    digest = built.receipt("index", "00001").digest
    edit(receipt)
    path = built.plan_folder / ".rollup-index.standing"
    noted = msgspec.json.decode(read_sealed(path) or b"")
    status = receipt.stat()
    noted["steps"]["00001"][1] = [status.st_ino, status.st_size, status.st_ctime_ns]
    path.write_bytes(sealed(msgspec.json.encode(noted)))
    assert "index" in unchanged_stages(open_build(built.plan_receipt))
    build_dataset(config, workers=1)
    assert open_build(built.plan_receipt).receipt("index", "00001").digest == digest
    build_dataset(config, workers=1)
    assert unchanged_stages(open_build(built.plan_receipt)) == set(GRAPH.names)


def test_accounts_of_an_unchanged_stage_are_checked(built: Build) -> None:
    def checks(_build: Build, unit: str, _receipt: Receipt) -> list[Check]:
        return [Check("lines", (("in", 1),), (("out", 1 + (unit == "00002")),))]

    build = RunnableBuild(built.plan_receipt, other(GRAPH, "index", checks=checks))
    assert is_unchanged(build, "index")
    with raises("step.unbalanced"):
        build.reuse_stage("index")
