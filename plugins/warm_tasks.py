"""Tasks that start warm: the scheduler loads the compiled libraries once, and every task that it forks has them.

With LocalExecutor a task is a fork of a fork of the scheduler. Each would load numpy and numba, and numba its tables
before its first kernel, again: 1.3 s of CPU, of the 1.6 that the step of a small shard takes (0.3 with this). Only
libraries, and no code of pipeline/, so that an edited step counts from the next task on. None of them starts threads
that a fork would lose (numba's only run for parallel kernels, of which there are none; OpenBLAS makes its own anew).

Airflow's other components, and schedulers whose tasks run elsewhere, load nothing.
"""

from __future__ import annotations

import sys

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin


def load_libraries() -> None:
    """What most steps import, and numba's tables: compiling any kernel fills them."""
    import airflow.providers.standard.decorators.python  # noqa: F401  (what every task of a DAG file is made with)
    import numba
    import orjson  # noqa: F401
    import pydantic.json_schema  # noqa: F401
    import yaml  # noqa: F401
    import zstandard  # noqa: F401

    @numba.njit  # type: ignore[untyped-decorator]
    def nothing() -> int:
        return 0

    nothing()


class WarmTasks:
    """Listens for the start of Airflow's components."""

    @hookimpl
    def on_starting(self) -> None:
        """Called before the scheduler starts its executor, which forks the processes that fork the tasks."""
        from airflow.configuration import conf

        # Airflow calls this before a component knows its own kind; its command line tells.
        if sys.argv[1:2] == ["scheduler"] and "LocalExecutor" in conf.get("core", "executor"):
            load_libraries()


class WarmTasksPlugin(AirflowPlugin):
    """Registers the listener."""

    name = "warm_tasks"
    listeners = [WarmTasks()]  # noqa: RUF012
