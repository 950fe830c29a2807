"""Reads Airflow's records of runs: their state, their tasks and XComs, and a user's permissions."""

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.errors import ParseImportError
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from corpusmill.builds.chain import STEPS, all_tasks
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.storage.mirrored import path_of

PLAN, REPORT = "plan", "report"
REPROCESS = "reprocess_shard"
BUILDING = ("build_dataset", REPROCESS, "forget_documents")  # DAGs that build any dataset
COMPARE = "compare_versions"
WHY, UNCHANGED, ESTIMATE = "why", "unchanged", "estimate"  # XComs (running.py)
OF_A_DATASET = "dataset__"  # DAGs that a dataset's configuration file makes
NAMES = {task.name: number for number, task in enumerate(all_tasks())}
ORDER = list(STEPS)
PART = re.compile(r"(\d+)/(\d+)")  # a task's label before it knows what it runs
DEEP = 5  # parts of the path of a receipt: root, dataset, stage, step, receipt
GONE = "removed"  # of parts that are no more, since the run was cleared and planned again


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
    """One task instance. `label`: what it ran, such as its shards; "" before it has ended."""

    task_id: str
    map_index: int
    label: str
    state: str
    tries: int
    started: datetime | None
    ended: datetime | None
    pool: str = ""

    @property
    def step(self) -> str:
        """The step that it is of; "" for another task, such as `plan`, and for one of an older version."""
        name = self.task_id.partition(".")[0]
        return name if self.task_id in NAMES or self.task_id in STEPS else ""

    @property
    def key(self) -> tuple[str, int]:
        """What Airflow's records of it are found by."""
        return self.task_id, self.map_index

    @property
    def name(self) -> str:
        """For people: its id, and what it ran, or if that is not known, which part it is."""
        if part := PART.fullmatch(self.label):
            return self.task_id if part[2] == "1" else f"{self.task_id}, part {part[1]} of {part[2]}"
        if self.label or self.map_index < 0:
            return f"{self.task_id} {self.label}".rstrip()
        return f"{self.task_id}, part {self.map_index + 1}"


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
    """The run's task instances: the plan's, those of the steps in order, the others. A mapped task that has no
    instances yet has the map index -1.
    """
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
    query = select(*columns).where(*of_run(run))
    tasks = []
    for task_id, map_index, name, state, tries, started, ended, pool in session.execute(query):
        if state != GONE:
            # Airflow names a task by its index until it has ended.
            label = "" if map_index < 0 or name in {None, str(map_index)} else name
            tasks.append(Task(task_id, map_index, label, str(state or "waiting"), tries, started, ended, pool))
    return sorted(tasks, key=_place)


def of_run(run: Run) -> tuple[Any, Any]:
    """A query's conditions for the run's task instances."""
    return TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id


def _place(task: Task) -> tuple[int, int, str, int]:
    if task.task_id == PLAN:
        return -1, 0, "", task.map_index
    number = ORDER.index(task.step) if task.step else len(ORDER)
    return number, NAMES.get(task.task_id, 0), task.task_id, task.map_index


def _xcoms(session: Session, run: Run, key: str, *of_task: Any) -> list[Any]:
    """(task, map index, value) of what a run's tasks handed on under a key; `of_task`: further conditions."""
    query = select(XComModel.task_id, XComModel.map_index, XComModel.value)
    of_run = (XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == key)
    return list(session.execute(query.where(*of_run, *of_task)))


def handed_on(session: Session, run: Run) -> dict[tuple[str, int], list[str]]:
    """(task, map index) -> the receipt paths that it returned; str, not Path, because a run has thousands of them. None
    are those of a part that had nothing to do.
    """
    receipts = {}
    for task_id, map_index, value in _xcoms(session, run, "return_value"):
        paths = receipt_paths(value)
        if paths or value == []:
            receipts[task_id, map_index] = [str(path_of(path)) for path in paths]
    return receipts


