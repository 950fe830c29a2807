"""The folder of configurations."""

from __future__ import annotations

import os
import re
from pathlib import Path

from corpusmill.config import root_folder
from corpusmill.schedule import NAME_PATTERN


def datasets_folder(folder: Path) -> Path:
    """The folder with the datasets' configurations: what CORPUSMILL_DATASETS names, else `folder`."""
    return Path(os.environ.get("CORPUSMILL_DATASETS") or folder)


def named_folder(folder: Path) -> str:
    """The folder as people know it: what CORPUSMILL_DATASETS says, the path below the root folder, or its last name.

    Never where a checkout lies, which is another place for every version of a DAG bundle: Airflow would take the DAG's
    description for a new one each time.
    """
    if named := os.environ.get("CORPUSMILL_DATASETS"):
        return named.rstrip("/")
    return str(folder.relative_to(root_folder())) if folder.is_relative_to(root_folder()) else folder.name


def configuration_names(folder: Path) -> list[str]:
    """The datasets that have a configuration file; a name that no dataset can have is left out."""
    return sorted(path.stem for path in folder.glob("*.yaml") if re.match(NAME_PATTERN, path.stem))
