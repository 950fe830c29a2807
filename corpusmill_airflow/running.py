"""Runs in progress: each holds its dataset exclusively, and finishes even if its file is deleted.

The rules of claims are in corpusmill/engine/claim.py. A run claims its dataset in `plan`, every later task holds it
while it works, and `close` releases it when no other task of the run is active.

When a run of `dataset__<name>` begins, the text of its configuration is kept below the root folder. If the file is
deleted or broken before the run has ended, the DAG is made from that copy until then: without it Airflow would forget
the DAG and leave the run's tasks waiting forever.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import DatasetConfig, absolute, work_of
from corpusmill.errors import ConfigError, CorpusmillError
from corpusmill.mirrored import address_of, path_of
from corpusmill.schedule import ScheduleConfig

if TYPE_CHECKING:
    from corpusmill.engine.claim import Holder

ASK_AGAIN = timedelta(seconds=30)
UNFINISHED = {"queued", "running"}  # states of runs
AT_REST = {"success", "failed", "skipped", "upstream_failed", "removed"}  # states of tasks
EXPERIMENT = (
    "this run's settings are not those of the dataset's configuration file ({}); to move it, write them into that file"
    " and start a new run, which reuses every step, or start one with 'Move latest'"
)
AIRFLOW = "corpusmill_airflow"  # the Airflow variable that identifies this Airflow
WHY = "why"  # the XCom in which a task states why it stops; the page of the run shows the plan's


def copies() -> Path:
    """The folder with the configurations of runs in progress: `<name>.yaml`."""
    return Path(absolute(".corpusmill/running"))


def this_airflow() -> str:
    """An id of this Airflow, made by its first run, for work folders that several Airflows share."""
    from airflow.sdk import Variable

    known = Variable.get(AIRFLOW, default=None)
    if known is None:
        Variable.set(AIRFLOW, secrets.token_hex(8), description="Names this Airflow in the claims of datasets.")
        known = Variable.get(AIRFLOW)
    return str(known)


def planned(work: Path, context: Any, make_plan: Callable[[], Path]) -> str:
    """Claim the dataset of a work folder and plan it; returns the path of the plan's receipt.

    If another run has the dataset, tries again in half a minute (up_for_reschedule).
    """
    from corpusmill.engine.claim import beating, claim_dataset, release_dataset
    from corpusmill.ledger import LockHeldError
    from corpusmill_airflow.worker import require_worker

    require_worker()
    with _waiting(context, this_airflow()) as (me, is_under_way):
        claim_dataset(work, me, is_under_way)
        try:
            with beating(work, me):
                plan_receipt = make_plan()
            claim_dataset(work, me, is_under_way, plan_receipt.parent.name)
        except Exception:
            with suppress(LockHeldError):  # else the claim becomes void when the run ends
                release_dataset(work, me)
            raise
    return address_of(plan_receipt)


@contextmanager
def held(plan_receipt: str, context: Any, airflow: str) -> Iterator[None]:
    """For a task after the plan's: hold the dataset, or try again later; fail if the run has another plan."""
    from corpusmill.builds.plan import require_same_code
    from corpusmill.engine.claim import beating, hold_dataset
    from corpusmill.stages.graph import open_build

    receipt = path_of(plan_receipt)
    open_build(receipt)  # raises if missing: claiming would recreate a renamed work folder
    require_same_code(receipt)

    def run_plan() -> str:
        return Path(context["ti"].xcom_pull(task_ids="plan") or "").parent.name

    with _waiting(context, airflow) as (me, is_under_way):
        hold_dataset(receipt, me, is_under_way, run_plan)
    with beating(receipt.parents[2], me):
        yield


def was_cleared(context: Any) -> bool:
    """Whether this is the first try after the task was cleared (retries after that do not count)."""
    return context["ti"].try_number > 1 and failures(context) == 0


def failures(context: Any) -> int:
    """Tries of the task that failed since it was cleared, if it was.

    Clearing sets max_tries to the tries made so far plus `retries`, so the first try since is max_tries - retries + 1.
    """
    instance, retries = context["ti"], context["task"].retries or 0
    return int(instance.try_number - (instance.max_tries - retries + 1))


