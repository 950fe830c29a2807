"""Claims of runs, cleared tasks, retries: the few lines between Airflow and the mill."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.config import DatasetConfig, check_config, load_config
from corpusmill.engine.claim import CLAIM, PlanChangedError, claimed
from corpusmill.engine.graph import Graph
from corpusmill.engine.running import PlanGoneError
from corpusmill.engine.runs import begun_at, why_latest_stays
from corpusmill.errors import ConfigError, PermanentError, StorageFullError
from corpusmill.ledger import RECEIPT_NAME
from corpusmill.stages.graph import GRAPH, open_build
from tests.system.corpus import configuration, write_corpus

if TYPE_CHECKING:
    from airflow.sdk import DAG

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(autouse=True)
def _dags_on_the_path(airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DAGS)
    call_this_airflow("here", monkeypatch)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetConfig:
    """Of plans of which there is only the receipt's name."""
    monkeypatch.setattr("corpusmill.builds.plan.require_same_code", lambda _receipt: None)
    return load_config(DAGS / "datasets" / "demo.yaml").model_copy(update={"work_folder": str(tmp_path)})


def call_this_airflow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the Airflow variable its value as an administrator may; a run sets it in Airflow's database otherwise."""
    monkeypatch.setenv("AIRFLOW_VAR_CORPUSMILL_AIRFLOW", name)


def context(run: str, *under_way: str, plan: str | None = None, **params: Any) -> dict[str, Any]:
    """What Airflow gives a task of run `run`, whose plan is `plan`, while the runs `under_way` have not ended."""
    plans = {"plan": plan}

    def get_dr_count(dag_id: str, run_ids: list[str], states: list[str]) -> int:
        assert states == ["queued", "running"]
        return sum(token in under_way for token in run_ids)

    handed_on: dict[str, str] = {}
    instance = SimpleNamespace(dag_id="dataset__demo", run_id=run, get_dr_count=get_dr_count)
    instance.handed_on, instance.xcom_push = handed_on, handed_on.__setitem__
    instance.xcom_pull = lambda task_ids: plans[task_ids]
    return {"ti": instance, "params": params}


def claim(config: DatasetConfig, given: dict[str, Any]) -> str:
    """What a task `plan` does, with a plan of which there is only the receipt's name."""
    from corpusmill_airflow import running

    work = Path(config.work_folder) / config.name

    def make_plan() -> Path:
        receipt = work / "plan" / "some" / RECEIPT_NAME
        receipt.parent.mkdir(parents=True, exist_ok=True)
        receipt.touch()
        return receipt

    return running.planned(work, given, make_plan)


def test_second_run_waits_and_says_for_whom(config: DatasetConfig, capsys: pytest.CaptureFixture[str]) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    claim(config, context("one"))
    second = context("two", "one")
    with pytest.raises(AirflowRescheduleException):
        claim(config, second)
    printed = capsys.readouterr().out
    assert second["ti"].handed_on["why"] in printed
    assert "another run of the dataset demo is in progress" in printed
    assert "run one of dataset__demo" in printed
    assert "this run continues when that one has ended" in printed


def test_run_goes_on_when_the_other_has_ended(config: DatasetConfig) -> None:
    claim(config, context("one"))
    claim(config, context("two"))


