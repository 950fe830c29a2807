"""DAGs as Airflow has stored them of older versions of Corpusmill, which had a task for each stage."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

# A task a line, mapped ones with a star, and the tasks before it: November 2026, when tasks listed units. Half of them.
STAGES = """
plan:
estimate: plan
units.list_download: estimate
download*: units.list_download
units.list_reference: estimate
reference*: units.list_reference
index*: download units.list_download
find_ranges.reference_index*: reference units.list_reference
list_quarantine: index
quarantine*: index list_quarantine
units.list_anchor: estimate
find_ranges.anchor*: quarantine units.list_anchor
find_ranges.list_match: find_ranges.anchor find_ranges.reference_index
find_ranges.match*: find_ranges.anchor find_ranges.list_match
units.list_union: estimate
find_ranges.union*: find_ranges.match units.list_union
approve_removal: find_ranges.union
units.list_writeback: estimate
writeback*: approve_removal units.list_writeback
tokenize*: approve_removal units.list_download
units.list_scatter: estimate
shuffle.scatter*: tokenize units.list_scatter
shuffle.list_gather: tokenize
shuffle.gather*: shuffle.list_gather shuffle.scatter
exports.list_export: shuffle.scatter
exports.export*: exports.list_export shuffle.gather
units.list_manifest: estimate
exports.manifest*: exports.export units.list_manifest writeback
units.list_upload: estimate
upload*: exports.manifest units.list_upload
report: upload
close: report
"""
LISTS = "units"  # the group of lists
GROUPS = ("find_ranges", "shuffle", "exports")


def older_dag(dag_id: str, *, one_group: bool) -> Any:
    """The DAG `dag_id` of that month; `one_group`: as it was before, with every list in the group `units`, before and
    behind nearly every other node.
    """
    from airflow.providers.standard.operators.python import PythonOperator
    from airflow.sdk import DAG, TaskGroup

    made: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    with DAG(dag_id, schedule=None, tags=["corpusmill"]) as dag:
        for line in STAGES.split("\n")[1:-1]:
            name, _, before = line.partition(":")
            group, _, task_id = older_id(name.rstrip("*"), one_group=one_group).rpartition(".")
            if group and group not in groups:
                groups[group] = TaskGroup(group)
            with groups[group] if group else nullcontext():
                if name.endswith("*"):
                    partial = PythonOperator.partial(task_id=task_id, python_callable=print)
                    task: Any = partial.expand(op_args=[[1], [2]])
                else:
                    task = PythonOperator(task_id=task_id, python_callable=print)
            made[name.rstrip("*")] = task
            [made[other] for other in before.split()] >> task
    return dag


def older_id(task_id: str, *, one_group: bool) -> str:
    """`units.list_download` and `find_ranges.list_match` were `units.download` and `units.match` before."""
    group, is_list, stage = task_id.rpartition("list_")
    return f"{LISTS}.{stage}" if one_group and is_list and group.rstrip(".") in {"", LISTS, *GROUPS} else task_id
