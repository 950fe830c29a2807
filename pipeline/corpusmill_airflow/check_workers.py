"""The DAG `check_workers`: checks that all workers see one work folder and run the same versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from corpusmill.lazy import lazily
from corpusmill.storage.mirrored import address_of, path_of
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.steps import RETRYING

with lazily:
    from corpusmill.builds import worker_check
    from corpusmill.config import bounds, dataset
    from corpusmill_airflow import configurations, worker


PARAMS = {
    "work_folder": Param(
        "work",
        type="string",
        title="Work folder",
        description="The folder that builds will use, shared by all workers.",
    ),
    "probes": Param(16, type="integer", minimum=1, maximum=1000, title="Probes", description="Several per worker."),
}


def check_workers(folder: Path) -> DAG:
    """The DAG; besides its roots it writes to the work folders that configurations of `folder` name."""

    @task
    @retried_as_its_error_says
    def begin(params: dict[str, Any] | None = None) -> list[str]:
        """Write a file that every worker must find; returns the names of the probes."""
        values = params or {}
        bounds.require_folder("work_folder", values["work_folder"], configurations.work_folders(folder))
        return worker_check.begin(_folder(values), values["probes"])

    with DAG(
        dag_id="check_workers",
        dag_display_name="Check the workers",
        description="Many short probes on all workers: one work folder, one set of versions, free disk space.",
        schedule=None,
        params=PARAMS,
        tags=["corpusmill"],
        default_args=RETRYING,
        max_active_tasks=64,
        max_active_runs=1,
        auto_register=False,
    ) as dag:
        conclude(probe.expand(name=begin()))
    return dag


@task
@retried_as_its_error_says
def probe(name: str, params: dict[str, Any] | None = None) -> str:
    """Write a probe's findings on the worker that runs this task; returns their path."""
    worker.require_worker()
    return str(worker.ask("probe", work_folder=address_of(_folder(params or {})), name=name))


@task
@retried_as_its_error_says
def conclude(probes: list[str], params: dict[str, Any] | None = None) -> None:
    """Print the number of probes per host; fail if the workers differ."""
    print(worker_check.conclude(_folder(params or {}), [path_of(path) for path in probes]))


def _folder(params: dict[str, Any]) -> Path:
    return path_of(dataset.absolute(params["work_folder"]))