def test_run_of_another_airflow_is_waited_for_even_if_it_is_called_alike(
    config: DatasetConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    from corpusmill_airflow import running

    plan_receipt = claim(config, context("one"))
    call_this_airflow("there", monkeypatch)
    assert running.this_airflow() == "there"
    with pytest.raises(AirflowRescheduleException):
        claim(config, context("one"))
    assert "run one of dataset__demo, of another Airflow, last renewed " in capsys.readouterr().out
    again = context("one", plan=plan_receipt)
    with pytest.raises(AirflowRescheduleException), running.held(plan_receipt, again, "there"):
        pytest.fail("another one has it")
    running.close(ended("one"), plan_receipt, "")  # not this one's to release
    call_this_airflow("here", monkeypatch)
    running.close(ended("one"), plan_receipt, "")
    call_this_airflow("there", monkeypatch)
    claim(config, context("one"))


def ended(run: str) -> dict[str, Any]:
    """What Airflow gives the task `close` of a run of which no other task is under way."""
    given = context(run)
    given["ti"].get_ti_count = lambda states=None, **_: 0 if states else 1
    return given


def test_dataset_whose_plan_was_refused_is_anyones(config: DatasetConfig) -> None:
    from corpusmill_airflow import running

    def refuse() -> Path:
        raise ConfigError("no such tokenizer")

    work = Path(config.work_folder) / config.name
    with pytest.raises(ConfigError):
        running.planned(work, context("one"), refuse)
    with claimed(work):
        pass


def test_task_at_work_is_heard_of_by_others(config: DatasetConfig) -> None:
    from corpusmill_airflow import running

    plan_receipt = claim(config, context("one"))
    file = Path(config.work_folder) / config.name / CLAIM
    os.utime(file, (0, 0))
    with running.held(plan_receipt, context("one"), "here"):
        deadline = time.monotonic() + 20
        while not file.stat().st_mtime:
            assert time.monotonic() < deadline


def planned(root: Path, **changes: Any) -> DatasetConfig:
    """A configuration with sources that can be planned."""
    if not (root / "corpus").exists():
        write_corpus(root / "corpus", documents=10)
    return check_config(configuration(root, **changes), where="a test")


def test_plan_of_a_dry_run_begins_nothing(tmp_path: Path) -> None:
    from corpusmill_airflow import running

    config = planned(tmp_path)
    receipt = Path(running.plan_run(config, context("dry", dry_run=True), config, config))
    assert begun_at(receipt.parent) == 0
    assert running.plan_run(config, context("wet"), config, config) == str(receipt)
    assert begun_at(receipt.parent) > 0


def test_dry_run_may_plan_what_no_build_could_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its estimate says whether there is room: it must not need that room."""
    from corpusmill_airflow import running

    monkeypatch.setattr(
        "corpusmill.builds.preflight.needed_room", lambda *_: ({"keep": [(1 << 60, 1 << 60)]}, "a test")
    )
    config = planned(tmp_path)
    assert running.plan_run(config, context("dry", dry_run=True), config, config)
    with pytest.raises(StorageFullError, match="fill a disk"):
        running.plan_run(config, context("wet"), config, config)


def test_run_with_other_settings_than_the_file_leaves_latest_and_names_them(tmp_path: Path) -> None:
    from corpusmill_airflow import running

    own, tried = planned(tmp_path), planned(tmp_path, shuffle={"seed": 8, "memory": "64KiB"})
    stays = why_latest_stays(Path(running.plan_run(tried, context("tried"), own, own)))
    assert "shuffle.seed" in stays
    assert "source.paths" not in stays
    assert "start one with 'Move latest'" in stays
    other_budget = planned(tmp_path, budget={own.source.paths[0]: "2 epochs"})
    stays = why_latest_stays(Path(running.plan_run(other_budget, context("other"), own, own)))
    assert "(budget)" in stays
    for config, file, params in ((own, own, {}), (tried, None, {}), (tried, own, {"move_latest": True})):
        assert why_latest_stays(Path(running.plan_run(config, context("same", **params), file, config))) == ""


def test_how_many_versions_stay_is_said_by_the_datasets_own_file_alone(tmp_path: Path) -> None:
    from corpusmill_airflow import running

    own, begun_with = planned(tmp_path, keep_versions=3), planned(tmp_path, keep_versions=1)
    for file, kept in ((own, 3), (None, None)):
        receipt = running.plan_run(begun_with, context("same"), file, begun_with)
        assert open_build(receipt).config.keep_versions == kept


def test_list_to_forget_that_a_datasets_own_file_does_not_have_is_refused_not_dropped(tmp_path: Path) -> None:
    from corpusmill_airflow import running

    (tmp_path / "list.jsonl").touch()
    forgets = planned(tmp_path, forget={"path": str(tmp_path / "list.jsonl"), "copies": "keep"})
    plain = planned(tmp_path)
    with pytest.raises(ConfigError, match="the list of documents to forget would not be used"):
        running.plan_run(forgets, context("other"), plain, forgets)
    for own, operators, listed in ((forgets, plain, True), (None, forgets, True), (plain, plain, False)):
        receipt = running.plan_run(operators, context("same"), own, operators)
        assert (open_build(receipt).config.forget is not None) == listed


def test_task_of_a_run_that_was_planned_anew_is_refused_and_one_that_was_cleared_waits(tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    from corpusmill_airflow import running

    def work(plan_receipt: str, given: dict[str, Any]) -> None:
        with running.held(plan_receipt, given, "here"):
            pass

    file = planned(tmp_path)
    first = running.plan_run(file, context("one"), None, file)
    work(first, context("one"))
    second = running.plan_run(planned(tmp_path, shuffle={"seed": 8}), context("one"), None, file)
    work(second, context("one"))
    with pytest.raises(PlanChangedError, match="clear the task plan together with everything downstream"):
        work(first, context("one"))
    running.plan_run(file, context("two"), None, file)
    with pytest.raises(AirflowRescheduleException):
        work(second, context("one", "two", plan=second))
    work(second, context("one", plan=second))
    running.close(ended("one"), second, "")
    with pytest.raises(PlanChangedError):  # also when nobody has the dataset any more
        work(first, context("one", plan=second))


def test_task_of_a_run_whose_code_was_replaced_fails_until_it_is_planned_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow import running

    file = planned(tmp_path)
    before = running.plan_run(file, context("one"), None, file)
    monkeypatch.setattr("corpusmill.builds.plan.__version__", "99.0")
    with pytest.raises(PermanentError, match="the code was replaced"), running.held(before, context("one"), "here"):
        pass
    with running.held(running.plan_run(file, context("one"), None, file), context("one"), "here"):
        pass


@pytest.mark.parametrize("gone", ["renamed", "never planned"])
def test_task_of_a_run_without_a_plan_fails_in_words_and_makes_no_folder(tmp_path: Path, gone: str) -> None:
    """The work folder was renamed in the middle of a run, or somebody marked `plan` as successful by hand."""
    from corpusmill_airflow import running

    file = planned(tmp_path)
    receipt = running.plan_run(file, context("one"), None, file) if gone == "renamed" else "None"  # as XCom renders it
    work = Path(file.work_folder)
    work.mkdir(exist_ok=True)
    work.rename(tmp_path / "elsewhere")
    with (
        pytest.raises(PlanGoneError, match="the plan no longer exists") as caught,
        running.held(receipt, context("one"), "here"),
    ):
        pass
    assert "clear the task plan with everything downstream" in str(caught.value)
    assert not work.exists()


@pytest.mark.parametrize(
    ("try_number", "max_tries", "cleared"),
    [
        (1, 3, False),  # the first try
        (2, 3, False),  # a retry
        (2, 4, True),  # cleared after its first try
        (3, 4, False),  # a retry after that
        (5, 7, True),  # failed four times, then cleared
    ],
)
def test_first_try_after_clearing_is_told_from_a_retry(try_number: int, max_tries: int, cleared: bool) -> None:
    from corpusmill_airflow.running import was_cleared

    given = {"ti": SimpleNamespace(try_number=try_number, max_tries=max_tries), "task": SimpleNamespace(retries=3)}
    assert was_cleared(given) is cleared


@pytest.mark.parametrize("others", [[], ["success", "failed", "skipped", "upstream_failed"], ["running"], [None]])
def test_copy_stays_until_no_other_task_of_the_run_is_under_way(
    others: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    from corpusmill_airflow import running

    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    tasks = ["running", *others]  # the first is the task that asks

    def get_ti_count(dag_id: str, run_ids: list[str], states: list[str] | None = None) -> int:
        assert (dag_id, run_ids) == ("dataset__demo", ["one"])
        return sum(states is None or state in states for state in tasks)

    running.keep_copy("demo", "name: demo")
    asking = context("one")
    asking["ti"].get_ti_count = get_ti_count
    if {"running", None} & set(others):
        with pytest.raises(AirflowRescheduleException):
            running.close(asking, None, "demo")
        assert (running.copies() / "demo.yaml").exists()
    else:
        running.close(asking, None, "demo")
        assert not (running.copies() / "demo.yaml").exists()


def test_full_disk_is_given_minutes_before_the_next_try(dag: DAG) -> None:
    from airflow.sdk import RetryAction

    decided = dag.get_task("tokenize").retry_policy.evaluate(StorageFullError("full"), 1, 3)
    assert decided.action is RetryAction.RETRY
    assert decided.retry_delay == timedelta(minutes=5)


def test_refused_approval_is_not_asked_again(dag: DAG) -> None:
    approve = dag.get_task("approve_removal")
    assert approve.retries == 0
    assert approve.fail_on_reject
    assert "find_ranges.union" in approve.get_flat_relative_ids(upstream=True)
    assert approve.downstream_task_ids == {"refine"}
    assert {"tokenize", "writeback"} <= approve.get_flat_relative_ids(upstream=False)


def test_second_stage_with_an_approval_has_a_task_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both were called approve_removal, and no DAG was made."""
    from airflow.sdk import DAG, task

    from corpusmill_airflow import stage_tasks

    stages = [replace(stage, approval=str) if stage.name == "tokenize" else stage for stage in GRAPH]
    monkeypatch.setattr(stage_tasks, "GRAPH", Graph(stages))

    @task
    def plan() -> str:
        return "a plan's receipt"

    with DAG("approvals", schedule=None) as dag:
        stage_tasks.chain_stages(plan(), stage_tasks.Placement())
    assert {"approve_removal", "approve_tokenize"} <= set(dag.task_ids)
    assert dag.get_task("approve_tokenize").upstream_task_ids == {"tokenize"}
    assert "audit" in dag.get_task("approve_tokenize").downstream_task_ids


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "", "."])
def test_name_that_could_leave_the_work_folder_is_refused(name: str, tmp_path: Path) -> None:
    from corpusmill.builds.plan import find_plan
    from corpusmill.errors import CorpusmillError

    with pytest.raises(CorpusmillError):
        find_plan(str(tmp_path), name)


def test_late_dataset_is_logged_with_its_name_and_run(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    from corpusmill_airflow.deadline import missed

    asyncio.run(missed("oscar", "12:00:00", context={"dag_run": {"dag_run_id": "scheduled__1"}}))
    assert "oscar is late: scheduled__1 has not ended within 12:00:00" in caplog.text
