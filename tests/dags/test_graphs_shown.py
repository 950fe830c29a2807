"""Grid and Graph of every DAG, as Airflow's own pages ask for them; stored versions of the DAGs' older form, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dags.conftest import PASSWORDS, forget_dags
from tests.dags.older_graphs import LISTS, older_dag

BUNDLE = "graphs"
GRID, STRUCTURE = "/ui/grid/structure/{}", "/ui/structure/structure_data?dag_id={}"
FORMS = [GRID, STRUCTURE, STRUCTURE + "&external_dependencies=true", STRUCTURE + "&depth=2&root=plan"]


@pytest.fixture
def shown(client: Any, dagbag: Any) -> Iterator[Any]:
    """A function that gets an address of Airflow's own app as its admin; all DAGs are stored as they are parsed."""
    from fastapi.testclient import TestClient

    token = client.post("/auth/token", json={"username": "admin", "password": PASSWORDS["admin"]}).json()
    store(dagbag)
    headers = {"Authorization": f"Bearer {token['access_token']}", "Accept": "application/json"}
    yield TestClient(client.app, base_url="http://127.0.0.1", headers=headers, raise_server_exceptions=False).get
    forget_dags()


def store(dagbag: Any) -> None:
    """Write DAGs down as the DAG processor does."""
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        if session.get(DagBundleModel, BUNDLE) is None:
            session.add(DagBundleModel(name=BUNDLE))
    sync_bag_to_db(dagbag, BUNDLE, None)


def names_of(nodes: list[dict[str, Any]], *, groups: bool = False) -> set[str]:
    """The tasks of an answer; with `groups`, these, too."""
    inside = [names_of(node.get("children") or [], groups=groups) for node in nodes]
    return {node["id"] for node in nodes if groups or not node.get("children")}.union(*inside)


def add_run(dag_id: str, run_id: str, tasks: list[str]) -> None:
    """A finished run of the newest stored version."""
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType
    from sqlalchemy import insert

    from tests.dags.seeded import task_row

    version, now = DagVersion.get_latest_version(dag_id), datetime.now(UTC)
    assert version is not None
    with create_session() as session:
        run = DagRun(dag_id=dag_id, run_id=run_id, run_type=DagRunType.MANUAL, start_date=now, state="success")
        run.run_after = run.queued_at = now
        run.created_dag_version_id = version.id
        session.add(run)
        session.flush()
        of_run = {"dag_id": dag_id, "run_id": run_id, "dag_version_id": version.id}
        session.execute(
            insert(TaskInstance), [task_row(task, -1, None, "success", now, now) | of_run for task in tasks]
        )


def store_older(dag_id: str, folder: Path, *, one_group: bool, compressed: bool = False) -> tuple[int, list[str]]:
    """Store a DAG as an older Corpusmill made it; the number of this version, and its tasks."""
    import zlib

    from airflow.dag_processing.dagbag import BundleDagBag
    from airflow.models.dag_version import DagVersion
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    bag = BundleDagBag(str(folder), bundle_path=folder)
    bag.bag_dag(older_dag(dag_id, one_group=one_group))
    store(bag)
    version = DagVersion.get_latest_version(dag_id)
    assert version is not None
    if compressed:
        table = SerializedDagModel.metadata.tables["serialized_dag"]
        with create_session() as session:
            stored = session.query(SerializedDagModel).filter_by(dag_version_id=version.id).one()
            packed = zlib.compress(json.dumps(stored.data).encode())
            values = {"data": None, "data_compressed": packed}
            session.execute(update(table).where(table.c.id == stored.id).values(**values))
    return version.version_number, list(bag.dags[dag_id].task_ids)


@pytest.mark.parametrize("form", FORMS)
def test_every_dag_s_grid_and_graph_are_answered_with_all_its_tasks(shown: Any, dagbag: Any, form: str) -> None:
    for dag_id, dag in dagbag.dags.items():
        if "root=plan" in form and "plan" not in dag.task_ids:
            continue
        answer = shown(form.format(dag_id))
        assert answer.status_code == 200, f"{dag_id}: {answer.text[:200]}"
        nodes = answer.json()["nodes"] if "structure_data" in form else answer.json()
        wanted = set(dag.task_ids) if "root=plan" not in form else {"plan"}
        assert wanted <= names_of(nodes), dag_id


def test_every_group_of_every_dag_is_sorted_with_tasks_after_those_before_them(dagbag: Any) -> None:
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG

    for dag in dagbag.dags.values():
        stored = DagSerialization.from_dict(LazyDeserializedDAG.from_dag(dag).data)
        order = [task.task_id for task in in_order(stored.task_group)]
        assert sorted(order) == sorted(dag.task_ids)
        for task in dag.tasks:
            for before in task.upstream_task_ids:
                assert order.index(before) < order.index(task.task_id), (before, task.task_id)


def in_order(group: Any) -> Iterator[Any]:
    """The tasks of a stored group, as Grid lists them from top to bottom."""
    for node in group.topological_sort():
        if hasattr(node, "children"):
            yield from in_order(node)
        else:
            yield node


@pytest.mark.parametrize(("one_group", "compressed"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("dag_id", ["dataset__demo", "build_dataset"])
def test_grid_of_a_dag_with_runs_of_an_older_form_is_answered_once_it_is_mended(
    shown: Any, dagbag: Any, tmp_path: Path, dag_id: str, one_group: bool, compressed: bool
) -> None:
    from corpusmill_airflow.stored_graphs import mend_stored_graphs

    number, old = store_older(dag_id, tmp_path, one_group=one_group, compressed=compressed)
    assert sum(task.startswith(f"{LISTS}.") for task in old) >= 8
    run_id = f"before-{one_group}-{compressed}"
    add_run(dag_id, run_id, old)
    store(dagbag)  # a new version, because that one has a run
    assert shown(GRID.format(dag_id)).status_code == (500 if one_group else 200)
    assert mend_stored_graphs() == one_group
    answer = shown(GRID.format(dag_id))
    assert answer.status_code == 200, answer.text[:200]
    # `index` was a task, and is a group where it has rounds: one row, which shows both.
    assert {*old, *dagbag.dags[dag_id].task_ids} <= names_of(answer.json(), groups=True)
    older = shown(STRUCTURE.format(dag_id) + f"&version_number={number}")
    assert older.status_code == 200, older.text[:200]
    assert names_of(older.json()["nodes"]) >= set(old)
    summaries = shown(f"/ui/grid/ti_summaries/{dag_id}?run_ids={run_id}")
    (of_run,) = [json.loads(line) for line in summaries.text.splitlines() if line.strip()]
    assert set(old) <= {item["task_id"] for item in of_run["task_instances"]}
    assert mend_stored_graphs() == 0


def test_mending_leaves_dags_of_other_people_alone(shown: Any, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session

    from corpusmill_airflow.stored_graphs import mend_stored_graphs

    (tmp_path / "theirs.py").write_text(
        "from airflow.sdk import DAG, TaskGroup, task\n"
        "with DAG('theirs', schedule=None):\n"
        "    with TaskGroup('units'):\n"
        "        task(lambda: None, task_id='download')()\n"
    )
    store(BundleDagBag(str(tmp_path), bundle_path=tmp_path))
    add_run("theirs", "theirs", [f"{LISTS}.download"])

    def stored() -> Any:
        with create_session() as session:
            return session.query(SerializedDagModel).filter_by(dag_id="theirs").one().data

    before = stored()
    assert mend_stored_graphs() == 0
    assert stored() == before
    assert "units" in before["dag"]["task_group"]["children"]
