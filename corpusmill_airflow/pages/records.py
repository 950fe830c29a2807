"""Reads Airflow's records of runs: their state, their tasks and XComs, and a user's permissions."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from corpusmill.ledger import RECEIPT_NAME
from corpusmill.mirrored import path_of
from corpusmill.stages.graph import GRAPH

PLAN, REPORT = "plan", "report"
REPROCESS = "reprocess_shard"
COMPARE = "compare_versions"
ESTIMATE = "estimate"
APPROVALS = tuple(f"approve_{stage.approved or stage.name}" for stage in GRAPH if stage.approval)  # their tasks
WHY = "why"  # the XCom of a task that stops (running.py)
OF_A_DATASET = "dataset__"  # DAGs that a dataset's configuration file makes
STAGES = {PLAN: PLAN} | {f"{stage.group}.{stage.name}" if stage.group else stage.name: stage.name for stage in GRAPH}
LIST = "list_"  # before a stage's name: the task that lists its units (stage_tasks.py)


@dataclass(frozen=True)
class Run:
    """One DAG run."""

    dag_id: str
    run_id: str
    state: str
    started: datetime | None
    ended: datetime | None
    conf: dict[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether nothing of it will run any more, unless a task is cleared."""
        return self.state in {"success", "failed"}


@dataclass(frozen=True)
class Task:
    """One task instance of a stage; `unit` is the name of its unit, or of its range of units."""

    task_id: str
    map_index: int
    stage: str
    unit: str
    state: str
    tries: int
    started: datetime | None
    ended: datetime | None
    pool: str = ""

    @property
    def shards(self) -> list[str]:
        """The shards of a task of a stage per shard: `00003`, or all of `00003 to 00007`."""
        first, _, last = self.unit.partition(" to ")
        return [f"{shard:05d}" for shard in range(int(first), int(last or first) + 1)]


def find_run(session: Session, dag_id: str, run_id: str) -> Run | None:
    """The run, or None if there is none."""
    row = session.execute(_runs().where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).first()
    return _as_run(row) if row else None


def _runs() -> Any:
    return select(
        DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date, DagRun.end_date, DagRun.conf, DagRun.queued_at
    )


def _as_run(row: Any) -> Run:
    dag_id, run_id, state, started, ended, conf, queued = row
    return Run(dag_id, run_id, str(state or "queued"), started or queued, ended, dict(conf or {}))


def newest_runs(session: Session, dag_ids: set[str], limit: int) -> list[Run]:
    """Runs of these DAGs, the newest first."""
    query = _runs().where(DagRun.dag_id.in_(dag_ids)).order_by(DagRun.id.desc()).limit(limit)
    return [_as_run(row) for row in session.execute(query)]


def tasks_of(session: Session, run: Run) -> list[Task]:
    """The mapped task instances of every stage, and the report's, in the order of their units."""
    columns = (
        TaskInstance.task_id,
        TaskInstance.map_index,
        TaskInstance.rendered_map_index,
        TaskInstance.state,
        TaskInstance.try_number,
        TaskInstance.start_date,
        TaskInstance.end_date,
        TaskInstance.pool,
    )
    query = select(*columns).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id)
    listed = _listed(session, run)
    tasks = []
    for task_id, map_index, name, state, tries, started, ended, pool in session.execute(query):
        stage = stage_of(task_id)
        # A mapped task that has not been expanded, and the tasks that list units, have no index. Those of shards that
        # are there no more, since the run was cleared and planned again, Airflow keeps as removed.
        if stage is None or state == "removed" or (map_index < 0 and task_id != REPORT and state != "skipped"):
            continue
        # Airflow names a task by its index until the task begins; no unit has such a name.
        known = name if name != str(map_index) else listed.get((stage, map_index), f"{map_index:05d}")
        unit = REPORT if map_index < 0 else known
        tasks.append(Task(task_id, map_index, stage, unit, str(state or "waiting"), tries, started, ended, pool))
    return sorted(tasks, key=lambda task: (task.task_id, task.map_index))


