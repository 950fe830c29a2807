"""Corpusmill in an Airflow: DAGs from a folder of configurations, pages that show the datasets.

    __main__.py      writes the files of a first dataset into a DAGs folder
    factory.py       called by DAG files
    folder_dags.py   every DAG of a folder: one for each configuration, and the errors of invalid ones
    folder.py        the configurations of a folder;  form_dags.py: the DAGs that people start from a form
    dataset_dag.py   common to DAGs that build: form, schedule, limits;  steps.py: their tasks
    needed.py        which tasks a run needs
    pods.py          pods of steps;  running.py       a run's claim on its dataset, its plan, its end
    worker.py        steps in the environment of CORPUSMILL_PYTHON;  connections.py: credentials of stores
    by_version.py    differences between Airflows
    plugin.py, pages/  the page of all datasets and the tab of a run;  open_lineage.py
    notifiers.py, deadline.py  who is told that a run failed, ended or is late
    preload.py       what is loaded before tasks are forked, and loaded anew once somebody has edited it
    stored_graphs.py mends what older versions stored

This package depends on Airflow, `corpusmill` does not; decisions/0001 explains why they are two packages of one wheel.
Importing it fails under an unsupported Airflow, or with a second installation.
"""

from __future__ import annotations

from pathlib import Path

import airflow

import corpusmill
from corpusmill.errors import PermanentError

OLDEST, NEWEST = (3, 1), (3, 3)  # minor versions; tests/wheel tries each


def release(version: str) -> tuple[int, ...]:
    """(3, 3) of `3.3.2` and of `3.3.0rc1`."""
    return tuple(int(number) for number in version.split(".")[:2])


def require_supported(version: str) -> None:
    """PermanentError for an Airflow older or newer than those that are tested."""
    if not OLDEST <= release(version) <= NEWEST:
        oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        raise PermanentError(
            "airflow.version_not_supported: this version of Corpusmill does not support this Airflow",
            where=Path(str(airflow.__file__)).parent,
            expected=f"Airflow {oldest} to {newest}",
            got=f"Airflow {version}, with Corpusmill {corpusmill.__version__}",
            next_step="install an Airflow of these versions, or a Corpusmill that supports yours",
        )


def require_one_installation(package: Path, mill: Path) -> None:
    """PermanentError if the folders of `corpusmill_airflow` and of `corpusmill` belong to two installations."""
    if package.parent != mill.parent:
        raise PermanentError(
            "airflow.installations_mixed: two installations of Corpusmill are mixed",
            where=package,
            expected=f"its other half next to it, {package.with_name('corpusmill')}",
            got=f"version {corpusmill.__version__} in {mill}",
            next_step="uninstall one of them, or remove its folder from PYTHONPATH",
        )


AIRFLOW = release(airflow.__version__)
require_supported(airflow.__version__)
require_one_installation(Path(__file__).parent, Path(str(corpusmill.__file__)).parent)
