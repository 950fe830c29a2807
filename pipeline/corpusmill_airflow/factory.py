"""The functions that DAG files call.

dags/build_dataset.py lists the steps of a build, and calls `make_dags`, which makes a DAG `dataset__<name>` for every
configuration of a folder, and those of BUILDING and OTHERS in folder_dags.py. An invalid configuration has no DAG; a
second file with `refused_configurations` shows why. It must be another file: Airflow treats an import error of a file
as an error of every DAG that the file ever had, and forgets them all.

Nothing else of Corpusmill may be imported here: what was preloaded before a fork, and has changed since, goes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill_airflow.preload import renew

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from corpusmill_airflow.steps import Chain


def make_dags(folder: str | Path, listed: Chain) -> dict[str, DAG]:
    """{id: DAG} of a folder of configurations, with the steps that `listed` returns, in order; in a task's process only
    its own DAG.

    CORPUSMILL_DATASETS, if it is set, names the folder instead.
    """
    renew()
    from corpusmill_airflow import folder_dags

    return folder_dags.make_dags(Path(folder), listed)


def refused_configurations(folder: str | Path) -> dict[str, DAG]:
    """Empty, or a DAG whose import error names each invalid file, its key and the next step."""
    renew()
    from corpusmill_airflow import folder_dags

    return folder_dags.refused_configurations(Path(folder))
