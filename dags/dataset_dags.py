"""A DAG `dataset__<name>` for every configuration in datasets/*.yaml (an Airflow DAG file).

A file that cannot be used has no DAG; refused_configurations.py says so. It must not be said here: Airflow takes an
import error of a file for one of every DAG that the file ever had, and forgets them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import running
from airflow.sdk import DAG, get_current_context, get_parsing_context, task
from dataset_dag import CONFIGURATIONS, form_params, make_dag, run_params, schedule_arguments

from pipeline.config import parse_config
from pipeline.errors import ConfigError
from pipeline.schedule import ScheduleConfig

PREFIX = "dataset__"
GONE = """**The configuration of this dataset was deleted or spoilt while a run was under way.**

Its runs finish from a copy; no new ones are started by schedule. Restore `dags/datasets/{name}.yaml`, or remove
`.corpusmill/running/{name}.yaml` below the root folder to let this DAG go, too.

"""


def dataset_dag(name: str, text: str, where: str, *, is_copy: bool = False) -> DAG:
    """The DAG of one configuration; ConfigError if it cannot be used."""
    config = parse_config(text, where=where)
    if config.name != name:
        raise ConfigError(
            "the file is not called as the dataset",
            where=where,
            expected=f"{config.name}.yaml, or name: {name}",
            got=f"name: {config.name}",
            next_step="rename one of them: runs, assets and reports find the dataset by its name",
        )
    when = config.dag or ScheduleConfig()
    run = run_params(approve=when.approve_removal)

    @task
    def plan(params: dict[str, Any] | None = None) -> str:
        """Check the form, list the sources, group them into shards, write the plan; returns its receipt's path."""
        from pipeline.form import config_from_form

        with running.refusal_shown(get_current_context()):
            built = config_from_form({key: value for key, value in (params or {}).items() if key not in run})
            running.keep_copy(name, text)
            return running.plan_run(built, get_current_context(), config)

    @task
    def close(plan_receipt: str) -> None:  # noqa: ARG001
        """The run has ended well."""
        running.drop_copy(name)

    try:
        scheduled = {} if is_copy else schedule_arguments(config, when)
        dag = make_dag(
            f"{PREFIX}{name}",
            plan,
            config=config,
            finish=lambda reported: reported >> close(plan_receipt="{{ ti.xcom_pull(task_ids='plan') }}"),
            dag_display_name=f"Dataset {name}",
            description=f"Builds the dataset {name} (dags/datasets/{name}.yaml).",
            params=form_params(config, name=name) | run,
            doc_md=f"{GONE.format(name=name) if is_copy else ''}{when.doc or ''}\n\n```yaml\n{text}\n```",
            **scheduled,
        )
        dag.validate()
    except ConfigError as error:
        error.details = (("file", where), *error.details)
        raise
    except Exception as error:
        raise ConfigError(
            "Airflow refuses the section dag",
            where=where,
            got=f"{type(error).__name__}: {error}",
            next_step="mend dag.schedule; five cron fields, such as '30 2 * * 1': Mondays at 2:30, UTC",
        ) from error
    return dag


def dataset_dags(wanted: str | None = None) -> tuple[list[DAG], list[ConfigError]]:
    """The DAGs of all usable configurations, or of one, and what is wrong with the others."""
    files = {path.stem: path for path in sorted(CONFIGURATIONS.glob("*.yaml"))}
    kept = {path.stem: path for path in sorted(running.copies().glob("*.yaml"))}
    made: dict[str, DAG] = {}
    refused: list[ConfigError] = []
    for name in [wanted] if wanted in files | kept else sorted(files | kept):
        if name in files:
            try:
                made[name] = dataset_dag(name, _text(files[name]), str(files[name]))
            except ConfigError as error:
                refused.append(error)
        if name in kept and name not in made:
            made[name] = dataset_dag(name, _text(kept[name]), str(kept[name]), is_copy=True)
    return list(made.values()), refused


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the configuration file cannot be read", where=path, got=error) from error


# A task's process needs its own DAG only.
MADE, REFUSED = dataset_dags((get_parsing_context().dag_id or "").removeprefix(PREFIX))
globals().update({dag.dag_id: dag for dag in MADE})
