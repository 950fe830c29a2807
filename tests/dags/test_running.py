"""Claims of runs, cleared tasks, retries: the few lines between Airflow and the mill."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.builds.graph import open_build
from corpusmill.config import DatasetConfig, check_config, load_config
from corpusmill.engine.claim import CLAIM, claimed
from corpusmill.engine.estimates import Estimate
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.runs import begun_at, why_latest_stays
from corpusmill.errors import ConfigError, StorageFullError
from corpusmill_airflow.connections import section_of
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

if TYPE_CHECKING:
    from airflow.sdk import DAG

FIGURES = Estimate(0, 1.0, 0, 0, 0, 0, 0.0, 1, 0.0, 0, {}, [])  # of an estimate whose words do not matter
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


def context(
    run: str,
    *under_way: str,
    plan: str = "",
    airflow: str = "here",
    downloads: int = 0,
    cleared: bool = False,
    **params: Any,
) -> dict[str, Any]:
    """What Airflow gives a task of run `run`, whose plan is `plan`, made by the Airflow `airflow`, while the runs
    `under_way` have not ended; `downloads`: the tasks of its first step that Airflow knows,
    `cleared`: whether the task was cleared once.
    """
    plans = {"plan": [{"plan_receipt": plan, "part": "1/1", "airflow": airflow}] if plan else None}

    def get_dr_count(dag_id: str, run_ids: list[str], states: list[str]) -> int:
        assert states == ["queued", "running"]
        return sum(token in under_way for token in run_ids)

    handed_on: dict[str, str] = {}
    instance = SimpleNamespace(dag_id="dataset__demo", run_id=run, get_dr_count=get_dr_count, max_tries=3 + cleared)
    instance.get_ti_count = lambda *_, task_ids, run_ids: (
        downloads if (task_ids, run_ids) == (["download"], [run]) else 0
    )
    instance.handed_on, instance.xcom_push = handed_on, handed_on.__setitem__
    instance.xcom_pull = lambda task_ids: plans[task_ids]
    return {"ti": instance, "params": params, "task": SimpleNamespace(retries=3), "dag": SimpleNamespace(task_ids=())}


def receipt_of(given: list[dict[str, str]]) -> str:
    """The plan's receipt, of which every part of a step is told."""
    (receipt,) = {item["plan_receipt"] for item in given}
    assert [item["part"] for item in given] == [f"{number + 1}/{len(given)}" for number in range(len(given))]
    return receipt


def plan_run(config: DatasetConfig, given: dict[str, Any], own: DatasetConfig | None, operators: DatasetConfig) -> str:
    """What the task `plan` of a DAG with every task does; the plan's receipt."""
    from corpusmill_airflow import running
    from corpusmill_airflow.by_version import DownstreamTasksSkipped

    with suppress(DownstreamTasksSkipped):  # a dry run ends here
        return receipt_of(running.plan_run(config, given, own, operators))
    return receipt_of(given["ti"].handed_on["return_value"])


def claim(config: DatasetConfig, given: dict[str, Any]) -> str:
    """What a task `plan` does, with a plan of which there is only the receipt's name."""
    from corpusmill_airflow import running

    work = Path(config.work_folder) / config.name

    def make_plan() -> running.Planned:
        receipt = work / "plan" / "some" / RECEIPT_NAME
        receipt.parent.mkdir(parents=True, exist_ok=True)
        receipt.touch()
        return running.Planned(receipt, parts=1)

    return receipt_of(running.planned(work, given, make_plan))


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
    again = context("one", plan=plan_receipt, airflow="there")
    with pytest.raises(AirflowRescheduleException), running.dataset_claimed(plan_receipt, again):
        pytest.fail("another one has it")
    running.close(ended("one", plan_receipt, "there"), "")  # not this one's to release
    with pytest.raises(AirflowRescheduleException):
        claim(config, context("one"))
    running.close(ended("one", plan_receipt, "here"), "")
    claim(config, context("one"))


