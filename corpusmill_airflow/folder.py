"""The folder of configurations."""

from __future__ import annotations

import os
import re
from pathlib import Path

from corpusmill.schedule import NAME_PATTERN


def datasets_folder(folder: Path) -> Path:
    """The folder with the datasets' configurations: what CORPUSMILL_DATASETS names, else `folder`."""
    return Path(os.environ.get("CORPUSMILL_DATASETS") or folder)


def configuration_names(folder: Path) -> list[str]:
    """The datasets that have a configuration file; a name that no dataset can have is left out."""
    return sorted(path.stem for path in folder.glob("*.yaml") if re.match(NAME_PATTERN, path.stem))
