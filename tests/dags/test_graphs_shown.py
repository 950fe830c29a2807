"""Grid and Graph of every DAG, as Airflow's own pages ask for them; stored versions of the DAGs' older form, too."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from corpusmill.stages.graph import GRAPH
from tests.dags.conftest import PASSWORDS, forget_dags

BUNDLE = "graphs"
OLD = "units"  # the group of all tasks that list units, before November 2026
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


def names_of(nodes: list[dict[str, Any]]) -> set[str]:
    """The tasks of an answer."""
    inside = [node.get("children") or [] for node in nodes]
    return {node["id"] for node in nodes if not node.get("children")}.union(*map(names_of, inside))


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


def in_the_old_form(data: dict[str, Any]) -> dict[str, Any]:
    """A serialised DAG whose lists are all in one group, `units`: `list_download` becomes `units.download`."""
    text = copy.deepcopy(data)
    root = text["dag"]["task_group"]
    ids: dict[str, str] = {}
    for group in (root, *(node for kind, node in root["children"].values() if kind == "taskgroup")):
        for name in [name for name in group["children"] if "list_" in name]:
            ids[name] = f"{OLD}.{name.partition('list_')[2]}"
            del group["children"][name]
    of_list = {**copy.deepcopy(root["children"]["shuffle"][1]), "_group_id": OLD}
    root["children"][OLD] = ["taskgroup", of_list | {"children": {new: ["operator", new] for new in ids.values()}}]

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return ids.get(value, value) if isinstance(value, str) else value

    return {**text, "dag": {**renamed({**text["dag"], "task_group": None}), "task_group": root}}


def store_in_the_old_form(dag_id: str, compressed: bool) -> tuple[int, list[str]]:
    """Change the newest stored version to what an older Corpusmill wrote; its number and its tasks."""
    import json
    import zlib

    from airflow.models.dag_version import DagVersion
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    table = SerializedDagModel.metadata.tables["serialized_dag"]
    version = DagVersion.get_latest_version(dag_id)
    assert version is not None
    with create_session() as session:
        stored = session.query(SerializedDagModel).filter_by(dag_version_id=version.id).one()
        old = in_the_old_form(stored.data or {})
        packed = zlib.compress(json.dumps(old).encode())
        values = {"data": None, "data_compressed": packed} if compressed else {"data": old, "data_compressed": None}
        session.execute(update(table).where(table.c.id == stored.id).values(dag_hash="old", **values))
    return version.version_number, [task["__var"]["task_id"] for task in old["dag"]["tasks"]]


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


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dag_id", ["dataset__demo", "build_dataset"])
def test_grid_of_a_dag_with_runs_of_its_older_form_is_answered_once_it_is_mended(
    shown: Any, dagbag: Any, dag_id: str, compressed: bool
) -> None:
    from corpusmill_airflow.stored_graphs import mend_stored_graphs

    number, old = store_in_the_old_form(dag_id, compressed)
    assert len([task for task in old if task.startswith(f"{OLD}.")]) == sum(not stage.units_of for stage in GRAPH) - 1
    add_run(dag_id, f"before-{compressed}", old)
    store(dagbag)  # a new version, because that one has a run
    assert shown(GRID.format(dag_id)).status_code == 500
    assert mend_stored_graphs() == 1
    answer = shown(GRID.format(dag_id))
    assert answer.status_code == 200, answer.text[:200]
    assert {*old, *dagbag.dags[dag_id].task_ids} <= names_of(answer.json())
    older = shown(STRUCTURE.format(dag_id) + f"&version_number={number}")
    assert older.status_code == 200, older.text[:200]
    assert names_of(older.json()["nodes"]) >= set(old)
    assert shown(f"/ui/grid/ti_summaries/{dag_id}?run_ids=before-{compressed}").status_code == 200
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
    add_run("theirs", "theirs", [f"{OLD}.download"])

    def stored() -> Any:
        with create_session() as session:
            return session.query(SerializedDagModel).filter_by(dag_id="theirs").one().data

    before = stored()
    assert mend_stored_graphs() == 0
    assert stored() == before
    assert "units" in before["dag"]["task_group"]["children"]
