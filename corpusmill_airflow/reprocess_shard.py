"""The DAG `reprocess_shard`: reruns one shard from a stage on, and dependent steps, and logs which outputs changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

from corpusmill.stages.graph import GRAPH
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import built_dataset_params, make_dag
from corpusmill_airflow.stage_tasks import PLAN_RECEIPT

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig

MOST_SHARDS = 10**7


def reprocess_shard(folder: Path, known: Sequence[DatasetConfig]) -> DAG:
    """The DAG; besides its roots it reads the work folders that configurations of `folder` name.

    `known`: the valid configurations.
    """
    form = {
        **built_dataset_params(folder),
        "stage": Param(
            "tokenize",
            enum=list(GRAPH.per_shard),
            title="Stage",
            description="The first stage to rerun for the shard.",
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
    def plan(params: dict[str, Any] | None = None) -> str:
        """Request the shard's steps from the stage on again; returns the receipt of the plan that is rebuilt."""
        from corpusmill.builds.plan import find_plan
        from corpusmill.form import refuse_unknown
        from corpusmill.mirrored import address_of, path_of
        from corpusmill_airflow import running
        from corpusmill_airflow.configurations import section_of_dataset, work_folder_of
        from corpusmill_airflow.connections import credentials
        from corpusmill_airflow.section import keep_section
        from corpusmill_airflow.worker import ask

        values, context = params or {}, get_current_context()
        with running.refusal_shown(context):
            refuse_unknown(values, form, where="the form of reprocess_shard")
            last = find_plan(work_folder_of(values, folder), values["dataset"], values["plan"] or "")
            shard = int(values["shard"])  # JSON schema calls 3.0 an integer
            request = {"last_plan": address_of(last), "stage": values["stage"], "shard": shard}
            section = section_of_dataset(folder, values["dataset"], last)

            def begin() -> Path:
                with credentials(section.connections):
                    plan_receipt = path_of(ask("begin_reprocessing", **request))
                keep_section(plan_receipt, section)
                return plan_receipt

            return running.planned(last.parents[2], context, begin)

    return make_dag(
        "reprocess_shard",
        plan,
        finish=lambda reported: reported >> compare(plan_receipt=PLAN_RECEIPT),
        dag_display_name="Reprocess a shard",
        description="Reprocess one shard from a stage on; dependent steps run only if the result differs.",
        params=form,
        known=known,
        doc_md=Path(__file__).with_suffix(".md").read_text(encoding="utf-8"),
    )


@task
@retried_as_its_error_says
def compare(plan_receipt: str) -> None:
    """Log which outputs changed and which did not."""
    from corpusmill_airflow.worker import ask

    print(ask("finish_reprocessing", plan_receipt=plan_receipt))
