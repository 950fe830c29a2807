"""reclaim: eager deletes what no step needs, delivers the same bytes, and makes again what a later run needs."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.reprocess import ask_for_shard, compare, digests
from corpusmill.engine.build import Build
from corpusmill.engine.garbage import find_garbage
from corpusmill.engine.ledger import Outcome, reading
from corpusmill.engine.preview import preview
from corpusmill.engine.reclaim import _find_readers, readers_of
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begin_run
from corpusmill.engine.stage import Graph, kind_of
from corpusmill.engine.work import Identity, Inputs, Work
from corpusmill.inspect.lineage import locate_id, trace, verify_records
from corpusmill.inspect.verify import render, verify_build
from tests.quick import examples, quick
from tests.raising import raises
from tests.system.corpus import configuration
from tests.system.kept import keep, put_back
from tests.system.reclaimed import (
    HELD,
    RECLAIMED,
    build,
    configured,
    held_bytes,
    outputs,
    require_reclaimed,
    write_files,
)
from tests.system.verified import NOT_BUILT


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, built with `keep`."""
    root = tmp_path_factory.mktemp("kept")
    write_files(root / "corpus", 1, 2, 3)
    build(root, "keep")
    return root


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, built with `eager`."""
    root = tmp_path_factory.mktemp("eager")
    write_files(root / "corpus", 1, 2, 3)
    build(root)
    return root


@pytest.fixture(scope="module")
def root_kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    write_files(root / "corpus", 1, 2, 3)
    build(root)
    keep(root)
    return root


@pytest.fixture
def root(root_kept: Path) -> Path:
    """Another one, which a test may change."""
    put_back(root_kept)
    return root_kept


def test_eager_build_delivers_the_bytes_of_keep_and_holds_receipts(kept: Path, eager: Path) -> None:
    assert outputs(eager) == outputs(kept)
    built, other = open_build(plan_dataset(configured(eager))), open_build(plan_dataset(configured(kept, "keep")))
    require_reclaimed(built)
    assert digests(built) == digests(other)
    assert held_bytes(built) < held_bytes(other) / 4


def test_unchanged_eager_build_has_nothing_to_reclaim_and_waits_for_no_reader(root: Path) -> None:
    built = open_build(plan_dataset(configured(root)))
    work = built.work
    with ExitStack() as readers:
        for stage in RECLAIMED:
            for kind in set(map(kind_of, built.units(stage))):
                readers.enter_context(reading(work / stage, kind))
        require_reclaimed(build(root))
    assert not list(work.glob("*/.reclaim_later*"))


def test_unchanged_eager_build_deletes_what_a_killed_one_had_reclaimed_and_not_deleted(root: Path) -> None:
    built = open_build(plan_dataset(configured(root)))
    reclaimed = {
        stage: built.step_folder(stage, unit) / built.receipt(stage, unit).reclaimed[0]
        for stage in RECLAIMED
        for unit in built.units(stage)
        if built.receipt(stage, unit).reclaimed
    }
    for path in reclaimed.values():
        path.write_bytes(b"left")
    require_reclaimed(build(root))
    assert not [path for path in reclaimed.values() if path.exists()]


def test_eager_build_hands_its_exports_over_to_an_only_destination_and_keeps_no_name_of_them(eager: Path) -> None:
    built = open_build(plan_dataset(configured(eager)))
    version = (eager / "outputs" / "tiny" / "latest").resolve()
    names = [output.name for unit in built.units("export") for output in built.receipt("export", unit).outputs]
    inodes = [(version / name).stat() for name in names]
    assert all(inode.st_nlink == [other.st_ino for other in inodes].count(inode.st_ino) for inode in inodes)
    assert min(inode.st_mtime for inode in inodes) < built.finished_at("manifest", "dataset")  # no copy was made since


def test_steps_that_run_again_with_the_same_outcome_leave_what_was_computed_from_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand may: what a reprocess needs of all shards was freed."""
    looked_up: list[str] = []

    def noted(build: Build, stage: str) -> dict[str, list[tuple[str, str]]]:
        looked_up.append(stage)
        return _find_readers(build, stage)

    monkeypatch.setattr("corpusmill.engine.reclaim._find_readers", noted)
    built = open_build(plan_dataset(configured(root)))
    before, rollup = digests(built), built.rollup("scatter")
    for unit in built.units("scatter"):
        assert built.receipt("scatter", unit).reclaimed
        built.make_whole("scatter", unit)
    assert sorted(looked_up) == sorted(set(looked_up))
    assert built.rollup("scatter") is rollup
    assert digests(open_build(built.plan_receipt)) == before
    require_reclaimed(open_build(built.plan_receipt))


