"""What a DAG file calls.

    from pathlib import Path

    from corpusmill_airflow.factory import make_dags

    globals().update(make_dags(Path(__file__).parent / "datasets"))

That makes a DAG `dataset__<name>` for every configuration of the folder, and those of ALWAYS. A configuration that
cannot be used has no DAG; a second file with `refused_configurations` shows why. It must not be the same file: Airflow
takes an import error of a file for one of every DAG that the file ever had, and forgets them all.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from corpusmill.errors import ConfigError
from corpusmill_airflow.build_dataset import build_dataset
from corpusmill_airflow.check_workers import check_workers
from corpusmill_airflow.compare_versions import compare_versions
from corpusmill_airflow.configurations import PREFIX, dataset_dags
from corpusmill_airflow.folder import datasets_folder
from corpusmill_airflow.forget_documents import forget_documents
from corpusmill_airflow.reprocess_shard import reprocess_shard

ALWAYS = {
    "build_dataset": build_dataset,
    "reprocess_shard": reprocess_shard,
    "forget_documents": forget_documents,
    "compare_versions": compare_versions,
    "check_workers": check_workers,
}


def make_dags(folder: str | Path) -> dict[str, DAG]:
    """{id: DAG} of a folder of configurations; in a task's process its own DAG alone.

    CORPUSMILL_DATASETS, if it is set, names the folder instead.
    """
    folder, wanted = datasets_folder(Path(folder)), get_parsing_context().dag_id
    made = {name: make(folder) for name, make in ALWAYS.items() if wanted in {None, name}}
    if wanted not in ALWAYS:
        made |= {dag.dag_id: dag for dag in dataset_dags(folder, (wanted or "").removeprefix(PREFIX))[0]}
    return made


class RefusedConfigurations(DAG):
    """Airflow refuses this DAG, and shows why without a traceback: that is what it is for."""

    refused: tuple[ConfigError, ...] = ()

    def validate(self) -> None:
        """Raise what is wrong with every file."""
        raise ConfigError("\n\n".join(str(error) for error in self.refused))


def refused_configurations(folder: str | Path) -> dict[str, DAG]:
    """Nothing, or what becomes an import error that names each file that cannot be used, its key and what to do."""
    _, refused = dataset_dags(datasets_folder(Path(folder)), tasks=False)
    if not refused:
        return {}
    dag = RefusedConfigurations(dag_id="refused_configurations", schedule=None, auto_register=False)
    dag.refused = tuple(refused)
    return {dag.dag_id: dag}
