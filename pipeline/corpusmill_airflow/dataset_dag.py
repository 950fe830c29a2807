"""One DAG that builds a dataset: its form, its schedule, its limits. Every building DAG is made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict
from croniter import croniter

from corpusmill.builds.chain import STEPS
from corpusmill.builds.room import task_gib
from corpusmill.config import DatasetConfig
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill_airflow.by_version import (
    AssetOrTimeSchedule,
    AsyncCallback,
    CronTriggerTimetable,
    DeadlineAlert,
    DeadlineReference,
)
from corpusmill_airflow.folder import configuration_names
from corpusmill_airflow.notifiers import make_notifiers
from corpusmill_airflow.steps import KUBERNETES, RETRYING, Chain, Placement, Steps, chain_steps, close, dataset_asset

with lazily:
    from corpusmill.config import form
    from corpusmill_airflow import pods


if TYPE_CHECKING:
    from airflow.sdk import XComArg

TAG = "corpusmill"
PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
BEFORE_ALL_BUILDS = datetime(2000, 1, 1, tzinfo=UTC)  # croniter looks 50 years ahead


def field(value: Any, title: str, words: str, **schema: Any) -> Param:
    """A field of a form with its default, and the words beside it, in Markdown."""
    if None in schema.get("enum", ()):
        schema["values_display"] = {"null": "not set"}  # else the list of values shows null
    return Param(value, title=title, description_md=words, **schema)


def built_dataset_params(folder: Path) -> dict[str, Param]:
    """The fields of a form that select a built dataset."""
    known = configuration_names(folder)
    empty = "The folder of the dataset's receipts. Empty: that of its configuration, or `work`."
    return {
        "dataset": field("demo", "Dataset", "Its name, as in its configuration.", type="string", examples=known),
        "work_folder": field(None, "Work folder", empty, type=["null", "string"]),
    }


def run_params(*, approve: bool | None = None) -> dict[str, Param]:
    """Choices about one run, not part of the dataset; `approve`: that of the configuration, if known."""
    estimate = "Plan, estimate (tokens, hours, disk), and stop; the run's tab shows the estimate."
    ask = (
        "Wait after find_ranges for approval of what would be removed (Required Actions). Untouched: as in the"
        " configuration."
    )
    latest = "Let `latest` follow this run, even if its settings are not those of the configuration file."
    verify = "Read every output of earlier runs, and rebuild what no longer matches its sha256."
    return {
        "dry_run": field(False, "Dry run", estimate, type="boolean"),
        "approve_removal": field(approve, "Ask before removing", ask, type=["null", "boolean"]),
        "move_latest": field(False, "Move latest", latest, type="boolean"),
        "verify": field(False, "Verify before reuse", verify, type="boolean"),
    }


def form_params(config: DatasetConfig | None = None, **fixed: str) -> dict[str, Param]:
    """The form's fields, with `config`'s values as defaults; `fixed` ones cannot be changed.

    Only the plan reads it. A process that runs another task has no form: Airflow would check it there twice.
    """
    if get_parsing_context().task_id not in {None, "plan"}:
        return {}
    shown = (form.form_from_config(config) if config else {}) | fixed
    return {
        item.name: field(
            shown.get(item.name),
            item.title,
            item.help,
            section="Dataset",
            **item.schema,
            **({"const": fixed[item.name]} if item.name in fixed else {}),
        )
        for item in form.FIELDS
    }


def make_dag(
    dag_id: str,
    plan: Callable[[], XComArg],
    listed: Chain,
    *,
    params: dict[str, Param],
    schedule: Any = None,
    config: DatasetConfig | None = None,
    known: Sequence[DatasetConfig] = (),
    finish: Callable[[XComArg], Any] = lambda reported: reported,
    tasks: bool = True,
    **arguments: Any,
) -> DAG:
    """A DAG of the steps that `listed` puts behind each other, with the task that `plan` makes; `finish` may add tasks
    after the report's.

    `config`: the only dataset that it builds, if there is one: it has the tasks that this needs, and its memory and
    limits. Otherwise it has all tasks, and each takes the most memory that any of `known` needs. Without `tasks` only
    the rest is made and checked.
    """
    when = (config.dag if config else None) or ScheduleConfig()
    dag = DAG(
        dag_id=dag_id,
        schedule=schedule,
        tags=[TAG, *when.tags],
        default_args={**RETRYING, "owner": when.owner},
        # The scheduler fills the queue once per loop. If this equalled the number of workers, every finished task would
        # leave its worker idle until the next loop (measured: 0.74 s per task instead of 0.18 s).
        max_active_tasks=64,
        # A second run of one dataset would wait for its claim; runs of several need not wait for each other.
        max_active_runs=1 if config else 16,
        auto_register=False,  # DAG files name their DAGs; a refused one must not be registered
        **arguments,
    )
    place = placement([config] if config else known, when)
    if tasks:
        with dag:
            steps = Steps(plan, place, config, asks=when.approve_removal or config is None, finish=finish)
            # A teardown runs even if others failed, and the run's state does not depend on it.
            chain_steps(listed(steps))
            steps.last >> close(config.name if config else "").as_teardown()
    dag.params = ParamsDict(params)  # set last: every task that is made copies the current params
    return dag


def placement(configs: Sequence[DatasetConfig], when: ScheduleConfig) -> Placement:
    """Queues, pods and limits from the section `dag`, memory as the settings of the configurations imply."""
    for key, named in (("queues", when.queues), ("pods", when.pods)):
        if unknown := sorted(set(named) - set(STEPS)):
            raise ConfigError(
                "airflow.no_such_step: there is no such step",
                where=f"dag.{key}",
                got=unknown[0],
                expected=", ".join(STEPS),
            )
    gib = task_gib(configs, when.task_processes or 1)
    # A process that runs a task starts no pod.
    in_pods = when.pods and get_parsing_context().task_id is None and KUBERNETES in executors()
    read = {step: pods.read_pod(step, words) for step, words in when.pods.items()} if in_pods else {}
    return Placement(when.queues, gib, when.task_timeout, when.most_tasks, when.task_processes, read)


def executors() -> set[str]:
    """The names of this Airflow's executors, without aliases of their own."""
    return {name.strip() for name in conf.get("core", "executor").split(",")}


