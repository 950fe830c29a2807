"""Which run of a dataset `latest` follows, which plan is reprocessed, and which steps are still needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset, run_build
from corpusmill.builds.plan import find_plan, plan_dataset
from corpusmill.builds.reprocess import begin
from corpusmill.config import check_config
from corpusmill.engine.garbage import find_garbage
from corpusmill.engine.ledger import read_receipt
from corpusmill.engine.runs import (
    begin_run,
    delivered_plans,
    mark_delivered,
    needed_plans,
    version_before,
    why_latest_stays,
)
from corpusmill.report.html import render_html
from corpusmill.report.summary import from_json
from corpusmill.upload.stages.manifest import dataset_version
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus
from tests.system.kept import keep, put_back

VERSION = "0123456789ab"


@pytest.fixture
def plans(tmp_path: Path) -> list[Path]:
    """The receipts of three plans that nobody has begun."""
    receipts = [tmp_path / "plan" / name / "receipt.json" for name in "abc"]
    for receipt in receipts:
        receipt.parent.mkdir(parents=True)
        receipt.touch()
    return receipts


def deliver(plan_receipt: Path, latest_stays: str = "") -> None:
    begin_run(plan_receipt, latest_stays=latest_stays)
    mark_delivered(plan_receipt.parent, VERSION)


def test_plans_that_were_never_begun_or_never_delivered_decide_nothing(plans: list[Path], tmp_path: Path) -> None:
    built, dry, refused = plans
    deliver(built)
    begin_run(refused)
    assert delivered_plans(tmp_path) == [built]
    assert needed_plans(tmp_path) == [built, refused]  # what a run that may still go on has done is needed
    assert why_latest_stays(refused) == ""  # somebody may clear what failed: it began last
    assert "a newer run has delivered" in why_latest_stays(dry)


def test_version_before_a_run_is_the_last_that_an_earlier_run_moved_latest_to(plans: list[Path]) -> None:
    first, second, third = plans
    begin_run(first)
    assert version_before(first) == ""
    mark_delivered(first.parent, "a" * 12)
    deliver(second, latest_stays="an experiment")
    begin_run(third)
    assert version_before(third) == "a" * 12
    mark_delivered(third.parent, "b" * 12)
    assert version_before(third) == "a" * 12  # also for a report that is written again
    begin_run(third)
    assert version_before(third) == "b" * 12
    begin_run(first)  # whose version latest followed once
    assert version_before(first) == "b" * 12


def test_older_run_that_delivers_again_leaves_latest_alone_until_it_is_begun_again(plans: list[Path]) -> None:
    first, second, _ = plans
    deliver(first)
    assert why_latest_stays(first) == ""
    deliver(second)
    assert f"plan {second.parent.name}" in why_latest_stays(first)
    mark_delivered(first.parent, VERSION)  # a cleared upload, then the report
    assert "start a new run with these settings" in why_latest_stays(first)
    assert why_latest_stays(second) == ""
    begin_run(first)
    assert why_latest_stays(first) == ""


def test_order_of_runs_is_not_that_of_the_clock(plans: list[Path], tmp_path: Path) -> None:
    first, second, _ = plans
    deliver(first)
    ahead = (first.parent / ".started").stat().st_mtime + 400 * 86_400
    for mark in (".started", ".delivered"):
        os.utime(first.parent / mark, (ahead, ahead))
    deliver(second)
    assert delivered_plans(tmp_path) == [second, first]
    assert needed_plans(tmp_path) == [second]


def test_experiment_leaves_latest_alone_and_what_latest_follows_stays_needed(plans: list[Path], tmp_path: Path) -> None:
    built, experiment, later = plans
    deliver(built)
    deliver(experiment, latest_stays="other settings")
    assert why_latest_stays(experiment) == "other settings"
    assert why_latest_stays(built) == ""
    assert delivered_plans(tmp_path) == [built, experiment]
    assert needed_plans(tmp_path) == [built, experiment]
    deliver(later)
    assert needed_plans(tmp_path) == [later]
    deliver(experiment)  # this time as the dataset's own settings
    assert why_latest_stays(experiment) == ""
    assert needed_plans(tmp_path) == [experiment]


def built(root: Path, **changes: object) -> Path:
    return build_dataset(check_config(configuration(root, **changes), where="a test"), workers=1)


def latest(root: Path) -> str:
    (pointer,) = (root / "outputs").glob("*/latest.json")
    assert (pointer.parent / "latest").readlink().name == json.loads(pointer.read_text())["version"]
    return str(json.loads(pointer.read_text())["version"])


@pytest.fixture(scope="module")
def built_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Path, Path]]:
    """(root, the plans) of the same sources built with seed 7, then with seed 8."""
    root = tmp_path_factory.mktemp("rebuilt")
    write_corpus(root / "corpus", documents=24)
    plans = built(root), built(root, shuffle={"seed": 8})
    keep(root)
    return root, plans


@pytest.fixture
def root(built_twice: tuple[Path, tuple[Path, Path]]) -> Path:
    """Where they are, as they were."""
    put_back(built_twice[0])
    return built_twice[0]


@pytest.fixture
def rebuilt(root: Path, built_twice: tuple[Path, tuple[Path, Path]]) -> tuple[Path, Path]:
    return built_twice[1]


def test_upload_of_an_older_run_leaves_latest_at_the_newer_one_and_says_so(
    rebuilt: tuple[Path, Path], root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = map(open_build, rebuilt)
    newest = dataset_version(second)
    assert latest(root) == newest != dataset_version(first)
    for unit in first.units("upload"):
        first.run("upload", unit)
    assert latest(root) == newest
    assert "latest does not move" in caplog.text
    receipt = open_build(rebuilt[0]).run("report", "report")
    summary = from_json((receipt.parent / "summary.json").read_bytes())
    assert "a newer run has delivered" in summary.latest_stays
    assert "a newer run has delivered" in render_html(summary)
    assert read_receipt(receipt).details["moved_latest"] is False


def test_reprocess_takes_the_delivered_plan_not_that_of_a_dry_run(rebuilt: tuple[Path, Path], root: Path) -> None:
    dry = plan_dataset(check_config(configuration(root, shuffle={"seed": 9}), where="a test"))
    work, name = str(root / "work"), rebuilt[1].parents[2].name
    assert find_plan(work, name) == rebuilt[1]
    assert find_plan(work, name, dry.parent.name) == dry
    assert find_plan(work, name, rebuilt[0].parent.name) == rebuilt[0]
    with raises("plan.not_of_dataset"):
        find_plan(work, name, "tiny-0123456789abcdef")
    with raises("source.name_leaves_folder"):
        find_plan(work, name, "../plan")
    assert begin(find_plan(work, name), "tokenize", 0) == rebuilt[1]
    assert why_latest_stays(rebuilt[1]) == ""


def test_reprocess_of_an_older_runs_plan_builds_that_plan_and_leaves_latest(
    rebuilt: tuple[Path, Path], root: Path
) -> None:
    newest = latest(root)
    plan = begin(rebuilt[0], "tokenize", 0)
    assert plan == rebuilt[0]
    build = open_build(plan)
    assert not build.need_not_run("tokenize", "00000")
    for stage in ("tokenize", "audit", "scatter", "gather", "export", "manifest", "upload", "report"):
        for unit in build.units(stage):
            build.run(stage, unit)
    assert latest(root) == newest
    assert find_plan(str(root / "work"), plan.parents[2].name) == rebuilt[1]


def test_reprocess_before_anything_was_delivered_says_to_build_first(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    plan = plan_dataset(check_config(configuration(tmp_path), where="a test"))
    run_build(plan, workers=1, until="index")
    with raises("plan.never_finished"):
        find_plan(str(tmp_path / "work"), plan.parents[2].name)


def test_gc_after_a_dry_run_of_older_settings_keeps_the_delivered_build(rebuilt: tuple[Path, Path], root: Path) -> None:
    second = open_build(rebuilt[1])
    before = {item.folder for item in find_garbage(second.work, GRAPH)}
    plan_dataset(check_config(configuration(root), where="a test"))
    assert {item.folder for item in find_garbage(second.work, GRAPH)} == before
    assert second.folder("export", second.units("export")[0]) not in before
