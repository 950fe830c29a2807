"""The folder of configurations: its names, its files and what they say."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpusmill.config import DatasetConfig, parse_config, root_folder
from corpusmill.config.schedule import NAME_PATTERN, ScheduleConfig
from corpusmill.config.yaml_text import read_text
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill_airflow.connections import section_of

with lazily:
    from corpusmill.config import bounds


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


@dataclass(frozen=True)
class Configuration:
    """The source of a dataset's DAG: its file, or the copy that is kept during a run."""

    config: DatasetConfig
    text: str
    path: Path
    is_copy: bool

    @property
    def when(self) -> ScheduleConfig:
        """Its section `dag`."""
        return self.config.dag or ScheduleConfig()

    @property
    def after(self) -> list[str]:
        """The datasets whose builds start this one's."""
        return [] if self.is_copy else self.when.after


def read_configuration(name: str, path: Path, *, is_copy: bool) -> Configuration:
    """A configuration file; ConfigError if it cannot be used."""
    text = read_text(path)
    config = parse_config(text, where=str(path))
    if config.name != name:
        raise ConfigError(
            "airflow.file_name: the file is not named after its dataset",
            where=path,
            expected=f"{config.name}.yaml, or name: {name}",
            got=f"name: {config.name}",
            next_step="rename one of them: runs, assets and reports find the dataset by its name",
        )
    return Configuration(config, text, path, is_copy)


def work_folders(folder: Path) -> list[str]:
    """The work folders that the valid configurations name."""
    named = []
    for path in sorted(folder.glob("*.yaml")):
        with suppress(ConfigError):
            named.append(read_configuration(path.stem, path, is_copy=False).config.work_folder)
    return named


def own_configuration(folder: Path, dataset: str) -> DatasetConfig | None:
    """The configuration of a dataset that has a file in `folder`; ConfigError if the file cannot be used."""
    if dataset not in configuration_names(folder):
        return None
    return read_configuration(dataset, folder / f"{dataset}.yaml", is_copy=False).config


def section_of_dataset(folder: Path, dataset: str, plan_receipt: Path) -> ScheduleConfig:
    """The section `dag` of a built dataset's file; the one kept beside its plan if it has no file that can be used."""
    with suppress(ConfigError):
        if own := own_configuration(folder, dataset):
            return own.dag or ScheduleConfig()
    return section_of(plan_receipt)


def work_folder_of(form: Mapping[str, Any], folder: Path) -> str:
    """The work folder in a form about a built dataset; if empty, that of its configuration, or `work` if it has none.

    ConfigError if it is outside the roots and no configuration names it.
    """
    work_folder: str = form["work_folder"] or ""
    if not work_folder:
        own = own_configuration(folder, form["dataset"])
        work_folder = own.work_folder if own else "work"
    bounds.require_folder("work_folder", work_folder, work_folders(folder))
    return work_folder
