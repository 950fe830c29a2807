"""One claim on a dataset: processes of this machine and of others, runs of this Airflow and of others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from corpusmill.engine.claim import (
    CLAIM,
    EXPIRES_SECONDS,
    Holder,
    beating,
    claim_dataset,
    claimed,
    hold_dataset,
    release_dataset,
    this_process,
)
from tests.raising import raises

ME, OTHER = Holder("here", "dataset__demo", "one"), Holder("here", "build_dataset", "two")
ABROAD = Holder("abroad", "dataset__demo", "one")  # the same run id of another Airflow
ANOTHER_MACHINE = Holder("another boot", "", "process 7 on there")

# A process that claims the dataset of the folder that it is told, says so, and works until it is killed.
WORKING = """
import sys
from pathlib import Path
from corpusmill.engine.claim import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "demo"


def last_heard_of(work: Path, seconds_ago: float) -> None:
    at = time.time() - seconds_ago
    os.utime(work / CLAIM, (at, at))


def started(work: Path) -> subprocess.Popen[str]:
    """A process that has the dataset."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKING, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    output: IO[str] = process.stdout  # type: ignore[assignment]
    assert output.readline() == "claimed\n"
    return process


def test_claim_of_a_run_under_way_is_refused_with_its_name(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    with raises("run.under_way", "run two of build_dataset"):
        claim_dataset(work, ME, lambda run: run == OTHER)


def test_claim_of_a_run_under_way_stays_however_long_nobody_heard_of_it(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    last_heard_of(work, seconds_ago=30 * 86_400)  # it waits for an approval
    with raises("run.under_way"):
        claim_dataset(work, ME, lambda run: run == OTHER)


def test_claim_of_a_run_that_ended_is_void(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    claim_dataset(work, ME, lambda _: False)
    with raises("run.under_way"):
        claim_dataset(work, OTHER, lambda run: run == ME)


def test_run_may_claim_what_it_has(work: Path) -> None:
    for _ in range(2):
        claim_dataset(work, ME, lambda _: True)


def test_claim_that_a_power_cut_tore_holds_nobody_up(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    for torn in ('{"job": "buil', "[]", "{}", ""):
        (work / CLAIM).write_text(torn)
        claim_dataset(work, ME, lambda _: True)


@pytest.mark.parametrize("holder", [ABROAD, ANOTHER_MACHINE])
def test_claim_of_another_airflow_or_machine_stays_until_it_was_not_heard_of_for_minutes(
    work: Path, holder: Holder
) -> None:
    claim_dataset(work, holder, lambda _: True)
    for seconds_ago in (0, EXPIRES_SECONDS - 60):
        last_heard_of(work, seconds_ago)
        with raises("run.under_way", holder.run, "last renewed") as caught:
            claim_dataset(work, ME, lambda run: pytest.fail(f"{run} is not this scheduler's"))
        assert ("of another Airflow" in str(caught.value)) == (holder == ABROAD)
        with raises("run.under_way"), claimed(work):
            pytest.fail("another one has it")
    last_heard_of(work, EXPIRES_SECONDS + 60)
    claim_dataset(work, ME, lambda run: pytest.fail(f"{run} is not this scheduler's"))


def test_beats_keep_a_claim_alive_and_end_with_the_work_or_the_claim(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claim_dataset(work, ME, lambda _: True)
    last_heard_of(work, EXPIRES_SECONDS + 60)
    with beating(work, ME, every_seconds=0.001):
        wait_until(lambda: time.time() - (work / CLAIM).stat().st_mtime < EXPIRES_SECONDS)
    last_heard_of(work, EXPIRES_SECONDS + 60)
    with beating(work, ME, every_seconds=0.001):
        claim_dataset(work, OTHER, lambda _: False)
        wait_until(lambda: "has lost its claim" in caplog.text)
        last_heard_of(work, EXPIRES_SECONDS + 60)
    assert time.time() - (work / CLAIM).stat().st_mtime > EXPIRES_SECONDS


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline


def test_release_lets_another_airflow_have_the_dataset_and_leaves_a_claim_that_is_not_its_own(work: Path) -> None:
    claim_dataset(work, ABROAD, lambda _: True)
    release_dataset(work, ME)
    with raises("run.under_way"):
        claim_dataset(work, ME, lambda _: False)
    release_dataset(work, ABROAD)
    claim_dataset(work, ME, lambda _: False)


def test_process_that_works_on_the_dataset_holds_up_everybody_until_it_is_killed(work: Path) -> None:
    process = started(work)
    try:
        assert json.loads((work / CLAIM).read_text())["run"].startswith(f"process {process.pid} on ")
        last_heard_of(work, EXPIRES_SECONDS + 60)  # stopped, or its file system was away: it has the lock
        with raises("run.locked", f"process {process.pid} on "):
            claim_dataset(work, ME, lambda _: False)
        with raises("run.locked"), claimed(work):
            pytest.fail("another one has it")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (work / CLAIM).exists()  # nobody removed it
    with claimed(work):
        pass
    assert not (work / CLAIM).exists()
    process = started(work)
    process.send_signal(signal.SIGKILL)
    process.wait()
    claim_dataset(work, ME, lambda run: pytest.fail(f"{run} is no run"))


def test_process_that_was_killed_on_another_machine_holds_up_for_minutes(work: Path) -> None:
    process = started(work)
    process.send_signal(signal.SIGKILL)
    process.wait()
    claim = json.loads((work / CLAIM).read_text())
    assert claim["instance"] == this_process(work).instance
    (work / CLAIM).write_text(json.dumps(claim | {"instance": "another boot"}))
    with raises("run.under_way", f"process {process.pid} on "), claimed(work):
        pytest.fail("another one has it")
    last_heard_of(work, EXPIRES_SECONDS + 60)
    with claimed(work):
        pass


def test_tasks_of_a_cleared_run_that_begin_at_once_all_go_on(work: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        for number in range(20):
            holder = Holder("here", "dataset__demo", f"run {number}")
            tasks = [pool.submit(hold, work, "first", holder, lambda run, me=holder: run == me) for _ in range(16)]
            for task in tasks:
                task.result()


def test_claim_of_a_run_that_failed_in_its_work_is_given_back(work: Path) -> None:
    with pytest.raises(ValueError, match="broken"), claimed(work):
        raise ValueError("broken")
    assert not (work / CLAIM).exists()


def planned(work: Path, name: str) -> Path:
    return work / "plan" / name / "receipt.json"


def hold(
    work: Path, plan: str, me: Holder, is_under_way: Callable[[Holder], bool], run_plan: str | None = None
) -> None:
    """For a task of plan `plan`; its run's is the same, if nothing else is said."""
    hold_dataset(planned(work, plan), me, is_under_way, lambda: run_plan or plan)


