"""Mends the graphs of older versions that Airflow keeps: Grid shows a DAG with all versions that its runs had.

Until November 2026 all tasks that list units were in one group `units`, before and after nearly every other node.
Airflow 3.3.1 and later cannot sort such a graph, and answer 500 for every DAG with a run of it. Each of these tasks
moves into the group of the stage that it lists for; ids, edges and runs stay as they are.

`make up` and the compose file do this when they start. Elsewhere, where Airflow's database is reached:
python -m corpusmill_airflow.stored_graphs
"""

from __future__ import annotations

from typing import Any

from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select, update

from corpusmill_airflow.dataset_dag import TAG

LISTS = "units"
Node = dict[str, Any]  # a group, as Airflow serialises it


def mend_stored_graphs() -> int:
    """Mend every stored version that needs it and had a run; returns how many. Repeating it changes nothing.

    Costs a query where no run is of the older form, however many versions there are.
    """
    mended = 0
    table = SerializedDagModel.metadata.tables[SerializedDagModel.__tablename__]
    with create_session() as session:
        of_runs = select(TaskInstance.dag_version_id).where(TaskInstance.task_id == f"{LISTS}.download")
        for key in session.scalars(select(table.c.id).where(table.c.dag_version_id.in_(of_runs))).all():
            data = session.get_one(SerializedDagModel, key).data
            if data and TAG in data["dag"].get("tags", ()) and _lists_to_their_stages(data["dag"]["task_group"]):
                # Airflow reads this column where the other one is empty, whatever `compress_serialized_dags` says.
                session.execute(update(table).where(table.c.id == key).values(data=data, data_compressed=None))
                mended += 1
    return mended


def _lists_to_their_stages(root: Node) -> bool:
    """Empty the group of lists into the groups of their stages; False if the graph is not of that form."""
    kind, lists = root["children"].get(LISTS, ("", {}))
    if kind != "taskgroup" or any(task_id.startswith(f"{LISTS}.list_") for task_id in lists["children"]):
        return False
    del root["children"][LISTS]
    groups = {"": root} | {name: node for name, (kind, node) in root["children"].items() if kind == "taskgroup"}
    for task_id, listing in lists["children"].items():
        stage = task_id.removeprefix(f"{LISTS}.")
        home = next((group for name, group in groups.items() if _task_of(stage, name) in group["children"]), root)
        home["children"][task_id] = listing
    return True


def _task_of(stage: str, group: str) -> str:
    return f"{group}.{stage}" if group else stage


if __name__ == "__main__":
    print(f"{mend_stored_graphs()} stored graphs mended")
