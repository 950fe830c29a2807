"""Tasks that really fail, in runs of the real DAG over stand-in steps (the steps themselves are tested elsewhere)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from corpusmill.config import DatasetConfig
from corpusmill.engine.claim import CLAIM
from corpusmill.errors import CorruptDataError, StoreUnavailableError
from corpusmill.sources.plan import Plan


class StandInBuild:
    """Two shards, one unit of everything else; `fail` is called before each step and may raise."""

    verified: ClassVar[list[bool]] = []

    def __init__(self, folder: Path, fail: Callable[[str, str], None]) -> None:
        self.config = SimpleNamespace(name="small")
        self.plan = Plan(shards=[])
        self.folder = folder
        self.fail = fail

    def tasks(self, stage: str, most: int) -> list[str]:  # noqa: ARG002
        return ["00000", "00001"] if stage == "download" else ["00000"]

    def run(self, stage: str, unit: str) -> Path:
        self.fail(stage, unit)
        return self.folder / stage / unit / "receipt.json"

    def run_task(self, stage: str, task: str, *, again: bool, verify: bool) -> list[Path]:
        assert not again
        self.verified.append(verify)
        return [self.run(stage, task)]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str, str], None]], None]:
    """A function that puts a stand-in build in the place of the real one."""

    def install(fail: Callable[[str, str], None]) -> None:
        def plan(config: DatasetConfig, **_: bool) -> Path:
            folder = tmp_path / "work" / config.name / "plan" / "all"
            folder.mkdir(parents=True, exist_ok=True)
            return folder / "receipt.json"

        monkeypatch.setattr("corpusmill.builds.plan.plan_dataset", plan)
        monkeypatch.setattr("corpusmill.builds.plan.require_same_code", lambda _receipt: None)
        monkeypatch.setattr("corpusmill.engine.runs.begin_run", lambda receipt, **_: receipt)
        monkeypatch.setattr("corpusmill.stages.announce.announcement", lambda _build: {})
        monkeypatch.setattr("corpusmill.stages.provenance.provenance", lambda _build: {"inputs": [], "outputs": []})
        monkeypatch.setattr("corpusmill.stages.graph.open_build", lambda _receipt: StandInBuild(tmp_path, fail))

    return install


def states(run: Any, task_id: str) -> list[tuple[str, int]]:
    """(state, tries) of every instance of a task, by map index."""
    actual = [instance for instance in run.get_task_instances() if instance.task_id == task_id]
    return [(str(item.state), item.try_number) for item in sorted(actual, key=lambda item: item.map_index)]


@pytest.mark.slow
@pytest.mark.parametrize("form", [{}, {"verify": True}])
def test_field_verify_of_the_form_reaches_every_step(
    stand_in: Callable[[Callable[[str, str], None]], None], run_dag: Callable[..., Any], form: dict[str, bool]
) -> None:
    StandInBuild.verified.clear()
    stand_in(lambda _stage, _unit: None)
    run_dag(**form)
    assert len(StandInBuild.verified) > 10
    assert set(StandInBuild.verified) == {bool(form)}


@pytest.mark.slow
def test_corrupt_data_fails_at_once_stops_what_follows_and_lets_others_have_the_dataset(
    run_dag: Any, stand_in: Any, tmp_path: Path
) -> None:
    claims = []

    def fail(stage: str, unit: str) -> None:
        claims.extend(json.loads(path.read_text()) for path in tmp_path.rglob(CLAIM))
        if (stage, unit) == ("index", "00001"):
            raise CorruptDataError("the frame ends too early", where=unit)

    StandInBuild.verified.clear()
    stand_in(fail)
    run = run_dag(verify=True)
    assert run.state == "failed"
    assert set(StandInBuild.verified) == {True}  # the form's field reaches the steps; every one of them: above, slow
    assert states(run, "index") == [("success", 1), ("failed", 1)]
    assert {state for state, _ in states(run, "find_ranges.anchor")} == {"upstream_failed"}
    assert states(run, "report") == [("upstream_failed", 0)]
    assert {(claim["job"], claim["run"], claim["plan"]) for claim in claims} == {("build_dataset", run.run_id, "all")}
    assert len({claim["instance"] for claim in claims}) == 1  # made by the run, and the same in every task
    assert claims[0]["instance"]
    assert states(run, "close") == [("success", 1)]
    assert not list(tmp_path.rglob(CLAIM))


@pytest.mark.slow
def test_busy_store_is_tried_again_and_only_that_shard(run_dag: Any, stand_in: Any, tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def fail(stage: str, unit: str) -> None:
        calls.append((stage, unit))
        if (stage, unit) == ("index", "00001") and calls.count((stage, unit)) < 3:
            raise StoreUnavailableError("the store answers 503", where=unit)

    stand_in(fail)
    run = run_dag()
    assert run.state == "success"
    assert states(run, "close") == [("success", 1)]
    assert not list(tmp_path.rglob(CLAIM))
    assert states(run, "index") == [("success", 1), ("success", 3)]
    assert calls.count(("index", "00000")) == 1
    assert states(run, "report") == [("success", 1)]


@pytest.mark.slow
def test_bad_configuration_fails_the_plan_with_the_words_of_the_command_line(
    run_dag: Any, stand_in: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(lambda _stage, _unit: None)
    run = run_dag(keep="every_string", fuzzy_share=0.8)
    assert run.state == "failed"
    assert states(run, "plan") == [("failed", 1)]
    words = "fuzzy_share removes text that keep: every_string keeps"
    assert words in capsys.readouterr().out + caplog.text
    (plan,) = [instance for instance in run.get_task_instances() if instance.task_id == "plan"]
    assert words in plan.xcom_pull(task_ids="plan", key="why")  # the page of the run shows it
