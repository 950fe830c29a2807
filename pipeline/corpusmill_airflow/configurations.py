"""The configurations of a folder: the DAG of each valid one, and the errors of the others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from corpusmill.config import DatasetConfig, parse_config
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.config.yaml_text import read_text
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill_airflow import running
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import form_params, make_dag, run_params, schedule_arguments
from corpusmill_airflow.folder import configuration_names, named_folder
from corpusmill_airflow.section import section_of
from corpusmill_airflow.steps import Chain

with lazily:
    from corpusmill.builds import memory
    from corpusmill.config import bounds
    from corpusmill.config import form as config_form


PREFIX = "dataset__"
GONE = """**The configuration of this dataset was deleted or broken during a run.**

Its runs finish from a copy; the schedule starts no new ones. Restore `{folder}/{name}.yaml`, or remove
`.corpusmill/running/{name}.yaml` below the root folder to let this DAG go, too.

"""
UNKNOWN = """**This dataset waits for `{names}`, which has no configuration here.**

Only a build of that name from the form of `build_dataset` can start it.

"""
CIRCLE = """**This dataset and others wait for each other (`dag.after`), so no build of another dataset starts it.**

"""


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
            "airflow.file_name: the file does not have the dataset's name",
            where=path,
            expected=f"{config.name}.yaml, or name: {name}",
            got=f"name: {config.name}",
            next_step="rename one of them: runs, assets and reports find the dataset by its name",
        )
    return Configuration(config, text, path, is_copy)


def dataset_dag(
    configuration: Configuration,
    folder: Path,
    listed: Chain,
    note: str = "",
    *,
    waits: bool = True,
    tasks: bool = True,
) -> DAG:
    """The DAG of one configuration in `folder`, with `note` above its description; without `waits` other datasets do
    not start it.

    Without `tasks` it has no form, either, and only shows whether Airflow accepts the configuration: the rest of the
    DAG suffices for that, at a twentieth of the work.
    """
    config, text, when = configuration.config, configuration.text, configuration.when
    name = config.name
    run = run_params(approve=when.approve_removal)

    @task
    @retried_as_its_error_says
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Check the form, list the sources, group them into shards, write the plan; returns what parts are given."""
        with running.refusal_shown(get_current_context()):
            # The memory of its tasks is fixed, whatever the form states.
            memory.require_memory(config, where=str(configuration.path), processes=when.task_processes or 1)
            values = {key: value for key, value in (params or {}).items() if key not in run}
            built = config_form.config_from_form(values, reserved=config)
            running.keep_copy(name, text)
            return running.plan_run(built, get_current_context(), config, config, tasks_of=config)

    dag = make_dag(
        f"{PREFIX}{name}",
        plan,
        listed,
        config=config,
        tasks=tasks,
        dag_display_name=f"Dataset {name}",
        description=f"Builds the dataset {name} ({named_folder(folder)}/{name}.yaml).",
        params=form_params(config, name=name) | run if tasks else {},
        doc_md=f"{note}{when.doc or ''}\n\n```yaml\n{text}\n```",
        **({} if configuration.is_copy else schedule_arguments(config, when, waits=waits)),
    )
    dag.validate()
    return dag


def dataset_dags(
    folder: Path, listed: Chain, wanted: str | None = None, *, tasks: bool = True
) -> tuple[list[DAG], list[DatasetConfig], list[ConfigError]]:
    """The DAGs of all valid configurations of a folder, or of one; these configurations; the errors of the others."""
    files = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    kept = {path.stem: path for path in sorted(running.copies().glob("*.yaml"))}
    made: dict[str, DAG] = {}
    usable: dict[str, Configuration] = {}
    refused: list[ConfigError] = []
    for name in [wanted] if wanted in files | kept else sorted(files | kept):
        for path in (place[name] for place in (files, kept) if name in place):
            try:
                configuration = read_configuration(name, path, is_copy=path == kept.get(name))
                made[name] = dataset_dag(
                    configuration, folder, listed, _note(configuration, folder, files), tasks=tasks
                )
            except Exception as error:  # an error in one file must not remove the DAGs of the others
                refused.append(_refusal(error, path))
            else:
                usable[name] = configuration
                break
    for circle in circles({name: configuration.after for name, configuration in usable.items()}):
        refused.append(
            ConfigError(
                "airflow.cycle: datasets wait for each other in a cycle",
                where=", ".join(str(usable[name].path) for name in sorted(set(circle))),
                got=" -> ".join(circle),
                next_step="remove one of them from dag.after; until then no build of one starts another",
            )
        )
        made |= {name: dataset_dag(usable[name], folder, listed, CIRCLE, waits=False, tasks=tasks) for name in circle}
    return list(made.values()), [configuration.config for configuration in usable.values()], refused


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


def circles(after: Mapping[str, list[str]]) -> list[list[str]]:
    """Cycles of datasets that wait for each other, each list from one dataset back to itself."""
    waiting, closed = dict(after), []
    while True:
        try:
            TopologicalSorter(waiting).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            closed.append(circle)
            waiting |= {name: [] for name in circle}
        else:
            return closed


def _note(configuration: Configuration, folder: Path, known: Mapping[str, Path]) -> str:
    if configuration.is_copy:
        return GONE.format(name=configuration.config.name, folder=named_folder(folder))
    unknown = [name for name in configuration.after if name not in known]
    return UNKNOWN.format(names="`, `".join(unknown)) if unknown else ""


def _refusal(error: Exception, path: Path) -> ConfigError:
    """The error of a file as a ConfigError."""
    if isinstance(error, ConfigError):
        if not any(str(path) in str(value) for _, value in error.details):
            error.details = (("file", path), *error.details)
        return error
    return ConfigError(
        "airflow.dag_section_refused: Airflow refuses the section dag",
        where=path,
        got=f"{type(error).__name__}: {error}",
        next_step="fix dag.schedule; five cron fields, such as '30 2 * * 1': Mondays at 2:30, UTC",
    )
