"""The `dag` section of a configuration: when a scheduler builds the dataset, and what people see of it.

It never changes a byte: it is left out of every dump of the configuration, and so out of the plan, every fingerprint
and `config.json`. `corpusmill build` accepts the section and ignores it.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from corpusmill.config.values import Arguments, Section, Used
from corpusmill.config.yaml_text import shown
from corpusmill.errors import InvalidValueError

NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
MOST_TASKS = 200  # of a step
_SECONDS = {"m": 60, "h": 3600, "d": 86400}
_LONGEST = timedelta(days=3650)
_DURATION = re.compile(r"^(\d{1,9})\s*([mhd])$")
# minute, hour, day of the month, month, day of the week
_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_ITEM = re.compile(r"(?:[*?]|[Ll]?(\d{1,9}|[A-Za-z]+)(?:-(\d{1,9}|[A-Za-z]+))?)(?:/0*[1-9]\d*|#[1-5])?")


def _duration(value: object) -> object:
    match = _DURATION.match(value) if isinstance(value, str) else None
    if isinstance(value, timedelta):
        return value
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise InvalidValueError(
            f"config.duration: a duration is a number above 0 with m, h or d (30m, 12h, 2d), at most {_LONGEST.days}d,"
            f" got {shown(value)}"
        )
    return timedelta(seconds=seconds)


def _is_cron_field(text: str, limits: tuple[int, int]) -> bool:
    """Whether a field of a cron expression names values that exist, by numbers within `limits` or by names."""
    items = [_CRON_ITEM.fullmatch(item) for item in text.split(",")]
    numbers = [int(value) for item in items if item for value in item.groups() if value and value.isdecimal()]
    return all(items) and all(limits[0] <= number <= limits[1] for number in numbers)


Duration = Annotated[timedelta, BeforeValidator(_duration)]
DatasetName = Annotated[str, Field(pattern=NAME_PATTERN)]
# The longest text that a scheduler's tables store.
Label = Annotated[str, Field(min_length=1, max_length=100)]
# Dates that a time zone's offset cannot push out of the calendar.
Day = Annotated[date, Field(ge=date(1970, 1, 1), lt=date(2200, 1, 1))]


class NotifierConfig(Section):
    """A notifier of the scheduler: its class, as `module:Class`, and the arguments with which it is made."""

    model_config = ConfigDict(serialize_by_alias=True)

    use: Used
    arguments: Arguments = {}


class ScheduleConfig(Section):
    """When the dataset is built (cron, or after other datasets), its owner, time limits, and where its tasks run."""

    schedule: str | None = None
    after: list[DatasetName] = []
    start: Day | None = None
    catchup: bool = False
    owner: Label = "corpusmill"
    tags: list[Label] = []
    doc: str | None = None
    deadline: Duration | None = None
    on_failure: list[NotifierConfig] = []
    on_success: list[NotifierConfig] = []
    on_late: list[NotifierConfig] = []
    task_timeout: Duration = timedelta(days=2)
    approve_removal: bool = False
    queues: dict[str, Label] = {}
    pods: dict[str, dict[str, Any]] = {}
    connections: dict[Literal["s3", "gs", "hf"], Label] = {}
    most_tasks: Annotated[int, Field(ge=1, le=1000)] = MOST_TASKS
    task_processes: Annotated[int, Field(ge=1, le=1024)] | None = None

    @field_validator("schedule")
    @classmethod
    def _is_cron(cls, schedule: str | None) -> str | None:
        if schedule is None or schedule in PRESETS:
            return schedule
        fields = schedule.split()
        if len(fields) != 5 or not all(map(_is_cron_field, fields, _CRON_RANGES)):
            raise InvalidValueError(
                f"config.schedule: not a schedule: {shown(schedule)}; write five cron fields ('30 2 * * 1': Mondays at"
                f" 2:30, UTC) or one of {', '.join(PRESETS)}"
            )
        return schedule

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ScheduleConfig:
        if self.catchup and not (self.schedule and self.start):
            raise InvalidValueError(
                "config.catchup_without_schedule: catchup builds for missed dates: it needs schedule and start"
            )
        if self.after and self.catchup:
            raise InvalidValueError(
                "config.catchup_with_after: after waits for other datasets and has no missed dates; leave catchup out"
            )
        if self.on_late and not self.deadline:
            raise InvalidValueError(
                "config.late_without_deadline: on_late tells of late runs: it needs deadline, such as 12h"
            )
        return self
