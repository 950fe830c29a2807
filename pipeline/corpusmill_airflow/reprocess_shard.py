"""The DAG `reprocess_shard`: reruns one shard from a step on, and dependent steps, and logs which outputs changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from corpusmill.builds.graph import GRAPH
from corpusmill.builds.reprocess import FIRST_STAGES
from corpusmill.lazy import lazily
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import built_dataset_params, make_dag
from corpusmill_airflow.steps import PLAN_RECEIPT, Chain

with lazily:
    from corpusmill.builds import plan as builds_plan
    from corpusmill.config import form as config_form
    from corpusmill.storage import mirrored
    from corpusmill_airflow import configurations, connections, running, worker
    from corpusmill_airflow import section as corpusmill_airflow_section


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig

MOST_SHARDS = 10**7


def reprocess_shard(folder: Path, known: Sequence[DatasetConfig], listed: Chain) -> DAG:
    """The DAG; besides its roots it reads the work folders that configurations of `folder` name.

    `known`: the valid configurations.
    """
    form = {
        **built_dataset_params(folder),
        "stage": Param(
            "tokenize",
            enum=list(FIRST_STAGES | dict.fromkeys(GRAPH.per_shard)),
            title="Step",
            description="The first step to rerun for the shard, or a stage inside of one.",
        ),
        "shard": Param(
            0, type="integer", minimum=0, maximum=MOST_SHARDS, title="Shard", description="The shard's number."
        ),
        "plan": Param(
            None,
            type=["null", "string"],
            title="Plan",
            description="The plan's folder name; a run's page fills in its own. Empty: the last plan that delivered.",
        ),
    }

    @task
    @retried_as_its_error_says
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Request what the shard needs from a step on again; returns what parts are given."""
        values, context = params or {}, get_current_context()
        with running.refusal_shown(context):
            config_form.refuse_unknown(values, form, where="the form of reprocess_shard")
            last = builds_plan.find_plan(
                configurations.work_folder_of(values, folder), values["dataset"], values["plan"] or ""
            )
            shard = int(values["shard"])  # JSON schema calls 3.0 an integer
            section = configurations.section_of_dataset(folder, values["dataset"], last)
            request = {"last_plan": mirrored.address_of(last), "stage": values["stage"], "shard": shard}

            def begin() -> running.Planned:
                with connections.credentials(section.connections):
                    made = worker.ask("begin_reprocessing", **request, most_tasks=section.most_tasks)
                plan_receipt = mirrored.path_of(made["plan_receipt"])
                corpusmill_airflow_section.keep_section(plan_receipt, section)
                return running.Planned(plan_receipt, made["parts"])

            return running.planned(last.parents[2], context, begin)

    return make_dag(
        "reprocess_shard",
        plan,
        listed,
        finish=lambda reported: reported >> compare(plan_receipt=PLAN_RECEIPT),
        dag_display_name="Reprocess a shard",
        description="Reprocess one shard from a step on; dependent steps run only if the result differs.",
        params=form,
        known=known,
        doc_md=Path(__file__).with_suffix(".md").read_text(encoding="utf-8"),
    )


@task
@retried_as_its_error_says
def compare(plan_receipt: str) -> None:
    """Log which outputs changed and which did not."""
    with running.refusal_shown(get_current_context()):
        print(worker.ask("finish_reprocessing", plan_receipt=plan_receipt))