def test_task_of_the_run_that_has_the_dataset_goes_on_without_asking(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "first")
    hold_dataset(planned(work, "first"), ME, lambda run: pytest.fail(f"asked for {run}"), lambda: pytest.fail("asked"))


def test_task_whose_run_was_planned_anew_is_refused_and_names_both_plans(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "first")
    claim_dataset(work, ME, lambda _: True, "second")
    hold(work, "second", ME, lambda _: True)
    with raises("run.planned_again", "plan first", "plan second"):
        hold(work, "first", ME, lambda _: True)


def test_task_of_an_earlier_plan_is_refused_also_when_nobody_has_the_dataset_any_more(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "second")
    release_dataset(work, ME)
    with raises("run.planned_again"):
        hold(work, "first", ME, lambda _: True, run_plan="second")
    hold(work, "second", ME, lambda _: True, run_plan="second")


def test_task_cleared_while_another_run_has_the_dataset_waits_and_then_takes_it(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "first")
    claim_dataset(work, OTHER, lambda _: False, "second")
    with raises("run.under_way", "run two of build_dataset"):
        hold(work, "first", ME, lambda run: run == OTHER)
    hold(work, "second", OTHER, lambda _: True)
    hold(work, "first", ME, lambda _: False)
    with raises("run.under_way", "run one of dataset__demo"):
        hold(work, "second", OTHER, lambda run: run == ME)
