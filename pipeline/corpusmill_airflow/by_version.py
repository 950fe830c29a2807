"""Names that differ or are missing in Airflow 3.1 and 3.2: the other modules import them from here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar

from corpusmill.errors import PermanentError
from corpusmill_airflow import AIRFLOW

if AIRFLOW >= (3, 2):
    from airflow.sdk import (
        AssetOrTimeSchedule,
        AsyncCallback,
        CronTriggerTimetable,
        DeadlineAlert,
        DeadlineReference,
    )
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        DownstreamTasksSkipped,
    )
    from airflow.sdk.observability.stats import Stats
else:
    from airflow.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        DownstreamTasksSkipped,
    )
    from airflow.sdk.definitions.deadline import AsyncCallback, DeadlineAlert, DeadlineReference
    from airflow.stats import Stats
    from airflow.timetables.assets import AssetOrTimeSchedule
    from airflow.timetables.trigger import CronTriggerTimetable

__all__ = [
    "RETRY_ARGUMENTS",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AssetOrTimeSchedule",
    "AsyncCallback",
    "CronTriggerTimetable",
    "DeadlineAlert",
    "DeadlineReference",
    "DownstreamTasksSkipped",
    "Stats",
    "retried_as_its_error_says",
]

Body = TypeVar("Body", bound=Callable[..., Any])

if AIRFLOW >= (3, 3):
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    RETRY_ARGUMENTS: dict[str, Any] = {
        "retry_exponential_backoff": 2.0,
        "retry_policy": ExceptionRetryPolicy(
            rules=[
                # Corrupt data, a bad configuration, accounts that do not balance.
                RetryRule("corpusmill.errors.PermanentError", RetryAction.FAIL, reason="a retry cannot help"),
                # Space must be freed first; three quick retries would only fail three times.
                RetryRule(
                    "corpusmill.errors.StorageFullError", retry_delay=timedelta(minutes=5), reason="the disk is full"
                ),
            ],
            default=RetryAction.RETRY,
        ),
    }

    def retried_as_its_error_says(body: Body) -> Body:
        """The body of a task, unchanged: the policy reads its errors."""
        return body

else:
    RETRY_ARGUMENTS = {"retry_exponential_backoff": 2.0 if AIRFLOW >= (3, 2) else True}

    def retried_as_its_error_says(body: Body) -> Body:
        """The body of a task, not retried after a PermanentError: these Airflows have no retry policies."""

        @wraps(body)
        def failing_at_once(*arguments: Any, **named_arguments: Any) -> Any:
            try:
                return body(*arguments, **named_arguments)
            except PermanentError as error:
                raise AirflowFailException(str(error)) from error

        return failing_at_once  # type: ignore[return-value]
