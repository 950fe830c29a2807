"""The functions that DAG files call.

    from pathlib import Path

    from corpusmill_airflow.factory import make_dags

    globals().update(make_dags(Path(__file__).parent / "datasets"))

That makes a DAG `dataset__<name>` for every configuration of the folder, and those of BUILDING and OTHERS in
folder_dags.py. An invalid configuration has no DAG; a second file with `refused_configurations` shows why. It must be
another file: Airflow treats an import error of a file as an error of every DAG that the file ever had, and forgets them
all.

Nothing else of Corpusmill may be imported here: what was preloaded before a fork, and has changed since, goes first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill_airflow.preload import renew

if TYPE_CHECKING:
    from airflow.sdk import DAG


def make_dags(folder: str | Path) -> dict[str, DAG]:
    """{id: DAG} of a folder of configurations; in a task's process only its own DAG.

    CORPUSMILL_DATASETS, if it is set, names the folder instead.
    """
    renew()
    from corpusmill_airflow import folder_dags

    return folder_dags.make_dags(Path(folder))


def refused_configurations(folder: str | Path) -> dict[str, DAG]:
    """Empty, or a DAG whose import error names each invalid file, its key and the next step."""
    renew()
    from corpusmill_airflow import folder_dags

    return folder_dags.refused_configurations(Path(folder))