def parts_of(session: Session, run: Run) -> int:
    """How many parts the steps of a run have; 0 before it has a plan, and if an older version planned it."""
    values = [value for *_, value in _xcoms(session, run, "return_value", XComModel.task_id == PLAN)]
    return len(values[0]) if values and isinstance(values[0], list) else 0


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


def reasons(session: Session, run: Run) -> dict[tuple[str, int], str]:
    """(task, map index) -> why it stopped, in words."""
    return {(task_id, map_index): str(value) for task_id, map_index, value in _xcoms(session, run, WHY)}


def unchanged(session: Session, run: Run) -> Path | None:
    """The receipt of the last report, if nothing had changed since; None for any other run."""
    paths = receipt_paths(_xcom(session, run, UNCHANGED))
    return path_of(paths[0]) if paths else None


def _xcom(session: Session, run: Run, key: str) -> Any:
    return next((value for *_, value in _xcoms(session, run, key)), None)


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
    """The receipt paths that a task returned: one, those of its part, or that of the plan; none if it is another."""
    texts = value if isinstance(value, list) else [value]
    if texts and isinstance(texts[0], dict):  # what each part is given
        texts = [texts[0].get("plan_receipt")]
    paths = [text for text in texts if isinstance(text, str) and _is_receipt(text)]
    return paths if len(paths) == len(texts) else []


def _is_receipt(address: str) -> bool:
    """Whether it may be the address of a receipt: people can edit XComs."""
    if "\0" in address or not address.endswith(f"/{RECEIPT_NAME}"):
        return False
    try:
        path = path_of(address)
    except ValueError:  # a bucket's, malformed
        return False
    return path.is_absolute() and len(path.parts) >= DEEP


def missing_pools(session: Session, *of_tasks: Any) -> list[str]:
    """The pools that Airflow does not have, of tasks that are ready and so will never start (`of_tasks`: of which
    tasks), and the memory pool, where this server knows its name. Airflow says it in the scheduler's log alone, and DAG
    files cannot ask for pools.
    """
    ready = select(TaskInstance.pool).where(TaskInstance.state == "scheduled", *of_tasks).distinct()
    named = {*session.scalars(ready), *filter(None, [os.environ.get("CORPUSMILL_MEMORY_POOL")])}
    return sorted(named - set(session.scalars(select(Pool.pool))))


@dataclass(frozen=True)
class Dag:
    """Whether a DAG can be triggered."""

    is_there: bool
    is_paused: bool


def find_dag(session: Session, dag_id: str) -> Dag:
    """Look up a DAG; one whose file was removed does not exist, even if its runs do."""
    row = session.execute(select(DagModel.is_stale, DagModel.is_paused).where(DagModel.dag_id == dag_id)).first()
    return Dag(False, False) if row is None else Dag(not row[0], bool(row[1]))


def dag_problem(session: Session, dataset: str) -> str:
    """Return "error" if one of Airflow's import errors names the dataset's file, "removed", if it has no DAG, or ""."""
    name = f"/{dataset}.yaml"
    texts = session.scalars(
        select(ParseImportError.stacktrace).where(ParseImportError.stacktrace.contains(name, autoescape=True))
    )
    named = re.compile(rf"^\s*(?:file|where) .*{re.escape(name)}(?:,|$)", re.MULTILINE)
    if any(named.search(text) for text in texts):
        return "error"
    return "" if find_dag(session, OF_A_DATASET + dataset).is_there else "removed"


def dags_readable_by(session: Session, user: BaseUser) -> set[str]:
    """The DAGs whose runs' results the user may read."""
    manager = get_auth_manager()
    ids = manager.get_authorized_dag_ids(user=user, session=session)
    return {dag_id for dag_id in ids if may(user, dag_id, "GET", DagAccessEntity.XCOM)}


def builds(dag_id: str) -> bool:
    """Whether the DAG is of a build: an Airflow has other programs', too."""
    return dag_id.startswith(OF_A_DATASET) or dag_id in BUILDING


def may(user: BaseUser, dag_id: str, method: Any, entity: DagAccessEntity) -> bool:
    """Whether Airflow permits the user this access to the DAG."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user))
