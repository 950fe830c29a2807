"""What a run's page shows, from Airflow's records, the plan and the receipts."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from sqlalchemy.orm import Session

from corpusmill.builds.chain import STEPS
from corpusmill.builds.graph import GRAPH
from corpusmill.builds.reprocess import FIRST_STAGES
from corpusmill.config import DatasetConfig
from corpusmill.engine.plan import read_config, read_plan
from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import CorpusmillError
from corpusmill.lazy import lazily
from corpusmill.storage.mirrored import path_of
from corpusmill_airflow.pages import live, receipts, records

with lazily:
    from corpusmill.builds import estimate
    from corpusmill.engine import estimates


T = TypeVar("T")
WAITS_FOR_THE_DATASET = "up_for_reschedule"  # of any task but CLOSE, which waits for the run's own tasks (running.py)
CLOSE = "close"
WAITS_FOR_SOMEBODY = {"awaiting_input", "deferred"}
APPROVING = "approve_"  # how the names of tasks begin that wait for somebody
TO_REVIEW = {
    "approve_removal": "what deduplication would remove",
    "approve_forgetting": "which documents would be forgotten",
}
NOT_APPROVED = "Somebody rejected it, or nobody decided in time."


@dataclass(frozen=True)
class FirstTask:
    """The task of a run with which a step begins; "" if it has none. `mapped`: there is one for each part."""

    step: str
    task_id: str
    mapped: bool


@dataclass(frozen=True)
class Reprocessing:
    """Whether the user may reprocess a shard, and if not, why; `is_paused`: the DAG is paused, so a run would wait.

    `steps`: those to begin with.
    """

    may: bool
    why_not: str
    is_paused: bool
    steps: list[FirstTask]


@dataclass(frozen=True)
class Planned:
    """What a plan says; nothing where it cannot be read. `sizes`: source bytes of each shard."""

    config: DatasetConfig | None = None
    shards: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


def state_of(session: Session, run: records.Run, user: Any) -> dict[str, Any]:
    """All values of a run's page."""
    tasks = records.tasks_of(session, run)
    paths = records.handed_on(session, run)
    plan = receipt_of(paths, records.PLAN)
    planning = next((task.state for task in tasks if task.task_id == records.PLAN), None)
    unchanged = _of_planned(tasks, records.unchanged(session, run))
    figures = _of_planned(tasks, records.estimate_of(session, run))
    report_path = unchanged or _written_report(tasks, paths)
    work = plan.parents[2] if plan else None
    has_report = report_path is not None and receipts.report_receipt(report_path) is not None
    table = receipts.shard_table(report_path) if has_report else None
    planned = _planned(plan)
    parts = records.parts_of(session, run)
    is_older = plan is not None and not parts
    of_steps = [] if is_older else [task for task in tasks if task.step]
    # A finished report has all figures of the receipts.
    done = {(records.PLAN, -1), *(task.key for task in of_steps if task.state == "success")}
    returned = {} if table is not None and run.state == "success" else {key: paths[key] for key in done & paths.keys()}
    facts, unread, unreadable = _facts(of_steps, returned, work, planned, parts)
    lines = []
    if not figures and not is_older:
        by_path = {path: one for of_task in facts.by_task.values() for path, one in of_task.items()} | facts.found
        shards, sizes = list(planned.shards), list(planned.sizes)
        lines = live.shard_lines(of_steps, by_path, shards, sizes, parts, is_over=run.is_over)
    if table is not None:
        lines = live.with_rows(lines, table)
    reasons = records.reasons(session, run)
    waiting = [] if run.is_over else [task for task in tasks if _waits_for_the_dataset(task)]
    failed = [task for task in tasks if task.state == "failed" and (plan or task.task_id != records.PLAN)]
    of_dataset = run.dag_id.removeprefix(records.OF_A_DATASET)
    retrying = [task for task in of_steps if task.state == "up_for_retry" and not run.is_over]
    return {
        "run": run,
        "name": work.name if work else _name_of(run),
        "plan": plan,
        "planning": planning,
        "waits": bool(waiting),
        "why": next((why for task in waiting if (why := reasons.get(task.key))), "")
        or ("" if plan else reasons.get((records.PLAN, -1), "")),
        "now": datetime.now(UTC),
        "steps": live.step_lines(of_steps, facts, parts, planned.config, is_over=run.is_over) if not is_older else [],
        "shards": lines,
        "unread": unread,
        "unreadable": unreadable,
        "has_report": has_report,
        "report_is_gone": report_path is not None and not has_report,
        "work_is_gone": bool(work and not is_shared(work) and not work.is_dir()),
        "work": work,
        "is_older": is_older,
        "was_reported": records.REPORT in {task_id for task_id, _ in paths},
        "failures": [(task, reasons.get(task.key, "") or _reason(task)) for task in failed],
        "retrying": [(task, reasons.get(task.key, "")) for task in retrying],
        "unchanged": unchanged is not None,
        "reprocessing": _reprocessing(session, user, run, of_steps, parts, planned.config),
        "changes": _changes(run, of_steps, plan, table),
        "missing_pools": [] if run.is_over else records.missing_pools(session, *records.of_run(run)),
        "asking": None if run.is_over else _asking(tasks),
        "is_estimate": figures is not None,
        "estimate": _estimate_in_words(figures),
        "dag_problem": records.dag_problem(session, of_dataset) if of_dataset != run.dag_id else "",
    }


