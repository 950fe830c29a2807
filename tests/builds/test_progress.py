"""What a run tells of itself: every step once, as its receipts say."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.builds.local import run_steps
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.progress import RunProgress
from corpusmill.config import check_config
from corpusmill.report.progress import StageProgress
from corpusmill.stages.graph import GRAPH, open_build
from tests.system.corpus import configuration, lines_of, reused, write_corpus


def ran(folder: Path, workers: int, until: str = "") -> tuple[dict[str, StageProgress], Path]:
    """The progress of a run at its end, by stage, and its plan."""
    source = {"paths": [str(folder / "corpus")], "shard_bytes": 4000}
    plan = plan_dataset(check_config(configuration(folder, source=source), where="a test"), to_build=True)
    progress = RunProgress(GRAPH, [stage for wave in GRAPH.waves(until) for stage in wave])
    assert all(stage.units_total is None and stage.units_done == 0 for stage in progress.read())
    run_steps(plan, workers=workers, until=until, progress=progress)
    return {stage.stage: stage for stage in progress.read()}, plan


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_of_new_unchanged_and_refreshed_runs_is_what_the_receipts_say(tmp_path: Path, workers: int) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    for number in range(3):
        told, plan = ran(tmp_path, workers)
        build = open_build(plan)
        assert list(told) == [stage for stage in GRAPH.names if build.units(stage)]
        for stage, item in told.items():
            units = build.units(stage)
            worked = [build.receipt(stage, unit) for unit in units if not reused(build, stage, unit)]
            assert (item.units_done, item.units_total) == (len(units), len(units))
            assert item.units_reused == len(units) - len(worked)
            assert item.bytes_done == sum(receipt.counts.get("bytes_read", 0) for receipt in worked)
            assert item.is_finished
            assert worked or not item.seconds  # which may round to 0
            assert item.seconds >= max((receipt.seconds for receipt in worked), default=0) - 0.01
        worked_on = {stage for stage, item in told.items() if item.units_reused < item.units_done}
        assert worked_on == (set(told), {"upload", "report"}, worked_on)[number]
        assert 0 < told["tokenize"].units_reused < told["tokenize"].units_done or number < 2
        if number == 1:
            (tmp_path / "corpus" / "zz.jsonl").write_bytes(lines_of(["words that are new " * 300], 9_000))


def test_progress_of_a_run_until_a_stage_speaks_of_no_later_one(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    told, _ = ran(tmp_path, 1, until="index")
    assert list(told) == ["download", "index"]


def test_progress_knows_the_units_of_stages_that_take_those_of_one_that_began(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    plan = plan_dataset(check_config(configuration(tmp_path), where="a test"))
    progress = RunProgress(GRAPH, GRAPH.names)
    build = open_build(plan)
    progress.begin(build, "download")
    units = {stage.stage: stage.units_total for stage in progress.read()}
    assert units["download"] == units["index"] == units["tokenize"] == len(build.units("download"))
    assert units["gather"] is None
