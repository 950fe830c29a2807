"""Runs of the real DAGs over a small corpus whose steps have two parts: what fails, what is tried again, its pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpusmill.builds.chain import STEPS, all_tasks
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine.claim import CLAIM
from corpusmill.errors import CorruptDataError, StoreUnavailableError
from corpusmill_airflow.connections import keep_section
from tests.dags.conftest import Ask
from tests.dags.test_dataset_report import said, step_rows
from tests.raising import raises
from tests.report.page import Page
from tests.system.corpus import write_corpus

SMALL = {
    "name": "small",
    "source_paths": ["source"],
    "shard_bytes": "20KB",
    "minimum_bytes": 100,
    "export_webdataset": "off",
    "export_numpy": "off",
    "export_megatron": "off",
}
Fail = Callable[[str, str], None]
StandIn = Callable[[Fail], list[dict[str, Any]]]


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A function that has `fail` called with the name and part of each task before its work; it may raise. Returns the
    arguments of these calls.
    """
    from corpusmill.builds import local

    write_corpus(tmp_path / "source")
    monkeypatch.setattr("corpusmill.engine.parts.PART_BYTES", 30_000)
    usual, calls = local.run_part, []

    def install(fail: Fail) -> list[dict[str, Any]]:
        def run_part(plan_receipt: str, name: str, part: Any, **options: Any) -> list[Path]:
            calls.append({"task": name, "part": str(part), **options})
            fail(name, str(part))
            return usual(plan_receipt, name, part, **options)

        monkeypatch.setattr(local, "run_part", run_part)
        return calls

    return install


def states(run: Any, task_id: str) -> list[tuple[str, int]]:
    """(state, tries) of every instance of a task, by map index."""
    return [(str(item.state), item.try_number) for item in instances(run, task_id)]


def instances(run: Any, task_id: str) -> list[Any]:
    """The instances of a task, by map index."""
    actual = [instance for instance in run.get_task_instances() if instance.task_id == task_id]
    return sorted(actual, key=lambda item: item.map_index)


def reasons(run: Any) -> dict[tuple[str, int], str]:
    """{(task, map index): why it stopped}, which the run's page shows."""
    pulled = {
        (item.task_id, item.map_index): item.xcom_pull(task_ids=item.task_id, map_indexes=item.map_index, key="why")
        for item in run.get_task_instances()
    }
    return {place: str(why) for place, why in pulled.items() if why is not None}


def ended_as(run: Any, state: str) -> set[str]:
    """The steps, and other tasks, of which an instance ended so."""
    return {item.task_id.partition(".")[0] for item in run.get_task_instances() if item.state == state}


@pytest.mark.slow
def test_field_verify_reaches_every_task_and_what_is_switched_off_is_skipped(
    failing: StandIn, run_dag: Callable[..., Any], tmp_path: Path
) -> None:
    calls = failing(lambda _task, _part: None)
    run = run_dag(**SMALL | {"verify": True, "dedup_mode": "none"})
    assert run.state == "success"
    assert len(calls) > 10
    assert {call["verify"] for call in calls} == {True}
    assert not any(call["again"] for call in calls)
    ran = ended_as(run, "success")
    assert ran == {"plan", *STEPS, "close"} - {"near_duplicates", "find_ranges", "writeback"}
    assert {str(item.state) for item in run.get_task_instances()} == {"success", "skipped"}
    assert {path.name for path in (tmp_path / "outputs" / "small" / "latest").iterdir() if path.is_dir()} == {"nanoset"}


@pytest.mark.slow
def test_corrupt_data_fails_at_once_stops_what_follows_and_lets_others_have_the_dataset(
    run_dag: Any, failing: StandIn, tmp_path: Path
) -> None:
    claims = []

    def fail(task: str, part: str) -> None:
        claims.extend(json.loads(path.read_text()) for path in tmp_path.rglob(CLAIM))
        if (task, part) == ("index.read", "2/2"):
            raise CorruptDataError("frame.truncated: the frame ends too early", where=part)

    calls = failing(fail)
    run = run_dag(**SMALL)
    assert run.state == "failed"
    assert states(run, "index.read") == [("success", 1), ("failed", 1)]
    assert [item.rendered_map_index for item in instances(run, "index.read")] == ["00000", "2/2"]  # what ran, or should
    assert {state for state, _ in states(run, "find_ranges.shared")} == {"upstream_failed"}
    assert states(run, "report") == [("upstream_failed", 0)]
    assert {call["task"] for call in calls} == {"download", "index.read"}
    (plan,) = (tmp_path / "work" / "small" / "plan").iterdir()
    assert {(claim["job"], claim["run"], claim["plan"]) for claim in claims} == {
        ("build_dataset", run.run_id, plan.name)
    }
    assert len({claim["instance"] for claim in claims}) == 1  # made by the run, and the same in every task
    assert claims[0]["instance"]
    assert states(run, "close") == [("success", 1)]
    assert not list(tmp_path.rglob(CLAIM))
    ((place, why),) = reasons(run).items()
    assert place == ("index.read", 1)
    assert "the frame ends too early" in why


