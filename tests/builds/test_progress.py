"""What a run tells of itself: every step as its receipts say, and a large shard within itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpusmill.builds import progress as progress_module
from corpusmill.builds.chain import STEP_OF, STEPS
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import STOPPED, run_steps, run_watched
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.progress import RunProgress
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.runs import begun_at
from corpusmill.kernels import advance
from corpusmill.report.progress import StageProgress
from tests.system.corpus import configuration, lines_of, make_documents, reused, write_corpus

SMALL = {"source": {"shard_bytes": 4000}, "exports": {"nanoset": {}, "webdataset": {"context_tokens": 65}}}


def planned(folder: Path, **changes: Any) -> Path:
    values = configuration(folder, **{**SMALL, **changes})
    values["source"] = {"paths": [str(folder / "corpus")], **values["source"]}  # type: ignore[dict-item]
    return plan_dataset(check_config(values, where="a test"), to_build=True)


def ran(folder: Path, workers: int, until: str = "") -> tuple[list[StageProgress], Path]:
    """The progress of a run at its end, and its plan."""
    plan = planned(folder)
    progress = RunProgress(GRAPH, [stage for wave in GRAPH.waves(until) for stage in wave])
    assert all(step.units_total is None and step.units_done == 0 for step in progress.read())
    run_steps(plan, workers=workers, until=until, progress=progress)
    return progress.read(), plan


def require_sums(step: StageProgress) -> None:
    """The row of a step is the sum of its stages'."""
    for name in ("units_done", "bytes_done", "units_reused"):
        assert getattr(step, name) == sum(getattr(stage, name) for stage in step.stages)
    totals = [stage.units_total for stage in step.stages]
    assert step.units_total == (None if None in totals else sum(total or 0 for total in totals))
    assert step.seconds >= max(stage.seconds for stage in step.stages) - 1e-6
    assert min(stage.share or 0 for stage in step.stages) - 1e-9 <= (step.share or 0) <= 1 + 1e-9


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_of_new_unchanged_and_refreshed_runs_is_what_the_receipts_say(tmp_path: Path, workers: int) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    for number in range(3):
        (plan_row, *steps), plan = ran(tmp_path, workers)
        build = open_build(plan)
        assert (plan_row.stage, plan_row.is_finished) == ("plan", True)
        assert plan_row.about.startswith(f"{len(build.plan.shards)} shard")
        needed = [name for name, step in STEPS.items() if any(build.units(stage) for stage in step.stages)]
        assert [step.stage for step in steps] == needed
        stages = {stage.stage: stage for step in steps for stage in step.stages}
        assert sorted(stages) == sorted(stage for stage in GRAPH.names if build.units(stage))
        for stage, item in stages.items():
            units = build.units(stage)
            worked = [build.receipt(stage, unit) for unit in units if not reused(build, stage, unit)]
            assert (item.units_done, item.units_total) == (len(units), len(units))
            assert item.units_reused == len(units) - len(worked)
            assert item.bytes_done == sum(receipt.counts.get("bytes_read", 0) for receipt in worked)
            assert item.is_finished
            assert worked or not item.seconds  # which may round to 0
            assert item.seconds >= max((receipt.seconds for receipt in worked), default=0) - 0.01
        for step in steps:
            require_sums(step)
            assert (step.is_finished, step.share_done) == (True, 1)
        worked_on = {stage for stage, item in stages.items() if item.units_reused < item.units_done}
        assert worked_on == (set(stages), {"upload", "report"}, worked_on)[number]
        assert 0 < stages["tokenize"].units_reused < stages["tokenize"].units_done or number < 2
        if number == 1:
            (tmp_path / "corpus" / "zz.jsonl").write_bytes(lines_of(["words that are new " * 300], 9_000))