def test_readers_of_a_stage_are_the_steps_that_name_it_among_their_inputs(root: Path) -> None:
    built = open_build(plan_dataset(configured(root)))
    for stage in RECLAIMED:
        later = built.graph.between(stage, built.graph[stage].read_until)
        steps = [(name, unit) for name in later for unit in built.units(name)]
        for unit, readers in readers_of(built, stage).items():
            assert sorted(readers) == sorted(step for step in steps if (stage, unit) in built.inputs(*step))


def test_eager_build_by_several_processes_gives_everything_back(kept: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "corpus", 1, 2, 3)
    built = build(tmp_path, workers=2)
    assert outputs(tmp_path) == outputs(kept)
    require_reclaimed(open_build(built.plan_receipt))


@examples(6)
@given(
    formats=st.sets(st.sampled_from(["webdataset", "numpy", "megatron", "nanoset"]), min_size=1),
    order=st.sampled_from(["random", "source"]),
    cells=st.sampled_from([None, 1, 3]),
    files=st.integers(1, 3),
)
def test_eager_build_of_any_configuration_delivers_the_bytes_of_keep(
    tmp_path_factory: pytest.TempPathFactory, formats: set[str], order: str, cells: int | None, files: int
) -> None:
    delivered = []
    for reclaim in ("keep", "eager"):
        root = tmp_path_factory.mktemp(reclaim)
        write_files(root / "corpus", *range(files))
        exports = {name: item for name, item in configuration(root)["exports"].items() if name in formats}  # type: ignore[attr-defined]
        shuffle = {"order": "source"} if order == "source" else {"seed": 7, "cells": cells}
        built = build(root, reclaim, exports=exports, shuffle=shuffle)
        delivered.append(outputs(root))
    require_reclaimed(built)
    assert delivered[0] == delivered[1]


def test_finished_eager_build_runs_again_without_any_work_and_is_whole(root: Path) -> None:
    built = open_build(plan_dataset(configured(root)))
    steps = [(stage, unit) for stage in RECLAIMED for unit in built.units(stage)]
    before = [built.finished_at(*step) for step in steps]
    built = build(root)
    assert [built.finished_at(*step) for step in steps] == before
    assert {item.fate for item in preview(built) if built.graph[item.stage].reuse} == {"reuse"}
    require_reclaimed(built)
    assert find_garbage(built.work, GRAPH) == []


def test_kept_build_that_becomes_eager_reclaims_without_running_a_step(kept: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "corpus", 1, 2, 3)
    built = build(tmp_path, "keep")
    times = [built.finished_at("gather", unit) for unit in built.units("gather")]
    later = build(tmp_path)
    require_reclaimed(later)
    assert times == [later.finished_at("gather", unit) for unit in later.units("gather")]
    assert outputs(tmp_path) == outputs(kept)


@pytest.mark.parametrize("workers", quick([2, 1], 1))
@pytest.mark.parametrize("shuffle", [{"seed": 7}, {"order": "source"}])
def test_refresh_after_appended_files_equals_a_build_from_scratch(
    tmp_path: Path, shuffle: dict[str, object], workers: int
) -> None:
    write_files(tmp_path / "a" / "corpus", 1, 2, 3)
    build(tmp_path / "a", shuffle=shuffle)
    write_files(tmp_path / "a" / "corpus", 4)
    require_reclaimed(build(tmp_path / "a", workers=workers, shuffle=shuffle))
    write_files(tmp_path / "b" / "corpus", 1, 2, 3, 4)
    build(tmp_path / "b", "keep", shuffle=shuffle)
    assert outputs(tmp_path / "a") == outputs(tmp_path / "b")


