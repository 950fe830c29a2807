"""Rollups: a task needs no receipt but those of its own inputs, and no rollup says what the receipts do not."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import RECEIPT_NAME, Outcome, Receipt, request_rerun, valid_receipt
from corpusmill.engine.preview import preview
from corpusmill.engine.rollup import Digests, Rollup, read_rollup, write_rollup
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.stage import Graph, whole
from corpusmill.engine.work import Inputs, Work
from tests.quick import examples, quick
from tests.system.corpus import configuration, lines_of, make_documents
from tests.system.kept import keep, put_back
from tests.system.verified import NOT_BUILT

KINDS = ("documents", "contexts")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> DatasetConfig:
    """A shard for each of four files."""
    root = tmp_path_factory.mktemp("rollup")
    (root / "corpus").mkdir()
    for number in range(4):
        (root / f"corpus/{number}.jsonl").write_bytes(lines_of(make_documents(20, seed=number), 20 * number))
    source = {"paths": [str(root / "corpus")], "shard_bytes": 1}
    return check_config(configuration(root, source=source), where="test")


@pytest.fixture(scope="module")
def plan(config: DatasetConfig) -> Path:
    path = build_dataset(config, workers=1)
    keep(path.parents[4])
    return path


@pytest.fixture
def built(plan: Path) -> RunnableBuild:
    """Built once: each test may change what it finds."""
    put_back(plan.parents[4])
    return open_build(plan)


def test_rollup_of_each_stage_holds_the_digests_and_the_sums_of_all_receipts(built: Build) -> None:
    for stage in [stage.name for stage in GRAPH if stage.reuse]:
        receipts = [built.receipt(stage, unit) for unit in built.units(stage)]
        rollup = open_build(built.plan_receipt).rollup(stage)
        assert list(rollup.digests.items()) == [(receipt.unit, receipt.digest) for receipt in receipts]
        names = {name for receipt in receipts for name in receipt.counts}
        assert rollup.totals == {name: sum(receipt.counts.get(name, 0) for receipt in receipts) for name in names}


@pytest.mark.parametrize("stage", quick([name for name in reversed(GRAPH.per_shard) if name not in NOT_BUILT], 4))
def test_task_of_a_shard_opens_without_a_receipt_of_another_shard(built: Build, stage: str) -> None:
    units = [unit for unit in built.units(stage) if unit.endswith("00002")]
    folders = {unit: built.step_folder(stage, unit) for unit in units}
    for earlier in GRAPH.before(stage):
        for unit in built.units(earlier):
            if GRAPH[earlier].per_shard and not unit.endswith("00002"):
                (built.step_folder(earlier, unit) / RECEIPT_NAME).rename(built.work / f"{earlier}-{unit}")
    opened = open_build(built.plan_receipt)
    assert opened.units(stage) == built.units(stage)
    assert {unit: opened.step(stage, unit).folder(built.work) for unit in units} == folders


def test_step_has_one_identity_whether_its_inputs_are_rolled_up_or_read_one_by_one(built: Build) -> None:
    one_by_one = Build(built.plan_receipt, GRAPH, partial(valid_receipt, verify=False))  # keeps no rollup
    rolled_up = open_build(built.plan_receipt)
    for stage in GRAPH.names:
        for unit in rolled_up.units(stage):
            assert rolled_up.step(stage, unit) == one_by_one.step(stage, unit)


@given(data=st.data())
@examples(50)
def test_rollup_with_one_byte_changed_is_never_believed(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("plan")
    units = ["00000", "00001"]
    rollup = Rollup(Digests(units, bytes(range(64))), {"documents": 7}, {"records": [3, 4]})
    write_rollup(rollup, folder, "index")
    assert read_rollup(folder, "index", units) == rollup
    whole = bytearray((folder / ".rollup-index").read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / ".rollup-index").write_bytes(whole)
    assert read_rollup(folder, "index", units) is None
    assert not (folder / ".rollup-index").exists()
    write_rollup(rollup, folder, "index")
    assert read_rollup(folder, "index", units[::-1]) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b"no seal\n{}", b"0" * 32 + b'\n{"digests": {}, "totals": {}}'])
def test_rollup_that_is_damaged_is_written_anew(built: Build, damage: bytes) -> None:
    path = built.plan_folder / ".rollup-index"
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert read_rollup(built.plan_folder, "index", built.units("index")) is None
    assert open_build(built.plan_receipt).total("index", "documents_out") == built.total("index", "documents_out")
    assert path.read_bytes() == whole


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_rollup_where_nothing_may_be_written_is_done_without(built: Build) -> None:
    (built.plan_folder / ".rollup-index").unlink()
    built.plan_folder.chmod(0o500)
    try:
        assert open_build(built.plan_receipt).total("index", "documents_out") == 80
    finally:
        built.plan_folder.chmod(0o700)


def counting(monkeypatch: pytest.MonkeyPatch, more: int, shard: str = "00000") -> Graph:
    """The stages, with `more` on top of one count of a shard's anchors, as another library might give it."""

    def run(inputs: Inputs, *given: Any) -> Outcome:
        outcome: Outcome = GRAPH["anchor"].work.run(inputs, *given)
        counts = outcome.counts
        return replace(
            outcome, counts={**counts, "largest_bucket": counts["largest_bucket"] + more * (inputs.unit == shard)}
        )

    anchor = replace(GRAPH["anchor"], work=replace(GRAPH["anchor"].work, run=run))
    changed = Graph(anchor if stage.name == "anchor" else stage for stage in GRAPH)
    monkeypatch.setattr("corpusmill.builds.graph.GRAPH", changed)
    monkeypatch.setattr("corpusmill.builds.local.GRAPH", changed)
    return changed


