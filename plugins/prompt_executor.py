"""Airflow's LocalExecutor under a scheduler that rests until a task ends, rather than for a while at a time.

The scheduler looks at every task that waits, a tenth of a second of work, and sleeps when nothing has happened. With
long sleeps the end of every stage costs one; with short ones it looks for nothing while long tasks run, for a fifth of
a core. Between two looks Airflow calls `sync`: resting there until a worker says that its task has ended does neither.
So this executor goes with `[scheduler] scheduler_idle_sleep_time` 0, and its scheduler never rests elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

from airflow.executors.local_executor import LocalExecutor

REST_SECONDS = 2.0  # while tasks run; a run that somebody triggers then begins that much later
IDLE_REST_SECONDS = 0.5  # while none runs


class PromptLocalExecutor(LocalExecutor):
    """Tasks as processes of this machine; the scheduler waits for their ends."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._unfinished: set[Any] = set()  # Airflow 3.3.2 keeps `running` empty for this executor

    def _process_workloads(self, workload_list: Sequence[Any]) -> None:
        self._unfinished.update(workload.key for workload in workload_list)
        super()._process_workloads(workload_list)

    def sync(self) -> None:
        """Take note of what has ended; waits for that, unless there is something else to tell.

        While every worker has work and more lies ready for the next that is free, nobody needs the scheduler.
        """
        rest = 0.0 if self.event_buffer else REST_SECONDS if self._unfinished else IDLE_REST_SECONDS
        until = time.monotonic() + rest
        while True:
            wait([self.result_queue._reader], max(0.0, until - time.monotonic()))  # type: ignore[attr-defined]
            self._take_note()
            if len(self._unfinished) <= self.parallelism or time.monotonic() >= until:
                return

    def _take_note(self) -> None:
        super().sync()
        ended = (key for key, (state, _) in self.event_buffer.items() if state not in {"queued", "running"})
        self._unfinished.difference_update(ended)
