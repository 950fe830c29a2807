"""Preloads libraries and Corpusmill before forks that need them.

With LocalExecutor a task is a fork of the scheduler, and shares what the scheduler has imported. Otherwise each would
import numpy, numba, pydantic, Airflow's decorators and Corpusmill again: 0.3 to 0.8 s of CPU, for which the scheduler
takes 170 MB once (benchmarks/preload.py). None of these modules starts a thread that a fork would lose. The DAG
processor forks for every file that it reads. A Celery worker forks, too: with `[core] lazy_load_plugins` False it loads
before. Other components, and a scheduler whose tasks run elsewhere, load nothing.

An edited module of Corpusmill counts from the next task on: `renew`, which every DAG file calls, drops all of
Corpusmill from memory if one of its files or a variable CORPUSMILL_* has changed since it was loaded. The user's own
stages may start threads or import anything, so Corpusmill, which imports them, is not preloaded where there are any.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

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
OURS = (
    "corpusmill.builds.loaded",
    "corpusmill.builds.plan",
    "corpusmill.questions",
    "corpusmill.engine.claim",
    "corpusmill_airflow.connections",
    "corpusmill_airflow.worker",
)
PACKAGES = ("corpusmill", "corpusmill_airflow")

_loaded: dict[str, tuple[int, ...]] = {}  # file of a module of ours: its state when it was loaded
_variables: dict[str, str] = {}  # CORPUSMILL_* at that time


@cache
def load_for_dag_files() -> None:
    """Import what the DAG files are made with."""
    import airflow.sdk

    for name in SDK:
        getattr(airflow.sdk, name)
    for name in PROVIDERS:
        importlib.import_module(name)
    _load_ours("corpusmill_airflow.folder_dags")


@cache
def load_for_tasks() -> None:
    """Import what most steps need, too, and fill numba's tables, which compiling any kernel does."""
    load_for_dag_files()
    if os.environ.get("CORPUSMILL_PYTHON"):  # steps run in another environment
        return
    with suppress(ModuleNotFoundError):  # a thin install, which plans refuse
        for name in STEPS:
            importlib.import_module(name)
        import numba

        numba.njit(lambda: 0)()
    _load_ours(*OURS)


def renew() -> None:
    """Drop Corpusmill from memory if it was preloaded and is no longer what an import would find."""
    if _loaded and (_variables != _own_variables() or any(_state(file) != state for file, state in _loaded.items())):
        for name in _names():
            del sys.modules[name]
        _loaded.clear()
        importlib.invalidate_caches()


def _load_ours(*names: str) -> None:
    """Import modules of ours, unless there are stages of the user's; remember the files of all that are in memory."""
    began = time.time_ns()
    if not os.environ.get("CORPUSMILL_STAGES"):
        with suppress(Exception):  # the DAG files meet the same error, and show it
            for name in names:
                importlib.import_module(name)
            from corpusmill.config import DatasetConfig

            DatasetConfig.model_rebuild()  # its schema takes 15 ms, else when the first configuration is read
    _variables.update(_own_variables())
    for name in _names():
        if (file := str(sys.modules[name].__file__)) not in _loaded:
            state = _state(file)
            _loaded[file] = state if 0 <= state[0] < began else ()  # else it may have changed while it was loaded


def _names() -> list[str]:
    """The names of our modules in memory."""
    return [name for name in list(sys.modules) if name.partition(".")[0] in PACKAGES]


def _own_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("CORPUSMILL_")}


def _state(file: str) -> tuple[int, ...]:
    """What differs once a file was written or replaced, whatever its time of writing says; -1 if it cannot be read."""
    try:
        status = Path(file).stat()
    except OSError:
        return (-1,)
    return status.st_ctime_ns, status.st_size, status.st_ino


class Preload:
    """Listens for the start of Airflow's components, and of tasks, which share what the scheduler loaded."""

    @hookimpl
    def on_starting(self, component: object) -> None:  # noqa: ARG002
        """Import before the component forks; in a task, drop what has changed since."""
        renew()
        # Airflow calls this before a component knows its own kind; its command line tells.
        if sys.argv[1:2] == ["scheduler"] and "LocalExecutor" in conf.get("core", "executor"):
            load_for_tasks()
        elif sys.argv[1:2] == ["dag-processor"]:
            load_for_dag_files()


class PreloadPlugin(AirflowPlugin):
    """Registers the listener; a Celery worker with eager plugins loads it before its processes fork."""

    name = "preload"
    listeners = [Preload()]  # noqa: RUF012

    @classmethod
    def on_load(cls, *arguments: object, **named: object) -> None:  # noqa: ARG003
        """Airflow's call when it has loaded the plugin."""
        if sys.argv[1:3] == ["celery", "worker"]:
            from celery.signals import import_modules

            import_modules.connect(_load_in_worker, weak=False)


def _load_in_worker(**_named: object) -> None:
    """Celery's call in a worker, before it forks."""
    load_for_tasks()
