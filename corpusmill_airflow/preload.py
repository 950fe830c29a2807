"""Preloads libraries before forks that need them.

With LocalExecutor a task is a fork of the scheduler, and shares what the scheduler has imported. Otherwise each would
import numpy, numba, pydantic and Airflow's decorators again: 2 s of processor time, which costs the scheduler 90 MB
once. None of these libraries starts a thread that a fork would lose. The DAG processor forks for every file that it
reads. Other components, and a scheduler whose tasks run elsewhere, load nothing.

No module of ours is preloaded, so an edited one counts from the next task on.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache

from airflow.configuration import conf
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

SDK = ("DAG", "Asset", "ExceptionRetryPolicy", "Param", "TaskGroup", "task")  # airflow.sdk imports them when asked
PROVIDERS = (
    "airflow.providers.common.io.assets.file",
    "airflow.providers.standard.decorators.python",
    "airflow.providers.standard.decorators.short_circuit",
    "airflow.providers.standard.operators.hitl",
)
STEPS = ("numpy.ma", "orjson")  # numba asks for masked arrays when a kernel is first called


@cache
def load_for_dag_files() -> None:
    """Import what the DAG files are made with."""
    import airflow.sdk

    for name in SDK:
        getattr(airflow.sdk, name)
    for name in PROVIDERS:
        importlib.import_module(name)


@cache
def load_for_tasks() -> None:
    """Import what most steps need, too, and fill numba's tables, which compiling any kernel does."""
    load_for_dag_files()
    for name in STEPS:
        importlib.import_module(name)
    import numba

    numba.njit(lambda: 0)()


class Preload:
    """Listens for the start of Airflow's components, and of tasks, which share what the scheduler loaded."""

    @hookimpl
    def on_starting(self, component: object) -> None:  # noqa: ARG002
        """Import before the component forks."""
        # Airflow calls this before a component knows its own kind; its command line tells.
        if sys.argv[1:2] == ["scheduler"] and "LocalExecutor" in conf.get("core", "executor"):
            load_for_tasks()
        elif sys.argv[1:2] == ["dag-processor"]:
            load_for_dag_files()


class PreloadPlugin(AirflowPlugin):
    """Registers the listener."""

    name = "preload"
    listeners = [Preload()]  # noqa: RUF012
