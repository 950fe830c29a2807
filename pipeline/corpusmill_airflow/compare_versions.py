"""The DAG `compare_versions`: the differences between two versions of a dataset, as the page of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from corpusmill.lazy import lazily
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import built_dataset_params
from corpusmill_airflow.steps import RETRYING

with lazily:
    from corpusmill.builds import plan
    from corpusmill.config import form as config_form
    from corpusmill.storage import mirrored
    from corpusmill_airflow import configurations, connections, running, worker


DOC = """The page *Datasets* starts this: open a dataset's history there and choose two versions. The tab *Dataset
report* of the run shows what differs. Both versions must be at a destination of the dataset.

On the command line: `corpusmill diff OLD NEW --config CONFIG`.
"""
VERSION = "^(latest|[0-9a-f]{12})$"


def compare_versions(folder: Path) -> DAG:
    """The DAG; besides its roots it reads the work folders that configurations of `folder` name."""
    form = {
        **built_dataset_params(folder),
        "old": Param(
            "",
            type="string",
            pattern=VERSION,
            title="Old version",
            description="12 digits; the page Datasets lists them, and fills this form in.",
        ),
        "new": Param(
            "latest", type="string", pattern=VERSION, title="New version", description="12 digits, or latest."
        ),
    }

    @task
    @retried_as_its_error_says
    def compare(params: dict[str, Any] | None = None) -> str:
        """Compare two versions at the dataset's destinations; returns the address of the written page."""
        values = params or {}
        with running.refusal_shown(get_current_context()):
            config_form.refuse_unknown(values, form, where="the form of compare_versions")
            work_folder = configurations.work_folder_of(values, folder)
            worker.require_worker()
            last = plan.find_plan(work_folder, values["dataset"])
            with connections.credentials(
                configurations.section_of_dataset(folder, values["dataset"], last).connections
            ):
                return str(
                    worker.ask("compare", plan_receipt=mirrored.address_of(last), old=values["old"], new=values["new"])
                )

    with DAG(
        dag_id="compare_versions",
        dag_display_name="Compare versions",
        description="What differs between two versions: documents, tokens, duplicates, settings. Changes nothing.",
        schedule=None,
        is_paused_upon_creation=False,  # it changes nothing, and runs only on request
        params=form,
        doc_md=DOC,
        tags=["corpusmill"],
        default_args=RETRYING,
        auto_register=False,
    ) as dag:
        compare()
    return dag