@pytest.mark.parametrize("stage", quick([name for name in reversed(GRAPH.per_shard) if name not in NOT_BUILT], 2))
def test_reprocessed_shard_of_any_stage_leaves_every_byte_as_it_was(root: Path, kept: Path, stage: str) -> None:
    built = open_build(plan_dataset(configured(root)))
    before = digests(built)
    assert ask_for_shard(built, stage, "00001")
    run_build(built.plan_receipt, workers=1)
    built = open_build(built.plan_receipt)
    assert compare(before, digests(built)) == []
    assert outputs(root) == outputs(kept)
    require_reclaimed(built)


def run_again(build: RunnableBuild, stage: str, unit: str) -> None:
    build.ask_for(stage, unit)
    build.run(stage, unit)


@pytest.mark.parametrize("stage", quick([*HELD[:2], HELD[-1], *HELD[2:-1]], 2, 1))
def test_cleared_task_makes_again_what_it_reads_and_gives_it_back(root: Path, kept: Path, stage: str) -> None:
    built = open_build(plan_dataset(configured(root)))
    for later in GRAPH.names[
        GRAPH.names.index(stage) : GRAPH.names.index("report")
    ]:  # cleared with everything downstream of it
        if later == stage or stage in GRAPH.before(later):
            for unit in built.units(later):
                run_again(open_build(built.plan_receipt), later, unit)
    assert outputs(root) == outputs(kept)
    require_reclaimed(open_build(built.plan_receipt))


@pytest.mark.parametrize("stage", quick(HELD, 3))
def test_cleared_task_alone_reclaims_what_it_made(root: Path, stage: str) -> None:
    built = open_build(plan_dataset(configured(root)))
    run_again(built, stage, built.units(stage)[0])
    require_reclaimed(open_build(built.plan_receipt))


def test_step_under_way_keeps_what_it_reads_while_others_finish(root: Path) -> None:
    receipt = plan_dataset(configured(root))
    units = open_build(receipt).units("export")
    tries = []

    def run_among_others(inputs: Inputs, *given: Any) -> Any:
        tries.append(inputs.unit)
        for other in units:
            if other != inputs.unit:
                open_build(receipt).run("export", other)  # and reclaims what it read
        return export.work.run(inputs, *given)

    export = GRAPH["export"]
    among_others = replace(export, work=replace(export.work, run=run_among_others))
    slow = Graph(among_others if item is export else item for item in GRAPH)
    run_again(RunnableBuild(receipt, slow), "export", units[0])
    assert tries == units[:1] * 2  # the first try met files that were not there
    require_reclaimed(open_build(receipt))


def test_damage_to_what_a_freed_step_keeps_is_mended_for_a_later_stage(root: Path) -> None:
    built = open_build(plan_dataset(configured(root)))
    cell, before = built.receipt("gather", built.units("gather")[0]), built.receipt("manifest", "dataset")
    names = {output.name for output in cell.outputs if output.size_bytes} - set(cell.reclaimed)
    assert names < {output.name for output in cell.outputs}
    for name in names:
        path = built.step_folder("gather", cell.unit) / name
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    shutil.rmtree(built.step_folder("manifest", "dataset"))
    again = open_build(built.plan_receipt)
    again.run("manifest", "dataset")  # as a cleared task does: nobody looks at the cell before
    assert again.receipt("manifest", "dataset").outputs == before.outputs
    require_reclaimed(open_build(built.plan_receipt))


def test_stage_of_ones_own_that_reads_what_is_freed_before_it_is_one_error(root: Path) -> None:
    def read_cells(inputs: Inputs, *_: Any) -> Any:
        inputs["cell"].folder()
        return Outcome(counts={"bytes_read": 0})

    late = replace(
        GRAPH["gather"],
        name="late",
        after=("upload",),
        units=lambda build: build.units("gather"),
        work=Work(Identity, lambda *_: Identity(), lambda _build, unit: {"cell": [("gather", unit)]}, read_cells),
        checks=lambda *_: [],
        reclaimed=(),
    )
    built = RunnableBuild(plan_dataset(configured(root)), Graph([*GRAPH, late]))
    with raises("step.reads_reclaimed", "gather"):
        built.run("late", built.units("late")[0])


