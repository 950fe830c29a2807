"""A run of a dataset in Airflow's database without an executor: a real build's receipts, handed on as its tasks would.

Lets the pages be tested at any moment of a run, and with 200 shards, without running 2,000 tasks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from corpusmill.builds.chain import Task, all_tasks, label_of, needed_tasks
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.parts import Part
from corpusmill.engine.running import RunnableBuild
from tests.system.corpus import configuration, lines_of, make_documents

DOCUMENTS = 6  # per shard of build_shards
HALF_A_MINUTE = timedelta(seconds=30)


def build_shards(root: Path, shards: int, **changes: object) -> Path:
    """A dataset of so many files, of which each is a shard; its plan's receipt. `changes` replace sections."""
    (root / "corpus").mkdir(parents=True)
    texts = make_documents(shards * DOCUMENTS)
    for number in range(shards):
        own = texts[number * DOCUMENTS : (number + 1) * DOCUMENTS]
        (root / "corpus" / f"{number:04d}.jsonl").write_bytes(lines_of(own, number * DOCUMENTS))
    sizes = sorted(path.stat().st_size for path in (root / "corpus").iterdir())
    source = {"paths": [str(root / "corpus")], "shard_bytes": sizes[0] + 1}
    config = configuration(root, name="pages", source=source, **changes)
    return build_dataset(check_config(config, where="test"), workers=2)


def seed_dags(*dag_ids: str, paused: bool = False) -> None:
    """DAGs as the DAG processor would have written them down."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        if session.get(DagBundleModel, "seeded") is None:
            session.add(DagBundleModel(name="seeded"))
            session.flush()
        for dag_id in dag_ids:
            file = f"{dag_id}.py"
            session.merge(
                DagModel(
                    dag_id=dag_id,
                    bundle_name="seeded",
                    fileloc=file,
                    relative_fileloc=file,
                    is_paused=paused,
                    is_stale=False,
                )
            )


def seed_run(
    plan_receipt: Path,
    run_id: str,
    *,
    dag_id: str = "build_dataset",
    until: str | None = None,
    state: str = "success",
    conf: dict[str, Any] | None = None,
    tries: dict[tuple[str, int], int] | None = None,
    reprocessed: Path | None = None,
    parts: int = 1,
) -> str:
    """A run whose tasks have finished up to the task `until`, of which the first part is at work, or all of them.

    With `state` "failed" that part has failed. `tries` of (task, part) are 1 where they are not said. With the file
    `reprocessed` its plan task is the one that wrote that file.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import insert

    from corpusmill_airflow.needed import APPROVAL_TASKS

    build = open_build(plan_receipt)
    now = datetime.now(UTC)
    began = now - timedelta(minutes=10)
    if reprocessed:
        began = datetime.fromtimestamp(reprocessed.stat().st_mtime, UTC) - timedelta(seconds=1)
    seen: list[dict[str, Any]] = [task_row("plan", -1, None, "success", began, began + timedelta(seconds=2))]
    given = [{"part": f"{number}/{parts}", "plan_receipt": str(plan_receipt)} for number in range(1, parts + 1)]
    values: dict[tuple[str, int], Any] = {("plan", -1): given}
    names = [task.name for task in all_tasks()]
    needed = {task.name for task in needed_tasks(build.config, parts)}
    last = names.index(until) if until else len(names)
    later = "upstream_failed" if state == "failed" else None
    for number, task in enumerate(all_tasks()):
        at = began + timedelta(seconds=2 + 20 * number)
        if number > last or task.name not in needed:
            seen.append(task_row(task.name, -1, None, later if number > last else "skipped", None, None))
            continue
        for part in (Part(place + 1, parts) for place in range(1 if task.round.alone else parts)):
            at_work = number == last and part.number == 1
            word = ("failed" if state == "failed" else "running") if at_work else "success"
            map_index = -1 if task.round.alone else part.number - 1
            label = label_of(_receipts(build, task, part)) if word == "success" else str(part)  # as Airflow has it
            label = None if map_index < 0 else label
            item = task_row(task.name, map_index, label, word, at, None if word == "running" else at + HALF_A_MINUTE)
            seen.append(item | {"try_number": (tries or {}).get((task.name, part.number), 1)})
            if word == "success":
                paths = _receipts(build, task, part)
                values[task.name, map_index] = paths[0] if task.name == "report" else paths
    seen += [task_row(name, -1, None, "skipped", None, None) for name in APPROVAL_TASKS]
    is_over = state in {"success", "failed"}
    seen.append(task_row("close", -1, None, "success" if is_over else None, None, None))
    with create_session() as session:
        run = DagRun(dag_id=dag_id, run_id=run_id, run_type=DagRunType.MANUAL, start_date=began, state=state)
        run.run_after = run.queued_at = began
        run.conf = conf or {"name": build.config.name}
        run.end_date = now if is_over else None
        session.add(run)
        session.flush()
        common = {"dag_id": dag_id, "run_id": run_id}
        session.execute(insert(TaskInstance), [item | common for item in seen])
        session.execute(
            insert(XComModel),
            [
                {"dag_run_id": run.id, "task_id": task_id, "map_index": place, "key": "return_value", "value": value}
                | common
                for (task_id, place), value in values.items()
            ],
        )
    return run_id


