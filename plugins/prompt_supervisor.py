"""A supervisor of tasks that sees at once that its task has ended, and that says only every few seconds that it lives.

Airflow 3.3.2's waits for words of its task, or until `[workers] min_heartbeat_interval` is over. But a process closes
its sockets a moment before it can be waited for. Who looks in between has nothing left to hear from, and waits for the
whole interval, its worker with it: a third of all tasks did (40 of 128 counted). A shorter interval makes that wait
short, and then every task at work calls the API server as often, 20 ms of processor each time.

Airflow calls this where `[sdk] coordinators` and `[sdk] queue_to_coordinator` name it; tasks of other queues have
Airflow's own supervisor.
"""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk.execution_time.coordinator import BaseCoordinator

LOOK_AGAIN_SECONDS = 0.01  # from the last socket's end to the process's, which follows by itself


class PromptCoordinator(BaseCoordinator):
    """Runs Python tasks as Airflow's own coordinator does, under the supervisor described above."""

    def execute_task(self, **arguments: Any) -> BaseCoordinator.ExecutionResult:
        """Run one task in a process of its own; returns its exit code and the state that it ended in."""
        # Airflow imports this module wherever it loads plugins; most of those places supervise nothing.
        from airflow.sdk.execution_time.supervisor import ActivitySubprocess

        class Supervisor(ActivitySubprocess):
            def _service_subprocess(self, max_wait_time: float, **more: Any) -> int | None:
                wait = max_wait_time if self._open_sockets else LOOK_AGAIN_SECONDS
                found: int | None = super()._service_subprocess(wait, **more)
                return found

        process = Supervisor.start(**arguments)
        process._last_heartbeat_attempt = time.monotonic()  # saying that it runs was the first heartbeat
        return self.ExecutionResult(process.wait(), process.final_state)
