"""The stages as tasks: what every DAG that builds a dataset has in common.

A task body opens the build that the plan describes, runs its steps and returns the paths of their receipts; everything
else (what a step does, when it is reused, how counts balance) lives in `pipeline.stages` and is the same without
Airflow. Task bodies import it when they run, so that parsing stays cheap.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule, TaskGroup, TriggerRule, task

if TYPE_CHECKING:
    from airflow.sdk import XComArg

# Read from XCom where it is used: passed as an argument it would draw an edge from the plan to every task.
PLAN_RECEIPT = "{{ ti.xcom_pull(task_ids='plan') }}"

RETRYING = {
    "retries": 3,
    "retry_delay": timedelta(seconds=5),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
    # Corrupt data, a bad configuration, accounts that do not balance: trying again cannot help.
    "retry_policy": ExceptionRetryPolicy(
        rules=[RetryRule("pipeline.errors.PermanentError", RetryAction.FAIL, reason="trying again cannot help")],
        default=RetryAction.RETRY,
    ),
    # A stage that is switched off has no units: Airflow skips its task, and what follows must run all the same.
    "trigger_rule": TriggerRule.NONE_FAILED,
}


@task
def list_units(stage: str, plan_receipt: str) -> list[str]:
    """The names of the units that a stage's tasks are mapped over."""
    from pipeline.stages import open_build

    return open_build(plan_receipt).tasks(stage)


@task(map_index_template="{{ task.op_kwargs['unit'] }}")
def run_steps(stage: str, unit: str, plan_receipt: str) -> list[str]:
    """Run the step of one unit (of both kinds of record in the shuffle), or reuse it; returns the receipts' paths."""
    from pipeline.stages import open_build

    return [str(receipt) for receipt in open_build(plan_receipt).run_task(stage, unit)]


@task
def report(plan_receipt: str) -> str:
    """Say what happened; returns the path of the report's receipt, which the report tab looks for."""
    from pipeline.stages import open_build

    return str(open_build(plan_receipt).run("report", "report"))


def units_of(task_id: str, stage: str) -> XComArg:
    """A task that lists the units of a stage."""
    return list_units.override(task_id=task_id)(stage=stage, plan_receipt=PLAN_RECEIPT)


def mapped(task_id: str, stage: str, units: XComArg) -> XComArg:
    """A task per unit of a stage."""
    return run_steps.override(task_id=task_id).partial(stage=stage, plan_receipt=PLAN_RECEIPT).expand(unit=units)


def chain_stages(planned: XComArg) -> XComArg:
    """Every stage after a task named `plan` that returns a plan's receipt; returns the report's task."""
    with TaskGroup("units", tooltip="Lists that depend on the plan alone; they run side by side") as units:
        stages = ("download", "anchor", "suffix_array", "union", "writeback", "audit", "scatter", "manifest", "upload")
        listed = {stage: units_of(stage, stage) for stage in stages}

    download = mapped("download", "download", listed["download"])
    index = mapped("index", "index", listed["download"])

    with TaskGroup("find_ranges", tooltip="Which bytes repeat, over the whole dataset") as find_ranges:
        anchor = mapped("anchor", "anchor", listed["anchor"])
        suffix_array = mapped("suffix_array", "suffix_array", listed["suffix_array"])  # instead, if it is asked for
        partitions = units_of("partitions", "match")  # known once the anchors are counted
        match = mapped("match", "match", partitions)
        union = mapped("union", "union", listed["union"])
        [anchor, suffix_array] >> partitions >> match >> union

    writeback = mapped("writeback", "writeback", listed["writeback"])
    tokenize = mapped("tokenize", "tokenize", listed["download"])

    audit = mapped("audit", "audit", listed["audit"])

    shuffle_scatter = mapped("shuffle_scatter", "scatter", listed["scatter"])
    cells = units_of("cells", "gather")  # known once the tokens are counted
    shuffle_gather = mapped("shuffle_gather", "gather", cells)

    parts = units_of("parts", "export")  # known once the records are counted
    with TaskGroup("export", tooltip="The training formats: their parts, then one manifest each") as export:
        manifest = mapped("manifest", "manifest", listed["manifest"])
        mapped("parts", "export", parts) >> manifest

    upload = mapped("upload", "upload", listed["upload"])
    reported = report(plan_receipt=PLAN_RECEIPT)

    planned >> units
    download >> index >> find_ranges >> [writeback, tokenize]
    tokenize >> [audit, cells]
    audit >> shuffle_scatter  # ids that differ from the reference library's go no further
    shuffle_scatter >> [shuffle_gather, parts]
    shuffle_gather >> export >> upload >> reported
    writeback >> manifest  # the manifest lists the deduplicated documents, too
    return reported