def _listed(session: Session, run: Run) -> dict[tuple[str, int], str]:
    """(stage, map index) -> the unit of its task, from the tasks that list units."""
    by_list: dict[str, list[str]] = {}
    query = select(XComModel.task_id, XComModel.value).where(
        XComModel.dag_id == run.dag_id,
        XComModel.run_id == run.run_id,
        XComModel.key == "return_value",
        XComModel.task_id.contains(LIST),
    )
    for task_id, value in session.execute(query):
        if isinstance(value, list) and all(isinstance(arguments, dict) and "unit" in arguments for arguments in value):
            by_list[task_id.partition(LIST)[2]] = [str(arguments["unit"]) for arguments in value]
    return {
        (stage.name, place): unit
        for stage in GRAPH
        for place, unit in enumerate(by_list.get(stage.units_of or stage.name, ()))
    }


def stage_of(task_id: str) -> str | None:
    """The stage that a task runs, or None if it runs none."""
    return STAGES.get(task_id)


def handed_on(session: Session, run: Run) -> dict[tuple[str, int], list[str]]:
    """(task, map index) -> the receipt paths that it returned; str, not Path, because a run has thousands of them."""
    query = select(XComModel.task_id, XComModel.map_index, XComModel.value).where(
        XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == "return_value"
    )
    receipts = {}
    for task_id, map_index, value in session.execute(query):
        paths = receipt_paths(value)
        if paths:
            receipts[task_id, map_index] = [str(path_of(path)) for path in paths]
    return receipts


def state_of_task(session: Session, run: Run, task_id: str) -> str | None:
    """The state of a task that is not mapped; None if the run has no such task."""
    query = select(TaskInstance.state).where(
        TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id, TaskInstance.task_id == task_id
    )
    return session.execute(query).scalar()


def estimate_of(session: Session, run: Run) -> dict[str, Any] | None:
    """The figures of a dry run's estimate; None for any other run."""
    figures = _xcom(session, run, ESTIMATE)
    return figures if isinstance(figures, dict) else None


def returned(session: Session, run: Run) -> str:
    """The return value of a run's only task, as text; "" if it has none."""
    return str(_xcom(session, run, "return_value") or "")


def why_not(session: Session, run: Run) -> str:
    """A task's reason to stop; "" if it gave none."""
    return str(_xcom(session, run, WHY) or "")


def _xcom(session: Session, run: Run, key: str) -> Any:
    query = select(XComModel.value).where(
        XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == key
    )
    return session.execute(query).scalar()


def receipts_by_run(session: Session, dag_ids: set[str], task_id: str, limit: int) -> dict[tuple[str, str], Path]:
    """(dag, run) -> the receipt that one task of it returned, of the newest runs."""
    query = (
        select(XComModel.dag_id, XComModel.run_id, XComModel.value)
        .where(XComModel.dag_id.in_(dag_ids), XComModel.task_id == task_id, XComModel.key == "return_value")
        .order_by(XComModel.dag_run_id.desc())
        .limit(limit)
    )
    return {
        (dag_id, run_id): path_of(paths[0])
        for dag_id, run_id, value in session.execute(query)
        if (paths := receipt_paths(value))
    }


def receipt_paths(value: object) -> list[str]:
    """The receipt paths that a task returned: one, or one for each kind of record; none if it is something else."""
    texts = value if isinstance(value, list) else [value]
    paths = [text for text in texts if isinstance(text, str) and text.endswith(f"/{RECEIPT_NAME}")]
    return paths if len(paths) == len(texts) else []


@dataclass(frozen=True)
class Dag:
    """Whether a DAG can be triggered."""

    is_there: bool
    is_paused: bool


def find_dag(session: Session, dag_id: str) -> Dag:
    """Look up a DAG; one whose file was removed does not exist, even if its runs do."""
    row = session.execute(select(DagModel.is_stale, DagModel.is_paused).where(DagModel.dag_id == dag_id)).first()
    return Dag(False, False) if row is None else Dag(not row[0], bool(row[1]))


def dags_readable_by(session: Session, user: BaseUser) -> set[str]:
    """The DAGs whose runs' results the user may read."""
    manager = get_auth_manager()
    ids = manager.get_authorized_dag_ids(user=user, session=session)
    return {dag_id for dag_id in ids if may(user, dag_id, "GET", DagAccessEntity.XCOM)}


def may(user: BaseUser, dag_id: str, method: Any, entity: DagAccessEntity) -> bool:
    """Whether Airflow permits the user this access to the DAG."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))
