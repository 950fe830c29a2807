"""One DAG that builds a dataset: its form, its schedule, its limits. Every building DAG is made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict
from croniter import croniter

from corpusmill.builds.memory import task_gib
from corpusmill.config import DatasetConfig
from corpusmill.errors import ConfigError
from corpusmill.schedule import ScheduleConfig
from corpusmill.stages.graph import GRAPH
from corpusmill_airflow.by_version import (
    AssetOrTimeSchedule,
    AsyncCallback,
    CronTriggerTimetable,
    DeadlineAlert,
    DeadlineReference,
)
from corpusmill_airflow.folder import configuration_names
from corpusmill_airflow.stage_tasks import RETRYING, Placement, chain_stages, close, dataset_asset

if TYPE_CHECKING:
    from airflow.sdk import XComArg

TAG = "corpusmill"
BEFORE_ALL_BUILDS = datetime(2000, 1, 1, tzinfo=UTC)  # croniter looks 50 years ahead


def built_dataset_params(folder: Path) -> dict[str, Param]:
    """The fields of a form that select a built dataset."""
    return {
        "dataset": Param(
            "demo",
            type="string",
            examples=configuration_names(folder),
            title="Dataset",
            description="Its name, as in its configuration.",
        ),
        "work_folder": Param(
            None,
            type=["null", "string"],
            title="Work folder",
            description="The folder of the dataset's receipts. Empty: that of its configuration, or `work`.",
        ),
    }


def run_params(*, approve: bool | None = None) -> dict[str, Param]:
    """Choices about one run, not part of the dataset; `approve`: that of the configuration, if known."""
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Plan, estimate (tokens, hours, disk), and stop; the task `estimate` shows it (log, XCom).",
        ),
        "approve_removal": Param(
            approve,
            type=["null", "boolean"],
            title="Ask before removing",
            description="Wait after find_ranges for approval of what would be removed (Required Actions). Untouched: as"
            " in the configuration.",
        ),
        "move_latest": Param(
            False,
            type="boolean",
            title="Move latest",
            description="Let `latest` follow this run, even if its settings are not those of the configuration file.",
        ),
        "verify": Param(
            False,
            type="boolean",
            title="Verify before reuse",
            description="Read every output of earlier runs, and rebuild what no longer matches its sha256.",
        ),
    }


def form_params(config: DatasetConfig | None = None, **fixed: str) -> dict[str, Param]:
    """A field for every configuration key, with `config`'s values as defaults; `fixed` ones cannot be changed.

    Only the plan reads it. A process that runs another task has no form: Airflow would check its eighty fields there
    twice, and making and checking them took 0.3 s of a task's 0.8.
    """
    if get_parsing_context().task_id not in {None, "plan"}:
        return {}
    from corpusmill.form import FIELDS, form_from_config

    shown = form_from_config(config) if config else {}
    return {
        field.name: Param(
            fixed.get(field.name, shown.get(field.name)),
            title=field.title,
            description=field.help,
            section=field.section or "Dataset",
            **(field.schema | ({"const": fixed[field.name]} if field.name in fixed else {})),
        )
        for field in FIELDS
    }


def make_dag(
    dag_id: str,
    plan: Callable[[], XComArg],
    *,
    params: dict[str, Param],
    schedule: Any = None,
    config: DatasetConfig | None = None,
    known: Sequence[DatasetConfig] = (),
    finish: Callable[[XComArg], Any] = lambda reported: reported,
    tasks: bool = True,
    **arguments: Any,
) -> DAG:
    """A DAG of every stage after the task that `plan` makes; `finish` may add tasks after the report's.

    `config`: the dataset that it usually builds, if known: it sets the memory and limits of the tasks. Otherwise a task
    takes the most memory that any of `known` needs. Without `tasks` only the rest is made and checked.
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
        max_active_runs=1,  # a second run of the same dataset reuses what the first one finished
        auto_register=False,  # DAG files name their DAGs; a refused one must not be registered
        **arguments,
    )
    place = placement([config] if config else known, when)
    if tasks:
        with dag:
            # A teardown runs even if others failed, and the run's state does not depend on it.
            finish(chain_stages(plan(), place)) >> close(config.name if config else "").as_teardown()
    dag.params = ParamsDict(params)  # set last: every task that is made copies the current params
    return dag


def placement(configs: Sequence[DatasetConfig], when: ScheduleConfig) -> Placement:
    """Queues and limits from the section `dag`, memory as the settings of the configurations imply."""
    unknown = sorted(set(when.queues) - set(GRAPH.names))
    if unknown:
        raise ConfigError("there is no such stage", where="dag.queues", got=unknown[0], expected=", ".join(GRAPH.names))
    gib = task_gib(configs, when.task_processes)
    return Placement(when.queues, gib, when.task_timeout, when.most_tasks, when.task_processes)


def schedule_arguments(config: DatasetConfig, when: ScheduleConfig, *, waits: bool = True) -> dict[str, Any]:
    """Schedule, first date, catching up and deadline, as a DAG takes them; `waits`: for other datasets, too.

    croniter's ValueError for a schedule without any date, such as a 30th of February.
    """
    after = [dataset_asset(name) for name in when.after] if waits else []
    timetable = None
    if when.schedule:
        cron = _cron(when.schedule)
        croniter(cron, BEFORE_ALL_BUILDS).get_next()
        timetable = CronTriggerTimetable(cron, timezone="UTC")
    schedule: Any = (
        AssetOrTimeSchedule(timetable=timetable, assets=after) if timetable and after else timetable or after
    )
    deadline = None
    if when.deadline:
        alert = AsyncCallback(
            "corpusmill_airflow.deadline.missed", {"dataset": config.name, "within": str(when.deadline)}
        )
        deadline = DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=when.deadline, callback=alert)
    return {
        "schedule": schedule or None,
        "start_date": datetime.combine(when.start, time(), UTC) if when.start else None,
        "catchup": when.catchup,
        **({"deadline": deadline} if deadline else {}),
    }


def _cron(schedule: str) -> str:
    presets = {
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@quarterly": "0 0 1 */3 *",
        "@yearly": "0 0 1 1 *",
    }
    return presets.get(schedule, schedule)
