"""The DAGs of a folder of configurations, and the errors of those that are invalid."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from corpusmill.config import DatasetConfig
from corpusmill.errors import ConfigError
from corpusmill_airflow.build_dataset import build_dataset
from corpusmill_airflow.check_workers import check_workers
from corpusmill_airflow.compare_versions import compare_versions
from corpusmill_airflow.configurations import PREFIX, dataset_dags
from corpusmill_airflow.folder import datasets_folder
from corpusmill_airflow.forget_documents import forget_documents
from corpusmill_airflow.reprocess_shard import reprocess_shard
from corpusmill_airflow.steps import Chain

BUILDING = {
    "build_dataset": build_dataset,
    "reprocess_shard": reprocess_shard,
    "forget_documents": forget_documents,
}
OTHERS = {
    "compare_versions": compare_versions,
    "check_workers": check_workers,
}


def make_dags(folder: Path, listed: Chain) -> dict[str, DAG]:
    """See factory.py."""
    folder, wanted = datasets_folder(folder), get_parsing_context().dag_id
    made: dict[str, DAG] = {}
    known: list[DatasetConfig] = []
    if wanted not in BUILDING | OTHERS:
        dags, known, _ = dataset_dags(folder, listed, (wanted or "").removeprefix(PREFIX))
        made = {dag.dag_id: dag for dag in dags}
    made |= {name: make(folder, known, listed) for name, make in BUILDING.items() if wanted in {None, name}}
    made |= {name: make(folder) for name, make in OTHERS.items() if wanted in {None, name}}
    return made


class RefusedConfigurations(DAG):
    """A DAG that Airflow always refuses, so that it shows the errors without a traceback."""

    refused: tuple[ConfigError, ...] = ()

    def validate(self) -> None:
        """Raise a ConfigError with the errors of all files."""
        details = tuple((str(number), error) for number, error in enumerate(self.refused, 1))
        raise ConfigError("airflow.files_refused: files have errors, so their DAGs are missing", details=details)


def refused_configurations(folder: Path) -> dict[str, DAG]:
    """See factory.py."""
    _, _, refused = dataset_dags(datasets_folder(folder), lambda _steps: (), tasks=False)
    if not refused:
        return {}
    dag = RefusedConfigurations(dag_id="refused_configurations", schedule=None, auto_register=False)
    dag.refused = tuple(refused)
    return {dag.dag_id: dag}
