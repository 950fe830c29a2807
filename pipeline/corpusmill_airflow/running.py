"""Runs in progress: each holds its dataset exclusively, and finishes even if its file is deleted.

The rules of claims are in corpusmill/engine/claim.py. A run claims its dataset in `plan`, every later task holds it
while it works, and `close` releases it when no other task of the run is active.

When a run of `dataset__<name>` begins, the text of its configuration is kept below the root folder. If the file is
deleted or broken before the run has ended, the DAG is made from that copy until then: without it Airflow would forget
the DAG and leave the run's tasks waiting forever.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import DatasetConfig, absolute, work_of
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.errors import ConfigError, CorpusmillError, PermanentError
from corpusmill.lazy import lazily
from corpusmill.storage.local import write_whole
from corpusmill.storage.mirrored import address_of, path_of
from corpusmill_airflow.needed import needed_ids, skip_all

with lazily:
    from corpusmill.builds import estimate, graph
    from corpusmill.builds import plan as builds_plan
    from corpusmill.config import bounds, form
    from corpusmill.engine import claim, estimates, ledger, runs
    from corpusmill_airflow import by_version, connections, worker


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
# XComs for the page of the run: why a task stops; the last report, if nothing has changed; a dry run's figures.
WHY, UNCHANGED, ESTIMATE = "why", "unchanged", "estimate"


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


@dataclass(frozen=True)
class Planned:
    """A plan: its receipt, how many parts its steps have, and whether the run ends with it."""

    receipt: Path
    parts: int
    ends: bool = False


def planned(work: Path, context: Any, make_plan: Callable[[], Planned]) -> list[dict[str, str]]:
    """Claim the dataset of a work folder and plan it; returns what each part of a step is given: its number, the plan's
    receipt and the id of this Airflow, which would otherwise be a request of every task.

    If another run has the dataset, tries again in half a minute (up_for_reschedule).
    """
    worker.require_worker()
    airflow = this_airflow()
    with _waiting(context, airflow) as (me, is_under_way):
        claim.claim_dataset(work, me, is_under_way)
        try:
            with claim.beating(work, me):
                made = make_plan()
            claim.claim_dataset(work, me, is_under_way, made.receipt.parent.name)
        except Exception:
            with suppress(ledger.LockHeldError):  # else the claim becomes void when the run ends
                claim.release_dataset(work, me)
            raise
    parts = max(made.parts, _parts_before(context))
    shared = {"plan_receipt": address_of(made.receipt), "airflow": airflow}
    given = [{"part": f"{number}/{parts}", **shared} for number in range(1, parts + 1)]
    if made.ends:
        context["ti"].xcom_push("return_value", given)
        skip_all(context)
    return given


def _given_by_plan(context: Any, key: str) -> str:
    given = context["ti"].xcom_pull(task_ids="plan")
    return str(given[0].get(key, "")) if given and isinstance(given, list) else ""


def plan_of_run(context: Any) -> str:
    """The receipt of the run's plan; "" if it has none of this version."""
    return _given_by_plan(context, "plan_receipt")


def airflow_of_run(context: Any) -> str:
    """The id under which the run's plan claimed the dataset. The variable may have another by now: of the first runs of
    an Airflow, several may make one, and the last stays.
    """
    return _given_by_plan(context, "airflow") or this_airflow()


def was_ever_cleared(context: Any) -> bool:
    """Whether this task was cleared in this run, which raises its max_tries."""
    return int(context["ti"].max_tries) > int(context["task"].retries or 0)


def _parts_before(context: Any) -> int:
    """How many parts the steps of a cleared run had; 1 in another run. It keeps at least as many, since Airflow keeps
    the tasks of parts that are no more, as removed ones.
    """
    if not was_ever_cleared(context):
        return 1
    instance = context["ti"]
    return int(instance.get_ti_count(instance.dag_id, task_ids=["download"], run_ids=[instance.run_id]))


def asks_for_approval(context: Any, plan_receipt: str | Path) -> bool:
    """Whether somebody is asked before a removal: as the form says, or else the configuration."""
    asked = context["params"].get("approve_removal")
    return bool(connections.section_of(plan_receipt).approve_removal if asked is None else asked)


@contextmanager
def dataset_claimed(plan_receipt: str, context: Any, airflow: str = "") -> Iterator[None]:
    """For a task after the plan's: hold the dataset, or try again later; fail if the run has another plan. `airflow`:
    airflow_of_run, if the task was given it.
    """
    receipt = path_of(plan_receipt)
    graph.open_build(receipt)  # raises if missing: claiming would recreate a renamed work folder
    builds_plan.require_same_code(receipt)

    def run_plan() -> str:
        return Path(plan_of_run(context)).parent.name

    with _waiting(context, airflow or airflow_of_run(context)) as (me, is_under_way):
        claim.hold_dataset(receipt, me, is_under_way, run_plan)
    with claim.beating(receipt.parents[2], me):
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


