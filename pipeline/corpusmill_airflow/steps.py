"""The steps of a build as tasks, common to every DAG that builds a dataset; a DAG file lists them.

`plan` decides how many parts the steps have, and every step is mapped over its answer: task k of n runs part k of
whatever its step has when it starts (corpusmill/builds/chain.py). Nothing else is passed between tasks. What a run does
not need (a format, rounds of a step of one part) is skipped by the last task before it, in one request.

Task bodies import what they need when they run, so that parsing stays cheap.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
    chain,
    get_current_context,
    task,
)

from corpusmill.builds.chain import STEPS, Task, all_tasks, find_task, label_of
from corpusmill.builds.graph import GRAPH
from corpusmill.config.schedule import MOST_TASKS
from corpusmill.lazy import lazily
from corpusmill.storage.mirrored import path_of
from corpusmill_airflow.by_version import RETRY_ARGUMENTS, retried_as_its_error_says
from corpusmill_airflow.needed import APPROVAL_TASKS

with lazily:
    from corpusmill.builds import graph
    from corpusmill.engine import parts, runs
    from corpusmill_airflow import connections, needed, open_lineage, running, worker


if TYPE_CHECKING:
    from airflow.sdk import Context

    from corpusmill.config import DatasetConfig

# Templates, since passing the plan's XComArg would add an edge from the plan to every task.
# Empty if `plan` was marked by hand, or ran with an older version, which returned a path.
PLAN_RECEIPT = "{{ (ti.xcom_pull(task_ids='plan') or [{}])[0]['plan_receipt'] | default('') }}"
FIRST_PART = "{{ (ti.xcom_pull(task_ids='plan') or [{}])[0]['part'] | default('1/1') }}"

RETRYING = {
    "retries": 3,
    "retry_delay": timedelta(seconds=5),
    "max_retry_delay": timedelta(minutes=5),
    **RETRY_ARGUMENTS,
    # What a run does not need is skipped, and what follows must run all the same.
    "trigger_rule": TriggerRule.NONE_FAILED,
}
# A finished build of whichever dataset: the report's task names it, because a form decides which one it is, and leaves
# it out if the build is not what `latest` points to.
KUBERNETES = "KubernetesExecutor"
REPORT = "report"  # the task that writes the report, and the only stage of it
ANY_DATASET = AssetAlias("corpusmill datasets")


def dataset_asset(name: str) -> Asset:
    """The asset of one dataset; its events carry what was built."""
    return Asset(name=f"dataset {name}", uri=f"corpusmill://datasets/{name}", group="corpusmill")


@dataclass(frozen=True)
class Placement:
    """Where tasks run, and their limits.

    `queues`: {step: queue of workers}; `memory_gib`: {step: GiB of one of its tasks}, taken from the pool in
    CORPUSMILL_MEMORY_POOL, if set; steps that take memory go to CORPUSMILL_HEAVY_QUEUE, if set. `most_tasks`: of a
    step; `processes`: how many units a task runs at the same time, None: as many as there are cores, where its step has
    one task. `pods`: {step: what differs in its tasks' pods, a V1Pod}; these steps run in pods.
    """

    queues: Mapping[str, str] = field(default_factory=dict)
    memory_gib: Mapping[str, int] = field(default_factory=dict)
    timeout: timedelta = timedelta(days=2)
    most_tasks: int = MOST_TASKS
    processes: int | None = None
    pods: Mapping[str, Any] = field(default_factory=dict)

    def of(self, step: str) -> dict[str, Any]:
        """Arguments for the operators of a step."""
        heavy = step in self.memory_gib
        pool, queue = os.environ.get("CORPUSMILL_MEMORY_POOL"), os.environ.get("CORPUSMILL_HEAVY_QUEUE")
        queue = self.queues.get(step) or (queue if heavy else None)
        return {
            "execution_timeout": self.timeout,
            **({"pool": pool, "pool_slots": self.memory_gib[step]} if heavy and pool else {}),
            **({"queue": queue} if queue else {}),
        }


class Steps:
    """Makes the tasks of one DAG, a method for each step; a step that `config` does not need is None.

    `config`: the only dataset that the DAG builds; None: any. `asks`: whether somebody may be asked before a removal.
    `plan` makes the task `plan`, and `finish` may add tasks behind the report's.
    """

    def __init__(
        self,
        plan: Callable[[], XComArg],
        placement: Placement,
        config: DatasetConfig | None = None,
        *,
        asks: bool = True,
        finish: Callable[[XComArg], Any] = lambda reported: reported,
    ) -> None:
        self._plan, self._finish = plan, finish
        self._placement, self._config = placement, config
        self._asks = asks
        self._planned: XComArg | None = None

    def plan(self) -> Any:
        """Reads the sources, and decides how many parts the steps have."""
        self._planned = self._plan()
        return self._planned

    def __getattr__(self, name: str) -> Callable[[], Any]:
        if name in STEPS:
            return lambda: self._step(name)
        if name in APPROVAL_TASKS:
            return lambda: self._approval(name)
        raise AttributeError(name)

    def report(self) -> Any:
        """Writes the report, and announces the dataset."""
        reported = XComArg(Report(plan_receipt=PLAN_RECEIPT))
        self.last = self._finish(reported)
        return reported

    def _approval(self, name: str) -> Any:
        stage = APPROVAL_TASKS[name]
        if not self._asks or (self._config is not None and not GRAPH.is_wanted(stage, self._config)):
            return None
        return Approve(task_id=name, plan_receipt=PLAN_RECEIPT, retries=0)

    def _step(self, name: str) -> Any:
        step = STEPS[name]
        of_step = [item for item in all_tasks() if item.step is step and (self._asks or not item.round.asked)]
        if (config := self._config) is not None:
            of_step = [item for item in of_step if item.stages(config)]
        if not of_step:
            return None
        if len(of_step) == 1 and not step.beside:
            return self._task(of_step[0], name, step.title)
        with TaskGroup(name, tooltip=step.title) as group:
            made = [self._task(item, item.round.name, step.title) for item in of_step]
            if not step.beside:
                chain(*made)
        return group

    def _task(self, item: Task, task_id: str, title: str) -> Any:
        name = item.step.name
        arguments = {**self._placement.of(name), "doc": title}
        shared = {"name": item.name, "processes": self._placement.processes}
        body = _body(task_id, tuple(arguments.items()))
        if pod := self._placement.pods.get(name):
            body = body.override(executor=KUBERNETES, executor_config={"pod_override": pod})
        if item.round.alone:
            return body(**shared, plan_receipt=PLAN_RECEIPT, part=FIRST_PART)
        return body.partial(**shared).expand_kwargs(self._planned)


# Airflow looks at a function's signature for every copy of its decorator, which took a tenth of the time of reading a
# file of many DAGs. Datasets differ in few of these arguments.
@cache
def _body(task_id: str, arguments: tuple[tuple[str, Any], ...]) -> Any:
    return run_part.override(task_id=task_id, **dict(arguments))


Chain = Callable[[Steps], Sequence[Any]]
"""What a DAG file says: the steps that it makes, in order."""


def chain_steps(made: Sequence[Any]) -> None:
    """Put the tasks, groups and None that a DAG file lists behind each other."""
    chain(*(item for item in made if item is not None))


class Approve(ApprovalOperator):
    """With approve_removal: waits for approval after a step, stating its results (how much would be removed)."""

    template_fields = (*ApprovalOperator.template_fields, "plan_receipt")

    def __init__(self, *, task_id: str, plan_receipt: str, **arguments: Any) -> None:
        what = task_id.removeprefix("approve_")
        super().__init__(task_id=task_id, subject=f"approve the {what}?", fail_on_reject=True, **arguments)
        self.plan_receipt = plan_receipt

    @retried_as_its_error_says
    def execute(self, context: Context) -> Any:
        """Request approval if the form, or else the configuration, says so, and anything would be removed."""
        with running.refusal_shown(context):
            if not running.asks_for_approval(context, self.plan_receipt):
                return None
            self.body = worker.ask("approval", plan_receipt=self.plan_receipt, stage=APPROVAL_TASKS[self.task_id])
            if not self.body:
                return None
            self.subject = f"{path_of(self.plan_receipt).parents[2].name}: {self.subject}"
        return super().execute(context)


# Its part until it has run, since a name that is not defined is an error of the template.
@task(map_index_template="{{ ran | default(task.op_kwargs['part']) }}")
@retried_as_its_error_says
def run_part(name: str, plan_receipt: str, part: str, processes: int | None = None, airflow: str = "") -> None:
    """Run a part of a step, or reuse it; returns the receipts' paths (as an XCom, before it skips what is not needed).

    A cleared task does its work again; a retry keeps what the last try finished.
    """
    context = get_current_context()
    item, this = find_task(name), parts.read_part(part)
    holds = running.dataset_claimed(plan_receipt, context, airflow)
    stores = connections.credentials_of(plan_receipt) if item.uses_stores else nullcontext()
    with running.refusal_shown(context), worker.traffic_counted(name), holds, stores:
        receipts = worker.run_part(
            plan_receipt,
            name,
            this,
            processes=processes,
            failures=running.failures(context),
            again=running.was_cleared(context),
            verify=bool(context["params"].get("verify")),
        )
        build = graph.open_build(plan_receipt)
        context["ran"] = label_of(receipts)  # type: ignore[literal-required]
        context["ti"].xcom_push("return_value", receipts)
        needed.skip_unneeded(context, build.config, this, asks=running.asks_for_approval(context, plan_receipt))


class Report(BaseOperator):
    """Writes the report; returns the path of its receipt, which the report tab reads.

    If the version is new, an asset event announces it, and if Airflow's OpenLineage provider is installed, the task's
    last event has the dataset's sources and destinations.
    """

    template_fields = ("plan_receipt",)

    def __init__(self, *, plan_receipt: str, **arguments: Any) -> None:
        super().__init__(task_id=REPORT, outlets=[ANY_DATASET], **arguments)
        self.plan_receipt = plan_receipt
        self.provenance: dict[str, Any] = {"inputs": (), "outputs": ()}

    @retried_as_its_error_says
    def execute(self, context: Context) -> str:
        """Write the report, and announce the dataset if `latest` points to it."""
        claimed = running.dataset_claimed(self.plan_receipt, context)
        # Old versions may be removed from the destinations now.
        stores = connections.credentials_of(self.plan_receipt)
        with running.refusal_shown(context), worker.traffic_counted(REPORT), claimed, stores:
            reported: dict[str, Any] = worker.ask("report", plan_receipt=self.plan_receipt)
            announcement, name = reported["announcement"], graph.open_build(self.plan_receipt).config.name
            worker.count_build(name, announcement)
            if not reported["is_new"]:
                print(f"latest has this version already, {announcement['version']}: no event is sent")
            else:
                self.provenance = reported["provenance"]
                if stays := runs.why_latest_stays(path_of(self.plan_receipt)):
                    print(f"latest does not move, so no dataset that is built after this one starts: {stays}")
                else:
                    context["outlet_events"][ANY_DATASET].add(dataset_asset(name), extra=announcement)
        return str(reported["receipt"])

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """The lineage, which the provider requests once the task has succeeded."""
        return open_lineage.operator_lineage(self.provenance)


@task
@retried_as_its_error_says
def close(name: str) -> None:
    """After success or failure: release the dataset for other runs, and remove the copy of its configuration."""
    context = get_current_context()
    with running.refusal_shown(context):
        running.close(context, name)