@pytest.mark.parametrize("how", ["asked for again", "removed"])
def test_rollup_follows_a_receipt_that_becomes_another(
    built: Build, config: DatasetConfig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before = built.total("anchor", "largest_bucket")
    folder, shared = built.step_folder("anchor", "00000"), built.step_folder("shared", "00000")
    if how == "removed":
        (folder / RECEIPT_NAME).unlink()
    else:
        request_rerun(folder)
    graph = counting(monkeypatch, 5)
    again = Build(build_dataset(config, workers=1), graph)
    assert again.total("anchor", "largest_bucket") == before + 5
    assert again.step_folder("shared", "00000") != shared
    digests: dict[str, Any] = {receipt.unit: receipt.digest for receipt in again.receipts("anchor")}
    assert again.rollup("anchor").digests == digests


def test_build_at_one_moment_sees_what_finished_before_and_after_it(config: DatasetConfig, built: Build) -> None:
    receipt = built.step_folder("index", "00001") / RECEIPT_NAME
    aside = receipt.rename(built.work / "aside")
    opened = open_build(built.plan_receipt)
    with opened.at_this_moment():
        assert opened.find("index", "00000")
        assert opened.find("index", "00001") is None
        aside.rename(receipt)
        assert opened.find("index", "00001") is None
    assert opened.find("index", "00001")


def digest_of(receipts: list[Receipt]) -> str:
    return hashlib.sha256(b"".join(bytes.fromhex(receipt.digest) for receipt in receipts)).hexdigest()


def inputs_of(build: Build, stage: str, unit: str) -> dict[tuple[str, str], str]:
    return {(item.stage, item.unit): item.digest for item in build.receipt(stage, unit).inputs}


def test_input_of_many_has_the_digest_of_all_their_receipts_in_order(built: Build) -> None:
    for unit in built.units("shared"):
        assert inputs_of(built, "shared", unit) == {("anchor", "*"): digest_of(built.receipts("anchor"))}
    kinds = {kind: [unit for unit in built.units("scatter") if unit.startswith(kind)] for kind in KINDS}
    assert all(len(units) == 4 for units in kinds.values())
    for unit in built.units("gather"):
        kind = unit.rpartition("-")[0]
        scattered = [built.receipt("scatter", of) for of in kinds[kind]]
        assert inputs_of(built, "gather", unit) == {("scatter", f"{kind}-*"): digest_of(scattered)}
        assert built.inputs("gather", unit) == [("scatter", of) for of in kinds[kind]]


def test_input_of_many_is_not_named_where_the_stage_has_no_units(built: Build) -> None:
    assert not built.units("decontaminate")
    assert whole(built, "decontaminate") == []
    assert whole(built, "scatter", kind="other-") == []
    assert "decontaminate" not in {stage for stage, _ in inputs_of(built, "manifest", "dataset")}


def test_step_opens_its_inputs_of_one_kind_and_no_other(built: Build) -> None:
    work = GRAPH["gather"].work
    assert isinstance(work, Work)
    for kind in KINDS:
        unit = next(unit for unit in built.units("gather") if unit.startswith(kind))
        shards = work.opened(built, unit).every("shards")
        assert [step.unit for step in shards] == [of for of in built.units("scatter") if of.startswith(kind)]
        assert [step.receipt for step in shards] == [built.receipt("scatter", step.unit) for step in shards]


def test_receipt_of_a_step_that_reads_ten_thousand_is_no_longer_than_of_one_that_reads_one(built: Build) -> None:
    for stage in ("shared", "gather", "manifest", "match", "settle"):
        for unit in built.units(stage):
            assert len(built.receipt(stage, unit).inputs) <= 1 + len(GRAPH.before(stage))


@pytest.mark.parametrize("number", range(4))
def test_step_that_reads_many_runs_again_when_any_of_them_changes(
    built: Build, config: DatasetConfig, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    first = built.units("shared")[0]
    request_rerun(built.step_folder("anchor", f"{number:05d}"))
    graph = counting(monkeypatch, 5, f"{number:05d}")
    again = RunnableBuild(build_dataset(config, workers=1), graph)
    assert again.step_folder("shared", first) != built.step_folder("shared", first)
    assert inputs_of(again, "shared", first) == {("anchor", "*"): digest_of(again.receipts("anchor"))}


def test_preview_names_the_stage_of_an_input_of_many_that_changed(
    built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_rerun(built.step_folder("anchor", "00000"))
    changed = RunnableBuild(built.plan_receipt, counting(monkeypatch, 5))
    changed.run("anchor", "00000")
    why = {(row.stage, row.unit): row.why for row in preview(open_build(built.plan_receipt))}
    assert {why["shared", unit] for unit in built.units("shared")} == {"changed: anchor"}


@pytest.mark.parametrize("how", ["lost", "asked for again"])
def test_steps_that_were_looked_up_follow_a_receipt_that_becomes_another(
    built: Build, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Reclaiming looks up readers early."""
    folder = built.step_folder("anchor", "00002")
    if how == "lost":
        (folder / RECEIPT_NAME).unlink()
    else:
        request_rerun(folder)
    graph = counting(monkeypatch, 5, "00002")
    build = RunnableBuild(built.plan_receipt, graph)
    units = build.units("shared")
    build.step("shared", units[0])
    assert build.find("shared", units[1])
    build.run("anchor", "00002")
    fresh = RunnableBuild(built.plan_receipt, graph)
    for unit in units:
        assert build.step("shared", unit) == fresh.step("shared", unit)
        assert not build.need_not_run("shared", unit)
        assert build.find("shared", unit) is None