def plan_run(config: DatasetConfig, context: Any, own: DatasetConfig | None, operators: DatasetConfig) -> str:
    """Claim the dataset, plan it and begin the run, unless it is a dry one; returns the path of the plan's receipt.

    `own`: the dataset's configuration file, if it has one: a run with other settings is an experiment. `operators`: the
    file with which the form began: other locations in the form must be below its roots.
    """
    from corpusmill.bounds import require_bounded, require_listed
    from corpusmill.engine.runs import begin_run
    from corpusmill.form import changed_keys
    from corpusmill.stages.graph import open_build
    from corpusmill_airflow.connections import credentials
    from corpusmill_airflow.section import keep_section
    from corpusmill_airflow.worker import ask

    require_bounded(config, operators)
    if own and operators.forget not in (None, own.forget):
        raise ConfigError(
            "the list of documents to forget would not be used: a dataset has the list of its own file",
            where=f"forget in {operators.name}.yaml, for a dataset called {own.name}",
            expected=own.forget.model_dump(exclude_none=True) if own.forget else f"none, as in {own.name}.yaml",
            got=operators.forget.model_dump(exclude_none=True) if operators.forget else "",
            next_step=f"write `forget` into {own.name}.yaml, or give the dataset a name without a file",
        )
    # Only the dataset's own file may order a removal, neither a form nor the file that the form started from.
    kept = {
        "keep_versions": own.keep_versions if own else None,
        "reclaim": (own or operators).reclaim,
        "forget": (own or operators).forget,
    }
    config = config.model_copy(update=kept)

    params = context["params"]
    section = operators.dag or ScheduleConfig()
    if own and own.dag and own.dag.approve_removal:
        section = section.model_copy(update={"approve_removal": True})

    def plan() -> Path:
        # A dry run is planned even if it would not fit: its estimate states that.
        as_json = config.model_dump_json(exclude_none=True)
        with credentials(section.connections):
            plan_receipt = path_of(ask("plan", config=as_json, to_build=not params.get("dry_run")))
        planned = open_build(plan_receipt).plan
        of_references = [[file.location for file in reference.files()] for reference in planned.references or ()]
        require_listed(config, operators, (file.location for file in planned.files()), of_references)
        keep_section(plan_receipt, section)
        changed = changed_keys(config, own) if own and not params.get("move_latest") else []
        if not params.get("dry_run"):
            begin_run(plan_receipt, latest_stays=EXPERIMENT.format(", ".join(changed)) if changed else "")
        return plan_receipt

    return planned(work_of(config), context, plan)


@contextmanager
def _waiting(context: Any, airflow: str) -> Iterator[tuple[Holder, Callable[[Holder], bool]]]:
    """(this run, a test whether another run of this Airflow is in progress); a task that finds the dataset taken tries
    again.
    """
    from airflow.sdk.timezone import utcnow

    from corpusmill.engine.claim import Holder, RunUnderWayError
    from corpusmill.ledger import LockHeldError
    from corpusmill_airflow.by_version import AirflowRescheduleException

    instance = context["ti"]
    try:
        yield Holder(airflow, instance.dag_id, instance.run_id), lambda other: _is_under_way(instance, other)
    except (RunUnderWayError, LockHeldError) as error:
        print(f"{type(error).__name__}: {error}")
        instance.xcom_push(WHY, str(error))
        raise AirflowRescheduleException(utcnow() + ASK_AGAIN) from None


@contextmanager
def refusal_shown(context: Any) -> Iterator[None]:
    """Push the plan's error as an XCom, so that the run's page shows it: the log is two pages away from the form."""
    try:
        yield
    except CorpusmillError as error:
        context["ti"].xcom_push(WHY, str(error))
        raise


def _is_under_way(instance: Any, other: Holder) -> bool:
    return bool(instance.get_dr_count(other.job, run_ids=[other.run], states=sorted(UNFINISHED)))


def keep_copy(name: str, text: str) -> None:
    """Keep a copy of a configuration during a run."""
    copies().mkdir(parents=True, exist_ok=True)
    temporary = copies() / f".{name}.new"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(copies() / f"{name}.yaml")


def close(context: Any, plan_receipt: str | None, name: str) -> None:
    """Release the dataset and remove the copy of `name`, once no other task of the run is active.

    Until then try again every half minute: after a failure Airflow fails the tasks after it at once, while parallel
    ones continue, and need their DAG.
    """
    from airflow.sdk.timezone import utcnow

    from corpusmill.engine.claim import release_dataset
    from corpusmill_airflow.by_version import AirflowRescheduleException

    instance = context["ti"]
    this = {"dag_id": instance.dag_id, "run_ids": [instance.run_id]}
    if instance.get_ti_count(**this) - instance.get_ti_count(**this, states=sorted(AT_REST)) > 1:
        raise AirflowRescheduleException(utcnow() + ASK_AGAIN)
    if plan_receipt:
        with _waiting(context, this_airflow()) as (me, _):
            release_dataset(path_of(plan_receipt).parents[2], me)
    if name:
        (copies() / f"{name}.yaml").unlink(missing_ok=True)