def _receipts(build: RunnableBuild, task: Task, part: Part) -> list[str]:
    steps = [(stage, unit) for stage in task.stages(build.config, part.of) for unit in task.units(build, stage, part)]
    return [str(build.step_folder(stage, unit) / "receipt.json") for stage, unit in steps]


def task_row(
    task_id: str,
    map_index: int,
    name: str | None,
    state: str | None,
    began: datetime | None,
    ended: datetime | None,
) -> dict[str, Any]:
    return {
        "id": uuid4(),
        "task_id": task_id,
        "map_index": map_index,
        "_rendered_map_index": name,
        "state": state,
        "try_number": 1,
        "pool": "default_pool",
        "pool_slots": 1,
        "start_date": began,
        "end_date": ended,
    }


def execute(query: Any, *rows: dict[str, Any]) -> Any:
    """Put a query to Airflow's database; the first value of its answer, or how many rows it changed."""
    from airflow.utils.session import create_session

    with create_session() as session:
        done: Any = session.execute(query, list(rows)) if rows else session.execute(query)
        return done.rowcount if hasattr(done, "rowcount") else done.scalar()


def set_handed_on(run: str, values: dict[str, Any]) -> None:
    """As if tasks of a run had returned these values."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import update

    for task_id, value in values.items():
        of_task = (XComModel.run_id == run, XComModel.task_id == task_id)
        execute(update(XComModel).where(*of_task).values(value=value))


def set_state_of_plan(run: str, state: str, why: str) -> None:
    """As if the plan's task had come no further, and had said why."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import delete

    execute(delete(XComModel).where(XComModel.run_id == run, XComModel.task_id == "plan"))
    set_state_of_task(run, "plan", -1, state, why)


def set_state_of_task(
    run: str, task_id: str, map_index: int, state: str | None, why: str = "", dag_id: str = "build_dataset"
) -> None:
    """As if a task of a run had come to this state."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import update

    of_task = (TaskInstance.run_id == run, TaskInstance.task_id == task_id, TaskInstance.map_index == map_index)
    assert execute(update(TaskInstance).where(*of_task).values(state=state)) == 1
    if why:
        add_xcom(run, task_id, map_index, "why", why, dag_id)


def set_state_of_run(run: str, state: str) -> None:
    """As if a run had come to this state."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import update

    execute(update(DagRun).where(DagRun.run_id == run).values(state=state))


def add_xcom(run: str, task_id: str, map_index: int, key: str, value: Any, dag_id: str = "build_dataset") -> None:
    """As if a task of a run had handed this on."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from sqlalchemy import insert, select

    number = execute(select(DagRun.id).where(DagRun.run_id == run))
    place = {"dag_run_id": number, "dag_id": dag_id, "run_id": run, "task_id": task_id, "map_index": map_index}
    execute(insert(XComModel), place | {"key": key, "value": value})


def add_task(run: str, row: dict[str, Any], dag_id: str = "build_dataset") -> None:
    """Another task instance of a run."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import insert

    execute(insert(TaskInstance), row | {"dag_id": dag_id, "run_id": run})


def remove_tasks(run: str, *task_ids: str) -> None:
    """As if the run's DAG had no such tasks."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import delete

    execute(delete(TaskInstance).where(TaskInstance.run_id == run, TaskInstance.task_id.in_(task_ids)))