def _facts(
    tasks: list[records.Task],
    returned: dict[tuple[str, int], list[str]],
    work: Path | None,
    planned: Planned,
    parts: int,
) -> tuple[live.Facts, int, CorpusmillError | None]:
    """(the facts of receipts that tasks returned, and that those at work have written; how many were left unread for
    lack of time; the error that ended reading, or None).
    """
    if work is None:
        return live.Facts(), 0, None
    found = receipts.find_written(work, live.stages_at_work(tasks, planned.config, parts))
    steps, unread, unreadable = receipts.read_steps([*(path for of in returned.values() for path in of), *found], work)
    by_task = {key: {path: steps[path] for path in of if path in steps} for key, of in returned.items()}
    of_tasks = {path for of in returned.values() for path in of}
    return (
        live.Facts(
            by_task,
            frozenset(key for key, of in returned.items() if (unread or unreadable) and len(by_task[key]) < len(of)),
            {path: steps[path] for path in found if path in steps and path not in of_tasks},
            len(planned.shards),
        ),
        unread,
        unreadable,
    )


def report_of(session: Session, run: records.Run) -> Path | None:
    """The receipt of the report that a run shows: its own, or if it changed nothing, the last one."""
    tasks = records.tasks_of(session, run)
    unchanged = _of_planned(tasks, records.unchanged(session, run))
    return unchanged or _written_report(tasks, records.handed_on(session, run))


# After clearing, what a task has handed on stays until it begins again.


def _of_planned(tasks: list[records.Task], handed_on: T | None) -> T | None:
    return handed_on if any(task.task_id == records.PLAN and task.state == "success" for task in tasks) else None


def _written_report(tasks: list[records.Task], paths: dict[tuple[str, int], list[str]]) -> Path | None:
    is_written = any(task.task_id == records.REPORT and task.state == "success" for task in tasks)
    return receipt_of(paths, records.REPORT) if is_written else None


def _waits_for_the_dataset(task: records.Task) -> bool:
    return task.state == WAITS_FOR_THE_DATASET and task.task_id != CLOSE


def _reason(task: records.Task) -> str:
    """Why a task failed that has not said why itself."""
    return NOT_APPROVED if task.task_id.startswith(APPROVING) else ""


def _asking(tasks: list[records.Task]) -> tuple[str, str] | None:
    """(the task that waits for somebody's approval, what to review)."""
    for task in tasks:
        if task.task_id.startswith(APPROVING) and task.state in WAITS_FOR_SOMEBODY:
            return task.task_id, TO_REVIEW.get(task.task_id, "what would be removed")
    return None


def _planned(plan: Path | None) -> Planned:
    try:
        return _read_planned(plan, plan.stat().st_mtime_ns) if plan else Planned()
    except (OSError, CorpusmillError):
        return Planned()


@lru_cache(maxsize=16)
def _read_planned(receipt: Path, _modified: int) -> Planned:
    plan = read_plan(receipt)
    try:
        config = read_config(receipt)
    except CorpusmillError:  # of another version
        config = None
    sizes = (sum(file.size_bytes for file in shard) for shard in plan.shards)
    return Planned(config, tuple(plan.shard_names()), tuple(sizes))


def receipt_of(paths: dict[tuple[str, int], list[str]], task_id: str) -> Path | None:
    """The receipt that a task that is not mapped returned."""
    returned = paths.get((task_id, -1))
    return path_of(returned[0]) if returned else None


def _name_of(run: records.Run) -> str:
    asked = next(filter(None, map(run.conf.get, ("dataset", "name", "configuration"))), None)
    return str(asked or run.dag_id.removeprefix(records.OF_A_DATASET))


def _reprocessing(
    session: Session,
    user: Any,
    run: records.Run,
    tasks: list[records.Task],
    parts: int,
    config: DatasetConfig | None,
) -> Reprocessing:
    dag = records.find_dag(session, records.REPROCESS)
    why_not = ""
    if not dag.is_there:
        why_not = f"The DAG {records.REPROCESS} is missing. See Airflow's import errors, or install all of dags/."
    elif not records.may(user, records.REPROCESS, "POST", DagAccessEntity.RUN):
        why_not = (
            f"You may look at this run, but not trigger the DAG {records.REPROCESS}."
            " Ask an administrator of this Airflow for a role that may (with its simple login: user or above)."
        )
    elif not run.is_over:
        why_not = "Shards can be reprocessed once this run has ended."
    steps = [
        next(
            (
                FirstTask(name, task.task_id, task.map_index >= 0)
                for task in tasks
                if task.step == name and task.state != "skipped" and live.works_on_shards(task, parts)
            ),
            FirstTask(name, "", False),
        )
        for name in FIRST_STAGES
        if config is None or any(GRAPH.is_wanted(stage, config) for stage in STEPS[name].stages)
    ]
    return Reprocessing(not why_not, why_not, dag.is_paused, steps)


def _changes(run: records.Run, tasks: list[records.Task], plan: Path | None, table: Any) -> Any:
    """The changes by a run that reprocessed a shard, if it is the newest: an older one's comparison is overwritten."""
    if run.dag_id != records.REPROCESS or plan is None or table is None:
        return None
    first = min((task.started for task in tasks if task.started), default=None)
    at = receipts.reprocessed_at(plan)
    if run.started is None or first is None or not run.started.timestamp() <= at <= first.timestamp() + 1:
        return None
    return receipts.changes(plan, table)


def _estimate_in_words(figures: dict[str, Any] | None) -> str:
    """The estimate of a dry run as text; "" for any other, and for one that another version has written."""
    try:
        return estimate.render_estimate(estimates.Estimate(**figures)) if figures else ""
    except (TypeError, ValueError, AttributeError, LookupError):
        return ""
