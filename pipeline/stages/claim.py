"""One run of a dataset at a time, also when a scheduler's runs have no process that lives as long as they do.

A run says in the dataset's work folder that it has the dataset, and with which plan. Another run asks the scheduler
whether that one is still under way; if it is not (it ended, failed or was deleted), the claim is void and goes to the
asker. The plan claims first; every later task asks whether the claim is still its run's, because a task that somebody
cleared long after its run had ended would remove receipts that another run relies on. Its plan must be the claim's,
too: a plan that was made anew by itself would leave one run with steps of two plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.errors import PermanentError, TransientError
from pipeline.ledger import RUN_LOCK, held

CLAIM = ".run.json"


class RunUnderWayError(TransientError):
    """Another run of the dataset is under way."""


class PlanChangedError(PermanentError):
    """A task belongs to another plan than its run does now."""


@dataclass(frozen=True)
class ScheduledRun:
    """A run of a scheduler's job."""

    job: str
    run: str


def claim_dataset(work: Path, me: ScheduledRun, is_under_way: Callable[[ScheduledRun], bool], plan: str = "") -> None:
    """Let run `me` have the dataset of a work folder, to build the plan whose folder is called `plan`, once known.

    Raises RunUnderWayError if another scheduled run has it, LockHeldError if a process on this machine builds it.
    """
    work.mkdir(parents=True, exist_ok=True)
    with held(work / RUN_LOCK, wait=False):
        other, _ = _claimed(work)
        if other is not None and other != me and is_under_way(other):
            raise RunUnderWayError(
                f"another run of the dataset {work.name} is under way",
                where=work,
                got=f"run {other.run} of {other.job}",
                next_step="wait: this run goes on when that one has ended; or mark that one as failed",
            )
        temporary = work / f"{CLAIM}.new"
        temporary.write_text(json.dumps(asdict(me) | {"plan": plan}) + "\n", encoding="utf-8")
        temporary.replace(work / CLAIM)


def hold_dataset(plan_receipt: Path, me: ScheduledRun, is_under_way: Callable[[ScheduledRun], bool]) -> None:
    """For a task after the plan's: go on only while run `me` has the dataset; a claim that is void is taken again.

    Raises what claim_dataset raises, and PlanChangedError if the run has another plan than the task.
    """
    work, plan = plan_receipt.parents[2], plan_receipt.parent.name
    claimed, claimed_plan = _claimed(work)
    if claimed != me:
        claim_dataset(work, me, is_under_way, plan)
    elif claimed_plan != plan:
        raise PlanChangedError(
            "the run was planned anew since this task was made, so it would mix two plans",
            where=work,
            expected=f"plan {claimed_plan or 'none: the task plan has not finished'}",
            got=f"plan {plan}",
            next_step="clear the task plan together with everything downstream of it",
        )


def _claimed(work: Path) -> tuple[ScheduledRun | None, str]:
    """(the run that has the dataset, its plan); none if nobody has, or a power cut tore the file."""
    try:
        claim = json.loads((work / CLAIM).read_text(encoding="utf-8"))
        return ScheduledRun(claim["job"], claim["run"]), claim.get("plan", "")
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None, ""
