"""A run of a dataset in Airflow's database without an executor: a real build's receipts, handed on as its tasks would.

Lets the pages be tested at any moment of a run, and with 200 shards, without running 2,000 tasks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.stages.graph import GRAPH, open_build
from tests.system.corpus import configuration, lines_of, make_documents

STAGES = list(GRAPH.names)
DOCUMENTS = 6  # per shard of build_shards


def task_of(stage: str) -> str:
    """The id of the task that runs a stage."""
    group = GRAPH[stage].group
    return f"{group}.{stage}" if group else stage


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
    tries: dict[tuple[str, str], int] | None = None,
    reprocessed: Path | None = None,
    most_tasks: int = 200,
) -> str:
    """A run whose tasks have finished up to the stage `until`, of which the first unit is at work, or all of them.

    With `state` "failed" that unit has failed. `tries` of (stage, unit) are 1 where they are not said. With the file
    `reprocessed` its plan task is the one that wrote that file.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import insert

    build = open_build(plan_receipt)
    now = datetime.now(UTC)
    began = now - timedelta(minutes=10)
    if reprocessed:
        began = datetime.fromtimestamp(reprocessed.stat().st_mtime, UTC) - timedelta(seconds=1)
    seen: list[dict[str, Any]] = [task_row("plan", -1, None, "success", began, began + timedelta(seconds=2))]
    values: dict[tuple[str, int], Any] = {("plan", -1): str(plan_receipt)}
    last = STAGES.index(until) if until else len(STAGES)
    for number, stage in enumerate(STAGES[: last + 1]):
        task_id = task_of(stage)
        for place, unit in enumerate(build.tasks(stage, most_tasks)):
            at_work = number == last and place == 0
            word = ("failed" if state == "failed" else "running") if at_work else "success"
            map_index = -1 if stage == "report" else place
            ended = None if word == "running" else now - timedelta(minutes=1)
            item = task_row(task_id, map_index, unit, word, began + timedelta(seconds=2 + 20 * number), ended)
            seen.append(item | {"try_number": (tries or {}).get((stage, unit), 1)})
            if word == "success":
                paths = _receipts(build, stage, unit)
                values[task_id, map_index] = paths[0] if stage == "report" else paths
    with create_session() as session:
        run = DagRun(dag_id=dag_id, run_id=run_id, run_type=DagRunType.MANUAL, start_date=began, state=state)
        run.run_after = run.queued_at = began
        run.conf = conf or {"name": build.config.name}
        run.end_date = now if state in {"success", "failed"} else None
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


def _receipts(build: Build, stage: str, task: str) -> list[str]:
    return [str(build.folder(stage, unit) / "receipt.json") for unit in build.units_of_task(stage, task)]


def task_row(
    task_id: str, map_index: int, name: str | None, state: str, began: datetime, ended: datetime | None
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


def set_handed_on(run: str, values: dict[str, Any]) -> None:
    """As if tasks of a run had returned these values."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        for task_id, value in values.items():
            query = update(XComModel).where(XComModel.run_id == run, XComModel.task_id == task_id)
            session.execute(query.values(value=value))


def set_state_of_plan(run: str, state: str, why: str) -> None:
    """As if the plan's task had come no further, and had said why."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, insert, select, update

    with create_session() as session:
        session.execute(delete(XComModel).where(XComModel.run_id == run, XComModel.task_id == "plan"))
        query = update(TaskInstance).where(TaskInstance.run_id == run, TaskInstance.task_id == "plan")
        session.execute(query.values(state=state))
        number = session.execute(select(DagRun.id).where(DagRun.run_id == run)).scalar_one()
        place = {"dag_run_id": number, "dag_id": "build_dataset", "run_id": run, "task_id": "plan", "map_index": -1}
        session.execute(insert(XComModel), [place | {"key": "why", "value": why}])


def set_state_of_task(run: str, task_id: str, map_index: int, state: str, why: str = "") -> None:
    """As if a task of a finished run had been cleared and had come to this state."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import insert, select, update

    with create_session() as session:
        query = update(TaskInstance).where(TaskInstance.run_id == run, TaskInstance.task_id == task_id)
        session.execute(query.where(TaskInstance.map_index == map_index).values(state=state))
        number = session.execute(select(DagRun.id).where(DagRun.run_id == run)).scalar_one()
        place = {"dag_run_id": number, "dag_id": "build_dataset", "run_id": run, "task_id": task_id}
        if why:
            session.execute(insert(XComModel), [place | {"map_index": map_index, "key": "why", "value": why}])