def notifier_arguments(when: ScheduleConfig) -> dict[str, Any]:
    """The notifiers as a DAG takes them; ConfigError for one that cannot be used.

    Nothing in a process that runs a task, which calls none.
    """
    if get_parsing_context().task_id is not None:
        return {}
    make_notifiers(when.on_late, "on_late")  # the triggerer makes them again
    return {
        "on_failure_callback": make_notifiers(when.on_failure, "on_failure") or None,
        "on_success_callback": make_notifiers(when.on_success, "on_success") or None,
    }


def schedule_arguments(config: DatasetConfig, when: ScheduleConfig, *, waits: bool = True) -> dict[str, Any]:
    """Schedule, first date, catching up and deadline, as a DAG takes them; `waits`: for other datasets, too.

    croniter's ValueError for a schedule without any date, such as a 30th of February.
    """
    after = [dataset_asset(name) for name in when.after] if waits else []
    timetable = None
    if when.schedule:
        cron = PRESETS.get(when.schedule, when.schedule)
        croniter(cron, BEFORE_ALL_BUILDS).get_next()
        timetable = CronTriggerTimetable(cron, timezone="UTC")
    schedule: Any = (
        AssetOrTimeSchedule(timetable=timetable, assets=after) if timetable and after else timetable or after
    )
    deadline = None
    if when.deadline:
        late = {
            "dataset": config.name,
            "within": str(when.deadline),
            "seconds": when.deadline.total_seconds(),
            "notifiers": [asked.model_dump() for asked in when.on_late],
        }
        alert = AsyncCallback("corpusmill_airflow.deadline.missed", late)
        deadline = DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=when.deadline, callback=alert)
    return {
        "schedule": schedule or None,
        "start_date": datetime.combine(when.start, time(), UTC) if when.start else None,
        "catchup": when.catchup,
        **({"deadline": deadline} if deadline else {}),
    }
