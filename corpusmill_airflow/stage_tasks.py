"""The stages as tasks, common to every DAG that builds a dataset.

A task body opens the build that the plan describes, runs its steps and returns the paths of their receipts; everything
else (what a step does, when it is reused, how counts balance) is in `corpusmill.stages` and the same without Airflow.
Task bodies import it when they run, so that parsing stays cheap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import (
    Asset,
    AssetAlias,
    BaseOperator,
    TaskGroup,
    TriggerRule,
    XComArg,
    get_current_context,
    task,
)

from corpusmill.mirrored import address_of, path_of
from corpusmill.schedule import MOST_TASKS
from corpusmill.stages.graph import GRAPH, GROUPS
from corpusmill_airflow.by_version import RETRY_ARGUMENTS, retried_as_its_error_says
from corpusmill_airflow.metrics import traffic_counted

if TYPE_CHECKING:
    from airflow.sdk import Context

# A template, since passing the plan's XComArg would add an edge from the plan to every task.
PLAN_RECEIPT = "{{ ti.xcom_pull(task_ids='plan') }}"

RETRYING = {
    "retries": 3,
    "retry_delay": timedelta(seconds=5),
    "max_retry_delay": timedelta(minutes=5),
    **RETRY_ARGUMENTS,
    # A stage that is switched off has no units: Airflow skips its task, and what follows must run all the same.
    "trigger_rule": TriggerRule.NONE_FAILED,
}
# A finished build of whichever dataset: the report's task names it, because a form decides which one it is, and leaves
# it out if the build is not what `latest` points to.
REPORT = "report"  # the stage that the task `report` runs
LIST = "list_"  # before a stage's name: the task that lists its units
ANY_DATASET = AssetAlias("corpusmill datasets")


def dataset_asset(name: str) -> Asset:
    """The asset of one dataset; its events carry what was built."""
    return Asset(name=f"dataset {name}", uri=f"corpusmill://datasets/{name}", group="corpusmill")


@dataclass(frozen=True)
class Placement:
    """Where tasks run, and their limits.

    `queues`: {stage: queue of workers}; `memory_gib`: {stage: GiB of one of its tasks}, taken from the pool in
    CORPUSMILL_MEMORY_POOL, if set; stages that take memory go to CORPUSMILL_HEAVY_QUEUE, if set.
    `most_tasks`: of a stage; `processes`: how many units of a task run at the same time.
    """

    queues: Mapping[str, str] = field(default_factory=dict)
    memory_gib: Mapping[str, int] = field(default_factory=dict)
    timeout: timedelta = timedelta(days=2)
    most_tasks: int = MOST_TASKS
    processes: int = 1

    def of(self, stage: str) -> dict[str, Any]:
        """Arguments for the operator of a stage."""
        heavy = stage in self.memory_gib
        pool, queue = os.environ.get("CORPUSMILL_MEMORY_POOL"), os.environ.get("CORPUSMILL_HEAVY_QUEUE")
        queue = self.queues.get(stage) or (queue if heavy else None)
        return {
            "execution_timeout": self.timeout,
            **({"pool": pool, "pool_slots": self.memory_gib[stage]} if heavy and pool else {}),
            **({"queue": queue} if queue else {}),
        }


@task.short_circuit(ignore_downstream_trigger_rules=True)
@retried_as_its_error_says
def estimate(plan_receipt: str) -> bool:
    """With dry_run: print the estimate of the build, and skip all later tasks. Otherwise do nothing."""
    from corpusmill.builds.estimate import render_estimate
    from corpusmill.engine.estimates import Estimate
    from corpusmill_airflow.connections import credentials
    from corpusmill_airflow.section import section_of
    from corpusmill_airflow.worker import ask

    context = get_current_context()
    if not context["params"].get("dry_run"):
        return True
    with credentials(section_of(plan_receipt).connections):
        figures = ask("estimate", plan_receipt=plan_receipt)
    print(render_estimate(Estimate(**figures)))
    context["ti"].xcom_push("estimate", figures)
    return False


class Approve(ApprovalOperator):
    """With approve_removal: waits for approval after a stage, stating its results (how much would be removed)."""

    template_fields = (*ApprovalOperator.template_fields, "plan_receipt")

    def __init__(self, *, plan_receipt: str, stage: str, **arguments: Any) -> None:
        approved = GRAPH[stage].approved or stage
        super().__init__(
            task_id=f"approve_{approved}", subject=f"Approve the {approved}?", fail_on_reject=True, **arguments
        )
        self.plan_receipt = plan_receipt
        self.stage = stage

    @retried_as_its_error_says
    def execute(self, context: Context) -> Any:
        """Request approval if the form, or else the configuration, says so, and anything would be removed."""
        from corpusmill_airflow.section import section_of
        from corpusmill_airflow.worker import ask

        asks = context["params"].get("approve_removal")
        if asks is None:
            asks = section_of(self.plan_receipt).approve_removal
        if not asks:
            return None
        self.body = ask("approval", plan_receipt=self.plan_receipt, stage=self.stage)
        if not self.body:
            return None
        return super().execute(context)


@task
@retried_as_its_error_says
def list_units(stage: str, plan_receipt: str, most_tasks: int) -> list[dict[str, str]]:
    """The arguments of a stage's mapped tasks: the names of its units, each with its plan and the id of this Airflow.

    Otherwise each task would request plan and id itself, at 0.05 s each, which is much for a task of one second.
    """
    from corpusmill_airflow import running
    from corpusmill_airflow.worker import ask

    shared = {"plan_receipt": plan_receipt, "airflow": running.this_airflow()}
    with traffic_counted(stage), running.held(plan_receipt, get_current_context(), shared["airflow"]):
        units = ask("units", plan_receipt=plan_receipt, stage=stage, most_tasks=most_tasks)
    return [{"unit": unit, **shared} for unit in units]


@task(map_index_template="{{ task.op_kwargs['unit'] }}")
@retried_as_its_error_says
def run_steps(stage: str, processes: int, unit: str, plan_receipt: str, airflow: str) -> list[str]:
    """Run the steps of one unit, or of `00000 to 00006`, or reuse them; returns the receipts' paths.

    A cleared task does its work again; a retry keeps the steps that the last try finished.
    """
    from corpusmill.stages.graph import open_build
    from corpusmill_airflow import running, worker
    from corpusmill_airflow.connections import credentials
    from corpusmill_airflow.section import section_of

    context = get_current_context()
    verify = bool(context["params"].get("verify"))
    connections = section_of(plan_receipt).connections if GRAPH[stage].stores else {}
    with traffic_counted(stage), running.held(plan_receipt, context, airflow), credentials(connections):
        again = running.was_cleared(context)
        build = open_build(plan_receipt)
        here = not worker.worker_python()
        if here and (processes == 1 or len(build.units_of_task(stage, unit)) == 1):
            return [address_of(receipt) for receipt in build.run_task(stage, unit, again=again, verify=verify)]
        # Airflow forks its tasks, and process pools hang in forks: a separate program runs them.
        fewer = processes >> running.failures(context)  # after running out of memory, fewer units at once
        return worker.run_steps(plan_receipt, stage, unit, processes=max(1, fewer), again=again, verify=verify)


class Report(BaseOperator):
    """Writes the report; returns the path of its receipt, which the report tab reads.

    If Airflow's OpenLineage provider is installed, the task's last event has the dataset's sources and destinations.
    """

    template_fields = ("plan_receipt",)

    def __init__(self, *, plan_receipt: str, **arguments: Any) -> None:
        super().__init__(task_id=REPORT, outlets=[ANY_DATASET], **arguments)
        self.plan_receipt = plan_receipt
        self.provenance: dict[str, Any] = {}

    @retried_as_its_error_says
    def execute(self, context: Context) -> str:
        """Write the report, and announce the dataset if `latest` points to it."""
        from corpusmill.engine.runs import why_latest_stays
        from corpusmill.stages.graph import open_build
        from corpusmill_airflow import running
        from corpusmill_airflow.connections import credentials
        from corpusmill_airflow.section import section_of
        from corpusmill_airflow.worker import ask

        connections = section_of(self.plan_receipt).connections  # old versions may be removed from the destinations now
        held = running.held(self.plan_receipt, context, running.this_airflow())
        with traffic_counted(REPORT), held, credentials(connections):
            reported: dict[str, Any] = ask("report", plan_receipt=self.plan_receipt)
            self.provenance = reported["provenance"]
            if stays := why_latest_stays(path_of(self.plan_receipt)):
                print(f"latest does not move, so no dataset that is built after this one starts: {stays}")
            else:
                asset = dataset_asset(open_build(self.plan_receipt).config.name)
                context["outlet_events"][ANY_DATASET].add(asset, extra=reported["announcement"])
        return str(reported["receipt"])

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """The lineage, which the provider requests once the task has succeeded."""
        from corpusmill_airflow.open_lineage import operator_lineage

        return operator_lineage(self.provenance)


@task
@retried_as_its_error_says
def close(name: str) -> None:
    """After success or failure: release the dataset for other runs, and remove the copy of its configuration."""
    from corpusmill_airflow import running

    context = get_current_context()
    running.close(context, context["ti"].xcom_pull(task_ids="plan"), name)


# Airflow looks at a function's signature for every copy of its decorator, which took a tenth of the time of reading a
# file of many DAGs. Datasets differ in few of these arguments.
@cache
def _listing(stage: str) -> Any:
    return list_units.override(task_id=f"{LIST}{stage}")


@cache
def _steps(stage: str, processes: int, arguments: tuple[tuple[str, Any], ...]) -> Any:
    return run_steps.override(task_id=stage, **dict(arguments)).partial(stage=stage, processes=processes)


def chain_stages(planned: XComArg, placement: Placement) -> XComArg:
    """Every stage of the graph after a task named `plan` that returns a plan's receipt; returns the report's task."""
    estimated = estimate(plan_receipt=PLAN_RECEIPT)
    planned >> estimated
    lists = TaskGroup("units", tooltip="What each stage's tasks are, as the plan decides: shards, parts, destinations")
    groups = {name: TaskGroup(name, tooltip=tooltip) for name, tooltip in GROUPS.items()}
    listed: dict[str, XComArg] = {}
    ended: dict[str, Any] = {}  # by stage, the upstream of later stages: its tasks, or the approval after them
    for stage in GRAPH:
        if stage.name == REPORT:
            continue
        group = groups.get(stage.group, nullcontext())
        if not stage.units_of:
            # One group of all lists would come before and after nearly every other node: Airflow cannot sort such a
            # graph, and answers 500. So lists that wait for a stage are in their own stage's group.
            with group if stage.units_after else lists:
                listed[stage.name] = units = _listing(stage.name)(stage.name, PLAN_RECEIPT, placement.most_tasks)
            ([ended[name] for name in stage.units_after] or [estimated]) >> units
        with group:
            steps = _steps(stage.name, placement.processes, tuple(placement.of(stage.name).items()))
            work = steps.expand_kwargs(listed[stage.units_of or stage.name])
        [ended[name] for name in GRAPH.after(stage.name)] >> work
        ended[stage.name] = work
        if stage.approval:
            approve = Approve(plan_receipt=PLAN_RECEIPT, stage=stage.name, retries=0)
            work >> approve
            ended[stage.name] = approve
    reported = XComArg(Report(plan_receipt=PLAN_RECEIPT))
    waited_for = {name for stage in GRAPH if stage.name in ended for name in GRAPH.after(stage.name)}
    [ended[name] for name in ended.keys() - waited_for] >> reported
    return reported