@pytest.mark.slow
def test_busy_store_is_tried_again_by_that_part_alone_and_a_second_run_changes_nothing(
    ask: Ask, run_dag: Any, failing: StandIn, tmp_path: Path
) -> None:
    def fail(task: str, part: str) -> None:
        tries = [(call["task"], call["part"]) for call in calls].count((task, part))
        if (task, part) == ("index.read", "2/2") and tries < 3:
            raise StoreUnavailableError("store.busy: the store answers 503", where=part)

    calls = failing(fail)
    runs = [run_dag(**SMALL) for _ in range(2)]
    assert [run.state for run in runs] == ["success", "success"]
    assert states(runs[0], "close") == [("success", 1)]
    assert not list(tmp_path.rglob(CLAIM))
    assert states(runs[0], "index.read") == [("success", 1), ("success", 3)]
    assert states(runs[0], "report") == [("success", 1)]
    assert ended_as(runs[1], "success") == {"plan", "close"}
    assert {call["verify"] for call in calls} == {False}
    assert [(call["task"], call["part"]) for call in calls].count(("index.read", "1/2")) == 1
    for run, unchanged in zip(runs, (False, True), strict=True):
        address = f"build_dataset/{run.run_id}"
        answer = ask(address)
        assert 'data-report="yes"' in answer.text
        assert ("Nothing has changed" in said(answer)) == unchanged
        rows = [item for item in Page(answer.text).all("tr") if "data-shard" in item]
        assert len(rows) > 2
        assert {item["data-word"] for item in rows} == {"done"}
        assert ask(f"{address}/report").status_code == 200
    assert "small" in said(ask("datasets"))


@pytest.mark.slow
def test_dry_run_ends_with_its_plan_whose_estimate_its_page_shows(
    ask: Ask, run_dag: Callable[..., Any], failing: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_dag(**SMALL | {"dry_run": True})
    assert ended_as(run, "success") == {"plan", "close"}
    assert {str(item.state) for item in run.get_task_instances()} == {"success", "skipped"}
    assert not (tmp_path / "outputs").exists()
    assert not list(tmp_path.rglob(CLAIM))
    estimate = run.get_task_instance("plan").xcom_pull(task_ids="plan", key="estimate")
    assert 0 < estimate["tokens_low"] <= estimate["tokens"]
    assert "cores like these" in capsys.readouterr().out
    answer = ask(f"build_dataset/{run.run_id}")
    assert "Estimate of a build" in said(answer)
    assert "cores like these" in said(answer)
    assert step_rows(Page(answer.text)) == {}
    assert not [item for item in Page(answer.text).all("tr") if "data-shard" in item]


@pytest.mark.slow
def test_bad_configuration_fails_the_plan_with_the_words_of_the_command_line(
    run_dag: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_dag(settings="dedup: {keep: every_string, fuzzy_share: 0.8}")
    assert run.state == "failed"
    assert states(run, "plan") == [("failed", 1)]
    words = "fuzzy_share removes text that keep: every_string keeps"
    assert words in capsys.readouterr().out + caplog.text
    assert words in reasons(run)["plan", -1]  # the page of the run shows it


@pytest.mark.slow
def test_wrong_field_of_the_text_fails_in_plan_once_and_its_page_says_so_once(
    ask: Ask, run_dag: Any, failing: StandIn
) -> None:
    run = run_dag(**SMALL | {"text_field": "no_such_field"})
    assert run.state == "failed"
    failed = [(item.task_id, item.try_number) for item in run.get_task_instances() if item.state == "failed"]
    assert set(failed) == {("plan", 1)}
    assert {task for task, _ in reasons(run)} == {"plan"}
    text = said(ask(f"build_dataset/{run.run_id}"))
    assert text.count("no line has text under source.text_field") == 1
    assert "text under the key no_such_field" in text


@pytest.mark.parametrize("name", [item.name for item in all_tasks() if item.name != "report"])
def test_error_of_a_task_is_kept_in_its_own_words_for_the_page(
    airflow_database: None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow import running, steps, worker

    def fail(*_: Any, **__: Any) -> None:
        raise CorruptDataError(
            "frame.truncated: the frame ends too early", where="part-7.zst", next_step="copy it again"
        )

    receipt = tmp_path / "receipt.json"
    keep_section(receipt, ScheduleConfig())
    monkeypatch.setattr(worker, "run_part", fail)
    monkeypatch.setattr(running, "dataset_claimed", lambda *_: nullcontext())
    handed_on: dict[str, str] = {}
    instance = SimpleNamespace(xcom_push=handed_on.__setitem__, try_number=1, max_tries=3)
    context = {"ti": instance, "params": {}, "task": SimpleNamespace(retries=3)}
    monkeypatch.setattr(steps, "get_current_context", lambda: context)
    with raises("frame.truncated") as caught:
        steps.run_part.function(name=name, plan_receipt=str(receipt), part="1/1", airflow="here")
    assert handed_on == {"why": str(caught.value)}
    for words in ("the frame ends too early", "part-7.zst", "copy it again"):
        assert words in handed_on["why"]
