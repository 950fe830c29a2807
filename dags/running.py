"""Runs that are under way: they have their dataset to themselves, and they finish even if their file is deleted.

When a run of `dataset__<name>` begins, the text of its configuration is kept below the root folder. If the file is
deleted or spoilt before the run has ended, the DAG is made from that copy until then: without it Airflow would forget
the DAG and leave the run's tasks waiting for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import DatasetConfig, absolute
from pipeline.errors import CorpusmillError

if TYPE_CHECKING:
    from pipeline.stages.claim import ScheduledRun

ASK_AGAIN = timedelta(seconds=30)
UNFINISHED = {"queued", "running"}
WHY = "why"  # the XCom in which a task says to people why it does not go on; the page of the run shows the plan's


def copies() -> Path:
    """Where the configurations of runs under way are kept: `<name>.yaml`."""
    return Path(absolute(".corpusmill/running"))


def claim(config: DatasetConfig, context: Any) -> None:
    """Have the dataset to itself, or look again in half a minute (up_for_reschedule) when another run has it."""
    from airflow.sdk.exceptions import AirflowRescheduleException
    from airflow.sdk.timezone import utcnow

    from pipeline.ledger import LockHeldError
    from pipeline.stages.claim import RunUnderWayError, ScheduledRun, claim_dataset

    instance = context["ti"]
    try:
        claim_dataset(
            config, ScheduledRun(instance.dag_id, instance.run_id), lambda other: _is_under_way(instance, other)
        )
    except (RunUnderWayError, LockHeldError) as error:
        print(f"{type(error).__name__}: {error}")
        instance.xcom_push(WHY, str(error))
        raise AirflowRescheduleException(utcnow() + ASK_AGAIN) from None


@contextmanager
def refusal_shown(context: Any) -> Iterator[None]:
    """What the plan fails with is handed on in its own words: the form that was wrong is two pages from the log."""
    try:
        yield
    except CorpusmillError as error:
        context["ti"].xcom_push(WHY, str(error))
        raise


def _is_under_way(instance: Any, other: ScheduledRun) -> bool:
    return bool(instance.get_dr_count(other.job, run_ids=[other.run], states=sorted(UNFINISHED)))


def keep_copy(name: str, text: str) -> None:
    """Keep a configuration while a run of it is under way."""
    copies().mkdir(parents=True, exist_ok=True)
    temporary = copies() / f".{name}.new"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(copies() / f"{name}.yaml")


def drop_copy(name: str) -> None:
    """The run has ended well: the copy is not needed any more."""
    (copies() / f"{name}.yaml").unlink(missing_ok=True)
