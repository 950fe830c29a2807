"""The folder of configurations."""

from __future__ import annotations

import os
import re
from pathlib import Path

from corpusmill.config import root_folder
from corpusmill.config.schedule import NAME_PATTERN


def datasets_folder(folder: Path) -> Path:
    """The folder with the datasets' configurations: that in CORPUSMILL_DATASETS, else `folder`."""
    return Path(os.environ.get("CORPUSMILL_DATASETS") or folder)


def named_folder(folder: Path) -> str:
    """The folder as shown to people: CORPUSMILL_DATASETS, the path below the root folder, or its last name.

    Never the path of a checkout, which differs for every version of a DAG bundle: Airflow would see a new description
    of the DAG each time.
    """
    if named := os.environ.get("CORPUSMILL_DATASETS"):
        return named.rstrip("/")
    return str(folder.relative_to(root_folder())) if folder.is_relative_to(root_folder()) else folder.name


def configuration_names(folder: Path) -> list[str]:
    """The datasets that have a configuration file; invalid names are left out."""
    return sorted(path.stem for path in folder.glob("*.yaml") if re.match(NAME_PATTERN, path.stem))