def test_last_reader_reclaims_what_others_could_not_while_it_read(tmp_path: Path) -> None:
    write_files(tmp_path / "corpus", 1, 2, 3)
    built = open_build(begin_run(plan_dataset(configured(tmp_path))))
    for stage in (*GRAPH.before("gather"), "gather"):
        units = built.units(stage)
        kept = units[0] if stage == "gather" else ""
        with reading(built.work / "scatter", kind_of(kept)) if kept else nullcontext():
            for unit in units:
                built.run(stage, unit)
    assert freed_kinds(built) == {kind_of(units[-1])}
    built.run("gather", units[0])
    assert freed_kinds(open_build(built.plan_receipt)) == {kind_of(units[0]), kind_of(units[-1])}


def freed_kinds(built: Build) -> set[str]:
    return {kind_of(unit) for unit in built.units("scatter") if built.receipt("scatter", unit).reclaimed}


def test_last_cell_of_documents_frees_scattered_documents_while_contexts_are_read(tmp_path: Path) -> None:
    write_files(tmp_path / "corpus", 1, 2, 3)
    built = open_build(begin_run(plan_dataset(configured(tmp_path))))
    for stage in GRAPH.before("gather"):
        for unit in built.units(stage):
            built.run(stage, unit)
    with reading(built.work / "scatter", "contexts"):
        for unit in built.units("gather"):
            if kind_of(unit) == "documents":
                built.run("gather", unit)
    assert freed_kinds(built) == {"documents"}


def test_destination_that_lacks_a_file_gets_it_again(root: Path, kept: Path) -> None:
    version = (root / "outputs" / "tiny" / "latest").resolve()
    for name in ("*.npy", "*.tar"):
        next(version.rglob(name)).unlink()
    require_reclaimed(build(root))
    assert outputs(root) == outputs(kept)


def test_destination_that_is_added_gets_everything(root: Path, kept: Path) -> None:
    places = [{"path": str(root / "outputs")}, {"path": str(root / "more")}]
    require_reclaimed(build(root, destinations=places))
    shutil.rmtree(root / "outputs")
    (root / "more").rename(root / "outputs")
    assert outputs(root) == outputs(kept)


def test_verify_says_reclaimed_and_sees_damage_at_the_destination(root: Path) -> None:
    built = open_build(plan_dataset(configured(root)))
    verification = verify_build(built)
    assert verification.findings == ()
    assert "freed (reclaim: eager)" in render(verification)
    delivered = next((root / "outputs" / "tiny" / "latest").resolve().rglob("*.npy"))
    delivered.write_bytes(b"\0" * delivered.stat().st_size)
    assert [finding.where for finding in verify_build(built).findings] == [str(delivered)]


def test_lineage_of_a_reclaimed_build_is_that_of_a_kept_one(root: Path, kept: Path) -> None:
    built, other = open_build(plan_dataset(configured(root))), open_build(plan_dataset(configured(kept, "keep")))
    assert trace(built, "numpy", 0, 100) == trace(other, "numpy", 0, 100)
    assert trace(built, "webdataset", 0, 3) == trace(other, "webdataset", 0, 3)
    assert locate_id(built, "doc-21") == locate_id(other, "doc-21")
    assert verify_records(built, 40, 0) == verify_records(other, 40, 0)


@pytest.mark.parametrize("stage", quick(["manifest", "upload", "union", *HELD, "report"], 3, 3))
def test_build_that_stops_before_any_stage_goes_on_to_the_same_bytes(tmp_path: Path, kept: Path, stage: str) -> None:
    write_files(tmp_path / "corpus", 1, 2, 3)
    receipt = begin_run(plan_dataset(configured(tmp_path)))
    for name in GRAPH.before(stage):
        built = open_build(receipt)
        for unit in built.units(name):
            built.run(name, unit)
    require_reclaimed(build(tmp_path))
    assert outputs(tmp_path) == outputs(kept)
