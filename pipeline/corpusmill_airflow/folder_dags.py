"""The DAGs of a folder: one of each valid configuration, those with a form, and the errors of invalid ones."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_current_context, get_parsing_context, task

from corpusmill.config import DatasetConfig
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill_airflow import form_dags, running
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import form_params, make_dag, notifier_arguments, run_params, schedule_arguments
from corpusmill_airflow.folder import Configuration, datasets_folder, named_folder, read_configuration
from corpusmill_airflow.notifiers import missing_connections
from corpusmill_airflow.steps import Chain

with lazily:
    from corpusmill.builds import room
    from corpusmill.config import form as config_form

BUILDING = {
    "build_dataset": form_dags.build_dataset,
    "reprocess_shard": form_dags.reprocess_shard,
    "forget_documents": form_dags.forget_documents,
}
OTHERS = {
    "compare_versions": form_dags.compare_versions,
    "check_workers": form_dags.check_workers,
}
PREFIX = "dataset__"
GONE = """**The configuration of this dataset was deleted or broken during a run.**

Its runs finish from a copy; the schedule starts no new ones. Restore `{folder}/{name}.yaml`, or remove
`.corpusmill/running/{name}.yaml` below the root folder to let this DAG go, too.

"""
UNKNOWN = """**This dataset waits for `{names}`, which has no configuration here.**

Only a build of that name from the form of `build_dataset` can start it.

"""
MISSING = """**Airflow has no connection `{names}`, which this dataset's section `dag` names.**

Add it under Admin > Connections, or to a secrets backend: until then runs or notifications that need it fail.

"""
CIRCLE = """**This dataset and others wait for each other (`dag.after`), so no build of another dataset starts it.**

"""


def make_dags(folder: Path, listed: Chain) -> dict[str, DAG]:
    """See factory.py."""
    folder, wanted = datasets_folder(folder), get_parsing_context().dag_id
    made: dict[str, DAG] = {}
    known: list[DatasetConfig] = []
    if wanted not in BUILDING | OTHERS:
        dags, known, _ = dataset_dags(folder, listed, (wanted or "").removeprefix(PREFIX))
        made = {dag.dag_id: dag for dag in dags}
    made |= {name: make(folder, known, listed) for name, make in BUILDING.items() if wanted in {None, name}}
    made |= {name: make(folder) for name, make in OTHERS.items() if wanted in {None, name}}
    return made


class RefusedConfigurations(DAG):
    """A DAG that Airflow always refuses, so that it shows the errors without a traceback."""

    refused: tuple[ConfigError, ...] = ()

    def validate(self) -> None:
        """Raise a ConfigError with the errors of all files."""
        details = tuple((str(number), error) for number, error in enumerate(self.refused, 1))
        raise ConfigError("airflow.files_refused: files have errors, so their DAGs are missing", details=details)


def refused_configurations(folder: Path) -> dict[str, DAG]:
    """See factory.py."""
    _, _, refused = dataset_dags(datasets_folder(folder), lambda _steps: (), tasks=False)
    if not refused:
        return {}
    dag = RefusedConfigurations(dag_id="refused_configurations", schedule=None, auto_register=False)
    dag.refused = tuple(refused)
    return {dag.dag_id: dag}


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
            room.require_memory(config, where=str(configuration.path), processes=when.task_processes or 1)
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
        **notifier_arguments(when),
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
                note = _note(configuration, folder, files) if tasks and not wanted else ""
                made[name] = dataset_dag(configuration, folder, listed, note, tasks=tasks)
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
    missing = missing_connections(configuration.when)
    return (UNKNOWN.format(names="`, `".join(unknown)) if unknown else "") + (
        MISSING.format(names="`, `".join(missing)) if missing else ""
    )


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