def test_progress_of_a_run_until_a_stage_speaks_of_no_later_step(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    rows, _ = ran(tmp_path, 1, until="index")
    assert [row.stage for row in rows] == ["plan", "download", "index"]


def test_progress_of_a_configuration_without_dedup_has_no_row_for_it(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    progress = RunProgress(GRAPH, GRAPH.names)
    progress.begin(open_build(planned(tmp_path, dedup={"mode": "none"})), "download")
    expected = ["plan", "download", "index", "tokenize", "shuffle", "export", "upload", "report"]
    assert [row.stage for row in progress.read()] == expected


def test_progress_knows_the_units_of_stages_that_take_those_of_one_that_began(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    progress = RunProgress(GRAPH, GRAPH.names)
    build = open_build(planned(tmp_path))
    progress.begin(build, "download")
    units = {stage.stage: stage.units_total for step in progress.read() for stage in step.stages}
    shards = len(build.units("download"))
    assert units["download"] == units["index"] == units["anchor"] == units["context"] == units["tokenize"] == shards
    assert units["gather"] is None


def test_progress_of_a_stage_without_units_ends_no_stage_that_takes_the_same(tmp_path: Path) -> None:
    """quarantine has the units of index whose shards are parts of files: here none."""
    write_corpus(tmp_path / "corpus", documents=8)
    progress = RunProgress(GRAPH, GRAPH.names)
    build = open_build(planned(tmp_path, source={"shard_bytes": "1MiB"}))
    run_steps(build.plan_receipt, workers=1, until="index")
    for stage in ("download", "index", "quarantine"):
        progress.begin(build, stage)
    assert not build.units("quarantine")
    [index] = [step for step in progress.read() if step.stage == "index"]
    assert {stage.stage: stage.units_total for stage in index.stages} == {"index": 1, "anchor": 1}


class Watched(RunProgress):
    """Keeps what each unit had counted when it ended."""

    def __init__(self) -> None:
        super().__init__(GRAPH, GRAPH.names)
        self.counted: dict[tuple[str, str], advance.Advance] = {}

    def end(self, build: Build, stage: str, unit: str) -> None:
        if running := self._running.get((stage, unit)):
            self.counted[stage, unit] = advance.read(self.memory, running.slot)
        super().end(build, stage, unit)

    def forget(self, stage: str) -> None:
        """No unit of a stage runs."""
        self._running = {name: item for name, item in self._running.items() if name[0] != stage}


ALL_READ = {"download", "index", "filter", "decontaminate", "anchor", "context", "border", "tokenize"}
MOVING = {*ALL_READ, "writeback", "scatter", "gather", "export"}
"""Stages whose units are seen within themselves."""


def benchmark(folder: Path) -> dict[str, Any]:
    (folder / "items.jsonl").write_text(json.dumps({"text": "an item that no document of the corpus has, " * 3}) + "\n")
    return {"benchmarks": [{"name": "own", "path": str(folder / "items.jsonl"), "fields": ["text"]}]}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("mode", ["remove", "annotate"])
def test_units_count_no_more_than_their_receipts_and_all_of_their_input(
    tmp_path: Path, mode: str, workers: int
) -> None:
    write_corpus(tmp_path / "corpus", documents=60)
    progress = Watched()
    plan = planned(tmp_path, dedup={"mode": mode, "minimum_bytes": 100})
    run_steps(plan, workers=workers, progress=progress)
    build = open_build(plan)
    for (stage, unit), counted in progress.counted.items():
        receipt = build.receipt(stage, unit)
        assert counted.bytes_read <= receipt.counts.get("bytes_read", 0), (stage, unit)
        if stage in ALL_READ:
            assert counted.bytes_read == receipt.counts["bytes_read"], (stage, unit)
        if stage in MOVING and receipt.counts["bytes_read"]:
            assert counted.share == 1, (stage, unit)
    assert {stage for stage, _ in progress.counted} >= MOVING - {"filter", "decontaminate"}


def test_one_large_shard_moves_within_itself_and_no_row_goes_back(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "corpus").mkdir()
    texts = make_documents(150) * 40  # 5 MB: several blocks of lines
    (tmp_path / "corpus" / "a.jsonl").write_bytes(lines_of(texts))
    plan = planned(
        tmp_path,
        source={"shard_bytes": "1GiB"},
        dedup={"mode": "none"},
        tokenizer={"name": "cl100k_base", "batch_bytes": "1MiB"},
        exports={"nanoset": {}},
    )
    progress = RunProgress(GRAPH, GRAPH.names)
    readings: list[list[StageProgress]] = []
    note = advance.note

    def noting(*arguments: Any) -> None:
        note(*arguments)
        readings.append(progress.read())

    monkeypatch.setattr(advance, "note", noting)
    run_steps(plan, workers=1, progress=progress)
    readings.append(progress.read())
    inside: dict[str, set[float]] = {}
    before: dict[str, tuple[float, int]] = {}
    for rows in readings:
        for row in rows[1:]:
            require_sums(row)
            share, read = before.get(row.stage, (0.0, 0))
            assert share <= (row.share_done or 0) <= 1, row
            assert read <= row.bytes_done, row
            before[row.stage] = row.share_done or 0, row.bytes_done
            if row.bytes_done and not row.units_done:
                inside.setdefault(row.stage, set()).add(row.share_done or 0)
    assert all(len(inside[stage]) >= 3 for stage in ("download", "index", "tokenize")), inside


def test_more_units_than_slots_are_seen_when_they_end(tmp_path: Path, monkeypatch: Any) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    monkeypatch.setattr(advance, "SLOTS", 2)
    rows, plan = ran(tmp_path, 2)
    assert len(open_build(plan).units("index")) > 2
    assert all(row.is_finished for row in rows)


def test_progress_says_that_kernels_compile(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    progress = RunProgress(GRAPH, GRAPH.names)
    build = open_build(planned(tmp_path))
    progress.begin(build, "download")
    with advance.shared(progress.memory):
        advance.use(progress.start("index", build.units("index")[0]))
        advance.note_compiling(1)
        compiling = {row.stage: row.about for row in progress.read()[1:] if row.about}
        advance.note_compiling(-1)
        assert not any(row.about for row in progress.read()[1:])
    assert compiling == {"index": progress_module.COMPILING}


def test_stage_whose_units_wait_has_taken_no_time(tmp_path: Path, monkeypatch: Any) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    progress = Watched()
    build = open_build(planned(tmp_path))
    now = [begun_at(build.plan_folder)]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(time=lambda: now[0]))
    progress.begin(build, "download")
    shards = build.plan.shard_names()
    slots = {(stage, shard): progress.start(stage, shard) for stage in ("writeback", "tokenize") for shard in shards}

    def seconds(later: float) -> tuple[float, float]:
        now[0] += later
        rows = {row.stage: row.seconds for row in progress.read()}
        return round(rows["writeback"]), round(rows["tokenize"])

    assert seconds(5) == (5, 0)
    with advance.shared(progress.memory):
        advance.use(slots["tokenize", shards[1]])
        advance.note(5)
    assert seconds(5) == (10, 0)  # seen now
    assert seconds(5) == (15, 5)
    progress.forget("writeback")
    assert seconds(3) == (0, 8)


def test_interrupted_command_says_how_to_go_on(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    plan = planned(tmp_path)

    def interrupted(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    run: Callable[..., Any] = Build.finished_at
    monkeypatch.setattr(Build, "finished_at", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_watched(plan, workers=1)
    assert capfd.readouterr().err.endswith(f"{STOPPED}\n")
    monkeypatch.setattr(Build, "finished_at", run)
    run_watched(plan, workers=1)
    assert STOPPED not in capfd.readouterr().err


def test_every_stage_that_is_weighed_is_one_of_a_step() -> None:
    assert progress_module.WEIGHTS.keys() <= STEP_OF.keys()