def plan_run(
    config: DatasetConfig,
    context: Any,
    own: DatasetConfig | None,
    operators: DatasetConfig,
    *,
    tasks_of: DatasetConfig | None = None,
) -> list[dict[str, str]]:
    """Claim the dataset, plan it and begin the run; returns what the parts of its steps are given.

    A dry run, and one that would change nothing, ends here: all other tasks are skipped. `own`: the dataset's
    configuration file, if it has one: a run with other settings is an experiment. `operators`: the file with which the
    form began: other locations in the form must be below its roots. `tasks_of`: the configuration whose tasks the DAG
    has; None if it has all that there are.
    """
    bounds.require_bounded(config, operators)
    if own and operators.forget not in (None, own.forget):
        raise ConfigError(
            "airflow.list_not_used: the list of documents to forget would not be used: a dataset has the list of its"
            " own file",
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

    if tasks_of is not None:
        asks = params.get("approve_removal")
        require_tasks(config, tasks_of, asks=section.approve_removal if asks is None else asks)

    def plan() -> Planned:
        # A dry run is planned even if it would not fit: its estimate states that.
        dry = bool(params.get("dry_run"))
        asked = {"config": config.model_dump_json(exclude_none=True), "most_tasks": section.most_tasks}
        may_be_unchanged = not dry and not params.get("verify") and not was_ever_cleared(context)
        with connections.credentials(section.connections):
            made = worker.ask("plan", **asked, to_build=not dry, may_be_unchanged=may_be_unchanged)
        plan_receipt = path_of(made["plan_receipt"])
        planned = graph.open_build(plan_receipt).plan
        of_references = [[file.location for file in reference.files()] for reference in planned.references or ()]
        bounds.require_listed(config, operators, (file.location for file in planned.files()), of_references)
        connections.keep_section(plan_receipt, section)
        if dry:
            with connections.credentials(section.connections):
                show_estimate(context, worker.ask("estimate", plan_receipt=made["plan_receipt"]))
        elif made["report"]:
            print("nothing has changed since the last run: no task has anything to do")
            context["ti"].xcom_push(UNCHANGED, made["report"])
        else:
            changed = form.changed_keys(config, own) if own and not params.get("move_latest") else []
            runs.begin_run(plan_receipt, latest_stays=EXPERIMENT.format(", ".join(changed)) if changed else "")
        return Planned(plan_receipt, made["parts"], ends=dry or bool(made["report"]))

    return planned(work_of(config), context, plan)


def show_estimate(context: Any, figures: dict[str, Any]) -> None:
    """Print the estimate of a dry run, and keep it for the run's page."""
    print(estimate.render_estimate(estimates.Estimate(**figures)))
    # Airflow hands on a tuple as something else than a list, and a named one as text.
    context["ti"].xcom_push(ESTIMATE, json.loads(json.dumps(figures)))


def require_tasks(config: DatasetConfig, of: DatasetConfig, *, asks: bool) -> None:
    """ConfigError if a form asks for something that the DAG of the configuration `of` has no task for."""
    there = needed_ids(of, 2, asks=bool(of.dag and of.dag.approve_removal))
    lacking = sorted(needed_ids(config, 2, asks=asks) - there)
    if lacking:
        raise ConfigError(
            "airflow.task_missing: the form asks for what this DAG has no task for",
            where=f"the DAG of {of.name}",
            expected=f"what {of.name}.yaml asks for",
            got=f"tasks {', '.join(lacking)}",
            next_step=f"switch it on in {of.name}.yaml (dag.approve_removal for an approval), or trigger build_dataset,"
            " which has every task",
        )


@contextmanager
def _waiting(context: Any, airflow: str) -> Iterator[tuple[Holder, Callable[[Holder], bool]]]:
    """(this run, a test whether another run of this Airflow is in progress); a task that finds the dataset taken tries
    again.
    """
    from airflow.sdk.timezone import utcnow

    instance = context["ti"]
    try:
        yield claim.Holder(airflow, instance.dag_id, instance.run_id), lambda other: _is_under_way(instance, other)
    except (claim.RunUnderWayError, ledger.LockHeldError) as error:
        print(error)
        instance.xcom_push(WHY, str(error))
        raise by_version.AirflowRescheduleException(utcnow() + ASK_AGAIN) from None


@contextmanager
def refusal_shown(context: Any) -> Iterator[None]:
    """Push a task's error as an XCom, so that the run's page shows it: the log is two pages away."""
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
    write_whole(copies() / f"{name}.yaml", text.encode())


def close(context: Any, name: str) -> None:
    """Release the dataset and remove the copy of `name`, once no other task of the run is active; PermanentError if an
    older version planned the run.

    Until then try again every half minute: after a failure Airflow fails the tasks after it at once, while parallel
    ones continue, and need their DAG.
    """
    from airflow.sdk.timezone import utcnow

    instance = context["ti"]
    this = {"dag_id": instance.dag_id, "run_ids": [instance.run_id]}
    if instance.get_ti_count(**this) - instance.get_ti_count(**this, states=sorted(AT_REST)) > 1:
        raise by_version.AirflowRescheduleException(utcnow() + ASK_AGAIN)
    if plan_receipt := plan_of_run(context):
        with _waiting(context, airflow_of_run(context)) as (me, _):
            claim.release_dataset(path_of(plan_receipt).parents[2], me)
    if name:
        (copies() / f"{name}.yaml").unlink(missing_ok=True)
    if isinstance(instance.xcom_pull(task_ids="plan"), str):
        # Airflow ends such steps as upstream_failed, which says nothing: the run's page shows this error.
        with refusal_shown(context):
            raise PermanentError(
                "airflow.run_of_older_version: an older version of Corpusmill planned this run, which had other tasks",
                where=f"run {instance.run_id}",
                next_step="clear its task plan with everything downstream, or trigger the DAG again; both reuse every"
                " finished step",
            )
