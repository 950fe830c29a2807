"""The functions that DAG files call.

    from pathlib import Path

    from corpusmill_airflow.factory import make_dags

    globals().update(make_dags(Path(__file__).parent / "datasets"))

That makes a DAG `dataset__<name>` for every configuration of the folder, and those of ALWAYS. An invalid
configuration has no DAG; a second file with `refused_configurations` shows why. It must be another file: Airflow treats
an import error of a file as an error of every DAG that the file ever had, and forgets them all.
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
    """{id: DAG} of a folder of configurations; in a task's process only its own DAG.

    CORPUSMILL_DATASETS, if it is set, names the folder instead.
    """
    folder, wanted = datasets_folder(Path(folder)), get_parsing_context().dag_id
    made = {name: make(folder) for name, make in ALWAYS.items() if wanted in {None, name}}
    if wanted not in ALWAYS:
        made |= {dag.dag_id: dag for dag in dataset_dags(folder, (wanted or "").removeprefix(PREFIX))[0]}
    return made


class RefusedConfigurations(DAG):
    """A DAG that Airflow always refuses, so that it shows the errors without a traceback."""

    refused: tuple[ConfigError, ...] = ()

    def validate(self) -> None:
        """Raise a ConfigError with the errors of all files."""
        raise ConfigError("\n\n".join(str(error) for error in self.refused))


def refused_configurations(folder: str | Path) -> dict[str, DAG]:
    """Empty, or a DAG whose import error names each invalid file, its key and the next step."""
    _, refused = dataset_dags(datasets_folder(Path(folder)), tasks=False)
    if not refused:
        return {}
    dag = RefusedConfigurations(dag_id="refused_configurations", schedule=None, auto_register=False)
    dag.refused = tuple(refused)
    return {dag.dag_id: dag}
