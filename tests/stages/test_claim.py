"""One scheduled run of a dataset at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.ledger import RUN_LOCK, LockHeldError, held
from pipeline.stages.claim import (
    CLAIM,
    PlanChangedError,
    RunUnderWayError,
    ScheduledRun,
    claim_dataset,
    hold_dataset,
)

ME, OTHER = ScheduledRun("dataset__demo", "one"), ScheduledRun("build_dataset", "two")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "demo"


def test_claim_of_a_run_under_way_is_refused_with_its_name(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    with pytest.raises(RunUnderWayError, match="run two of build_dataset"):
        claim_dataset(work, ME, lambda run: run == OTHER)


def test_claim_of_a_run_that_ended_is_void(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    claim_dataset(work, ME, lambda _: False)
    with pytest.raises(RunUnderWayError):
        claim_dataset(work, OTHER, lambda run: run == ME)


def test_run_may_claim_what_it_has(work: Path) -> None:
    for _ in range(2):
        claim_dataset(work, ME, lambda _: True)


def test_claim_that_a_power_cut_tore_holds_nobody_up(work: Path) -> None:
    claim_dataset(work, OTHER, lambda _: True)
    (work / CLAIM).write_text('{"job": "buil')
    claim_dataset(work, ME, lambda _: True)


def test_dataset_that_a_process_builds_cannot_be_claimed(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True)
    with held(work / RUN_LOCK, wait=False), pytest.raises(LockHeldError):
        claim_dataset(work, ME, lambda _: True)


def planned(work: Path, name: str) -> Path:
    return work / "plan" / name / "receipt.json"


def test_task_of_the_run_that_has_the_dataset_goes_on_without_asking(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "first")
    hold_dataset(planned(work, "first"), ME, lambda run: pytest.fail(f"asked for {run}"))


def test_task_whose_run_was_planned_anew_is_refused_and_names_both_plans(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "first")
    claim_dataset(work, ME, lambda _: True, "second")
    hold_dataset(planned(work, "second"), ME, lambda _: True)
    with pytest.raises(PlanChangedError, match="clear the task plan together with everything") as caught:
        hold_dataset(planned(work, "first"), ME, lambda _: True)
    assert "plan first" in str(caught.value)
    assert "plan second" in str(caught.value)


def test_task_cleared_while_another_run_has_the_dataset_waits_and_then_takes_it(work: Path) -> None:
    claim_dataset(work, ME, lambda _: True, "first")
    claim_dataset(work, OTHER, lambda _: False, "second")
    with pytest.raises(RunUnderWayError, match="run two of build_dataset"):
        hold_dataset(planned(work, "first"), ME, lambda run: run == OTHER)
    hold_dataset(planned(work, "second"), OTHER, lambda _: True)
    hold_dataset(planned(work, "first"), ME, lambda _: False)
    with pytest.raises(RunUnderWayError, match="run one of dataset__demo"):
        hold_dataset(planned(work, "second"), OTHER, lambda run: run == ME)
