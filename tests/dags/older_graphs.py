"""DAGs as Airflow has stored them of older versions of Corpusmill, which had a task for each stage."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

# A task a line, mapped ones with a star, and the tasks before it: November 2026, when tasks listed units.
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
units.list_decisions: estimate
decisions*: quarantine units.list_decisions
units.list_join: estimate
join*: decisions units.list_join
units.list_decided: estimate
decided*: join units.list_decided
units.list_copies: estimate
copies*: join units.list_copies
list_filter: copies join
filter*: copies decided list_filter
units.list_benchmarks: estimate
benchmarks*: decided filter units.list_benchmarks
units.list_decontaminate: estimate
decontaminate*: benchmarks units.list_decontaminate
approve_decontamination: decontaminate
units.list_anchor: estimate
find_ranges.anchor*: approve_decontamination units.list_anchor
units.list_suffix_array: estimate
find_ranges.suffix_array*: approve_decontamination units.list_suffix_array
find_ranges.list_shared: find_ranges.anchor find_ranges.reference_index
find_ranges.shared*: find_ranges.anchor find_ranges.list_shared find_ranges.reference_index
units.list_reference_context: estimate
find_ranges.reference_context*: find_ranges.shared units.list_reference_context
find_ranges.context*: find_ranges.shared units.list_anchor
find_ranges.settle*: find_ranges.context find_ranges.list_shared find_ranges.reference_context
find_ranges.reference_border*: find_ranges.settle units.list_reference_context
find_ranges.border*: find_ranges.settle units.list_anchor
find_ranges.list_match: find_ranges.anchor find_ranges.reference_index find_ranges.suffix_array
find_ranges.match*: find_ranges.border find_ranges.list_match find_ranges.reference_border find_ranges.suffix_array
units.list_union: estimate
find_ranges.union*: find_ranges.match units.list_union
approve_removal: find_ranges.union
units.list_refine: estimate
refine*: approve_removal units.list_refine
units.list_lost: estimate
lost*: refine units.list_lost
units.list_writeback: estimate
writeback*: refine units.list_writeback
tokenize*: refine units.list_download
units.list_audit: estimate
audit*: tokenize units.list_audit
units.list_budget: estimate
budget*: audit units.list_budget
units.list_scatter: estimate
shuffle.scatter*: budget units.list_scatter
shuffle.list_gather: tokenize
shuffle.gather*: shuffle.list_gather shuffle.scatter
exports.list_export: shuffle.scatter
exports.export*: exports.list_export shuffle.gather
units.list_manifest: estimate
exports.manifest*: exports.export lost units.list_manifest writeback
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
