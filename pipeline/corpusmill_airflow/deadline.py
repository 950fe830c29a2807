"""Alerts of a dataset's late runs (dag.deadline), which Airflow's triggerer calls.

Airflow has no deadline that counts from a run's start: it calls `missed` when the time has passed since the run was
queued. So `missed` waits for the rest of the time, or longer while the run has not started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async  # the triggerer's own way: its requests need the loop that this returns to

from corpusmill.config.schedule import NotifierConfig
from corpusmill_airflow.notifiers import is_async, make_notifiers

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 10.0
ENDED = {"success", "failed"}


async def missed(
    dataset: str,
    within: str,
    seconds: float = 0,
    notifiers: Sequence[dict[str, Any]] = (),
    context: dict[str, Any] | None = None,
) -> None:
    """If the run is still going so many seconds after its start: log it, and call the notifiers (dag.on_late).

    Their templates may use `dag_run.dag_id` and `dag_run.run_id`, as those of on_failure. Every notifier is called; the
    first error is raised. A triggerer that restarts while the run waits in the queue may count from there.
    """
    run = dict((context or {})["dag_run"])
    dag_id, run_id = str(run["dag_id"]), str(run["dag_run_id"])
    started = datetime.fromisoformat(run["start_date"]) if run["start_date"] else None
    while started is None:
        state = await _state(dag_id, run_id)
        if state == "running":
            started = datetime.now(UTC)
        elif state in ENDED:
            return
        else:
            await asyncio.sleep(ASK_AGAIN_SECONDS)
    await asyncio.sleep(max(0.0, (started + timedelta(seconds=seconds) - datetime.now(UTC)).total_seconds()))
    if await _state(dag_id, run_id) in ENDED:
        return
    log.error("the dataset %s is late: %s has not ended within %s (dag.deadline)", dataset, run_id, within)
    about = {"dag_run": {**run, "run_id": run_id}, "run_id": run_id, "dataset": dataset, "within": within}
    failed: list[Exception] = []
    for asked in notifiers:
        try:
            await _notify(NotifierConfig.model_validate(asked), dict(about))
        except Exception as error:  # one that fails must not silence the others
            failed.append(error)
    if failed:
        raise failed[0]


async def _notify(asked: NotifierConfig, about: Any) -> None:
    (notifier,) = await sync_to_async(make_notifiers)([asked], "on_late")
    if is_async(type(notifier)):
        notifier.context = about
        await notifier
    else:
        await sync_to_async(notifier)(about)


async def _state(dag_id: str, run_id: str) -> str:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    return str(await sync_to_async(RuntimeTaskInstance.get_dagrun_state)(dag_id, run_id))