def test_run_keeps_the_dataset_though_another_first_run_has_given_this_airflow_another_id(
    config: DatasetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two first runs that found no id each made one; the one whose id was lost waited for itself, ten minutes."""
    from corpusmill_airflow import running

    plan_receipt = claim(config, context("one"))
    call_this_airflow("there", monkeypatch)
    with running.dataset_claimed(plan_receipt, context("one", plan=plan_receipt)):
        pass
    running.close(ended("one", plan_receipt, "here"), "")
    claim(config, context("two"))


def ended(run: str, plan: str, airflow: str = "here") -> dict[str, Any]:
    """What Airflow gives the task `close` of a run of which no other task is under way."""
    given = context(run, plan=plan, airflow=airflow)
    given["ti"].get_ti_count = lambda states=None, **_: 0 if states else 1
    return given


def test_dataset_whose_plan_was_refused_is_anyones(config: DatasetConfig) -> None:
    from corpusmill_airflow import running

    def refuse() -> Any:
        raise ConfigError("tokenizer.unknown: no such tokenizer")

    work = Path(config.work_folder) / config.name
    with raises("tokenizer.unknown"):
        running.planned(work, context("one"), refuse)
    with claimed(work):
        pass


def test_task_at_work_is_heard_of_by_others(config: DatasetConfig) -> None:
    from corpusmill_airflow import running

    plan_receipt = claim(config, context("one"))
    file = Path(config.work_folder) / config.name / CLAIM
    os.utime(file, (0, 0))
    with running.dataset_claimed(plan_receipt, context("one"), "here"):
        deadline = time.monotonic() + 20
        while not file.stat().st_mtime:
            assert time.monotonic() < deadline


def planned(root: Path, **changes: Any) -> DatasetConfig:
    """A configuration with sources that can be planned."""
    if not (root / "corpus").exists():
        write_corpus(root / "corpus", documents=10)
    return check_config(configuration(root, **changes), where="a test")


def test_plan_of_a_dry_run_begins_nothing(tmp_path: Path) -> None:
    config = planned(tmp_path)
    receipt = Path(plan_run(config, context("dry", dry_run=True), config, config))
    assert begun_at(receipt.parent) == 0
    assert plan_run(config, context("wet"), config, config) == str(receipt)
    assert begun_at(receipt.parent) > 0


def test_dry_run_may_plan_what_no_build_could_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its estimate says whether there is room: it must not need that room."""

    monkeypatch.setattr("corpusmill.builds.plan.needed_room", lambda *_: ({"keep": [(1 << 60, 1 << 60)]}, "a test"))
    # The estimate builds a sample, for which there is no room, either.
    monkeypatch.setattr("corpusmill.questions.estimate_dataset", lambda _: FIGURES)
    config = planned(tmp_path)
    assert plan_run(config, context("dry", dry_run=True), config, config)
    with raises("work_folder.disk_too_small"):
        plan_run(config, context("wet"), config, config)


def test_run_with_other_settings_than_the_file_leaves_latest_and_names_them(tmp_path: Path) -> None:
    own, tried = planned(tmp_path), planned(tmp_path, shuffle={"seed": 8, "memory": "64KiB"})
    stays = why_latest_stays(Path(plan_run(tried, context("tried"), own, own)))
    assert "shuffle.seed" in stays
    assert "source.paths" not in stays
    assert "start one with 'Move latest'" in stays
    other_budget = planned(tmp_path, budget={own.source.paths[0]: "2 epochs"})
    stays = why_latest_stays(Path(plan_run(other_budget, context("other"), own, own)))
    assert "(budget)" in stays
    for config, file, params in ((own, own, {}), (tried, None, {}), (tried, own, {"move_latest": True})):
        assert why_latest_stays(Path(plan_run(config, context("same", **params), file, config))) == ""


def test_approval_that_a_run_asks_for_is_that_of_the_datasets_file_and_of_the_forms(tmp_path: Path) -> None:
    free, asks = planned(tmp_path), planned(tmp_path, dag={"approve_removal": True})
    for own, operators, wanted in ((asks, asks, True), (None, asks, True), (asks, free, True), (free, free, False)):
        receipt = plan_run(operators, context("same"), own, operators)
        assert section_of(receipt).approve_removal is wanted


def test_how_many_versions_stay_is_said_by_the_datasets_own_file_alone(tmp_path: Path) -> None:
    own, begun_with = planned(tmp_path, keep_versions=3), planned(tmp_path, keep_versions=1)
    for file, kept in ((own, 3), (None, None)):
        receipt = plan_run(begun_with, context("same"), file, begun_with)
        assert open_build(receipt).config.keep_versions == kept


def test_list_to_forget_that_a_datasets_own_file_does_not_have_is_refused_not_dropped(tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").touch()
    forgets = planned(tmp_path, forget={"path": str(tmp_path / "list.jsonl"), "copies": "keep"})
    plain = planned(tmp_path)
    with raises("airflow.list_not_used"):
        plan_run(forgets, context("other"), plain, forgets)
    for own, operators, listed in ((forgets, plain, True), (None, forgets, True), (plain, plain, False)):
        receipt = plan_run(operators, context("same"), own, operators)
        assert (open_build(receipt).config.forget is not None) == listed


def test_task_of_a_run_that_was_planned_anew_is_refused_and_one_that_was_cleared_waits(tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    from corpusmill_airflow import running

    def work(plan_receipt: str, given: dict[str, Any]) -> None:
        with running.dataset_claimed(plan_receipt, given, "here"):
            pass

    file = planned(tmp_path)
    first = plan_run(file, context("one"), None, file)
    work(first, context("one"))
    second = plan_run(planned(tmp_path, shuffle={"seed": 8}), context("one"), None, file)
    work(second, context("one"))
    with raises("run.planned_again"):
        work(first, context("one"))
    plan_run(file, context("two"), None, file)
    with pytest.raises(AirflowRescheduleException):
        work(second, context("one", "two", plan=second))
    work(second, context("one", plan=second))
    running.close(ended("one", second), "")
    with raises("run.planned_again"):  # also when nobody has the dataset any more
        work(first, context("one", plan=second))


def test_task_of_a_run_whose_code_was_replaced_fails_until_it_is_planned_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow import running

    file = planned(tmp_path)
    before = plan_run(file, context("one"), None, file)
    monkeypatch.setattr("corpusmill.builds.plan.__version__", "99.0")
    with raises("run.code_replaced"), running.dataset_claimed(before, context("one"), "here"):
        pass
    with running.dataset_claimed(plan_run(file, context("one"), None, file), context("one"), "here"):
        pass


def test_run_that_is_cleared_keeps_at_least_the_parts_that_it_had(tmp_path: Path) -> None:
    """Airflow keeps the tasks of parts that are no more, as removed ones."""
    from corpusmill_airflow import running

    file = planned(tmp_path)
    for given, parts in (
        (context("one", downloads=3), 1),  # not cleared: a retry
        (context("one", downloads=3, cleared=True), 3),
        (context("one", downloads=1, cleared=True), 1),
        (context("one", downloads=0, cleared=True), 1),
    ):
        assert len(running.plan_run(file, given, None, file)) == parts


@pytest.mark.parametrize(
    ("handed_on", "receipt", "part"),
    [
        ([{"plan_receipt": "work/x/plan/a/receipt.json", "part": "1/3"}], "work/x/plan/a/receipt.json", "1/3"),
        ("work/x/plan/a/receipt.json", "", "1/1"),  # of an older version
        (None, "", "1/1"),  # marked by hand
        ([], "", "1/1"),
    ],
)
def test_task_without_parts_is_told_its_plan_or_that_there_is_none(
    dag: DAG, handed_on: object, receipt: str, part: str
) -> None:
    from corpusmill_airflow import running, steps

    instance = SimpleNamespace(xcom_pull=lambda task_ids: {"plan": handed_on}[task_ids])
    environment = dag.get_template_env()
    assert environment.from_string(steps.PLAN_RECEIPT).render(ti=instance) == receipt
    assert environment.from_string(steps.FIRST_PART).render(ti=instance) == part
    assert running.plan_of_run({"ti": instance}) == receipt


def test_run_of_an_older_version_that_is_cleared_says_what_to_do(tmp_path: Path) -> None:
    from corpusmill_airflow import running

    closing = ended("one", "")
    closing["ti"].xcom_pull = lambda task_ids: {"plan": "work/x/plan/a/receipt.json"}[task_ids]
    with raises("airflow.run_of_older_version"):
        running.close(closing, "")
    assert "clear its task plan with everything downstream" in closing["ti"].handed_on["why"]


@pytest.mark.parametrize("gone", ["renamed", "never planned"])
def test_task_of_a_run_without_a_plan_fails_in_words_and_makes_no_folder(tmp_path: Path, gone: str) -> None:
    """The work folder was renamed in the middle of a run, or somebody marked `plan` as successful by hand."""
    from corpusmill_airflow import running

    file = planned(tmp_path)
    receipt = plan_run(file, context("one"), None, file) if gone == "renamed" else ""  # what PLAN_RECEIPT renders
    work = Path(file.work_folder)
    work.mkdir(exist_ok=True)
    work.rename(tmp_path / "elsewhere")
    with (
        raises("plan.gone", "clear the task plan with everything downstream"),
        running.dataset_claimed(receipt, context("one"), "here"),
    ):
        pass
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
            running.close(asking, "demo")
        assert (running.copies() / "demo.yaml").exists()
    else:
        running.close(asking, "demo")
        assert not (running.copies() / "demo.yaml").exists()


def test_full_disk_is_given_minutes_before_the_next_try(dag: DAG) -> None:
    from airflow.sdk import RetryAction

    decided = dag.get_task("tokenize").retry_policy.evaluate(StorageFullError("disk.full: full"), 1, 3)
    assert decided.action is RetryAction.RETRY
    assert decided.retry_delay == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("approval", "after", "before"),
    [
        ("approve_decontamination", "index", "near_duplicates"),
        ("approve_near_duplicates", "near_duplicates", "find_ranges"),
        ("approve_removal", "find_ranges", "writeback"),
    ],
)
def test_refused_approval_is_not_asked_again_and_stops_the_next_step(
    dag: DAG, approval: str, after: str, before: str
) -> None:
    approve = dag.get_task(approval)
    assert approve.retries == 0
    assert approve.fail_on_reject
    assert {task_id.partition(".")[0] for task_id in approve.upstream_task_ids} == {after}
    assert {task_id.partition(".")[0] for task_id in approve.downstream_task_ids} == {before}


@pytest.mark.parametrize("name", ["../elsewhere", "a/b", "", "."])
def test_name_that_could_leave_the_work_folder_is_refused(name: str, tmp_path: Path) -> None:
    from corpusmill.builds.plan import find_plan

    with raises("plan.never_finished source.name_leaves_folder"):
        find_plan(str(tmp_path), name)
