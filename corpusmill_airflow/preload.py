"""Preloads libraries and Corpusmill before forks that need them.

With LocalExecutor a task is a fork of the scheduler, and shares what the scheduler has imported. Otherwise each would
import numpy, numba, pydantic, Airflow's decorators and Corpusmill again: 2 s of processor time, which costs the
scheduler 160 MB once. None of these modules starts a thread that a fork would lose. The DAG processor forks for every
file that it reads. Other components, and a scheduler whose tasks run elsewhere, load nothing.

An edited module of Corpusmill, or of a stage of the user's, counts from the next task on: `renew`, which the DAG files
call in each process, drops all of them from memory if a file of any has changed since it was loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
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
OURS_FOR_DAG_FILES = ("corpusmill_airflow.folder_dags",)
OURS_FOR_TASKS = (
    "corpusmill.builds.loaded",
    "corpusmill.builds.plan",
    "corpusmill.builds.questions",
    "corpusmill.engine.claim",
    "corpusmill_airflow.connections",
    "corpusmill_airflow.worker",
)
LIBRARIES = ("croniter", "pydantic", "xxhash", "yaml")  # those of ours, which stay in memory
STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))

_loaded: dict[str, tuple[int, ...]] = {}  # file of a module that may be edited: its state when it was loaded


@cache
def load_for_dag_files() -> None:
    """Import what the DAG files are made with."""
    import airflow.sdk

    for name in SDK:
        getattr(airflow.sdk, name)
    for name in (*PROVIDERS, *LIBRARIES):
        importlib.import_module(name)
    _load_ours(*OURS_FOR_DAG_FILES)
    from corpusmill.config import DatasetConfig

    DatasetConfig.model_rebuild()  # its schema takes 15 ms, else when the first configuration is read


@cache
def load_for_tasks() -> None:
    """Import what most steps need, too, and fill numba's tables, which compiling any kernel does."""
    load_for_dag_files()
    if os.environ.get("CORPUSMILL_PYTHON"):  # steps run in another environment
        return
    with suppress(ModuleNotFoundError):  # without the extra `worker`, which plans require
        for name in STEPS:
            importlib.import_module(name)
        import numba

        numba.njit(lambda: 0)()
    _load_ours(*OURS_FOR_TASKS)


def renew() -> None:
    """Drop modules that were preloaded from files that have changed since, and those loaded with them."""
    if any(_state(file) != state for file, state in _loaded.items()):
        for name in [name for name, file in _files() if file in _loaded]:
            del sys.modules[name]
        _loaded.clear()


def _load_ours(*names: str) -> None:
    """Import modules of ours, and remember the files that may be edited: theirs, and others outside of libraries."""
    known, began = set(sys.modules), time.time_ns()
    with suppress(Exception):  # such as a stage of the user's that cannot be imported: the DAG files say so
        for name in names:
            importlib.import_module(name)
    packages = _packages()
    for name, file in _files():
        editable = name.partition(".")[0] in packages or (name not in known and not _is_library(file))
        if editable and file.endswith(".py") and file not in _loaded:
            state = _state(file)
            _loaded[file] = state if state and state[0] < began else ()  # written while it was loaded: load it again


def _files() -> list[tuple[str, str]]:
    """(name, file) of every module in memory; "" if it has none. Asking a lazy module for `__file__` would load it."""
    return [(name, vars(module).get("__file__") or "") for name, module in sys.modules.items()]


def _is_library(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return file.startswith(STANDARD_LIBRARY) or bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _packages() -> set[str]:
    """Ours, and those of the user's stages."""
    named = os.environ.get("CORPUSMILL_STAGES", "").split(",")
    return {"corpusmill", "corpusmill_airflow", *(name.strip().partition(".")[0] for name in named)}


def _state(file: str) -> tuple[int, ...]:
    """What differs once a file was written or replaced, whatever its time of writing says; empty if it is gone."""
    try:
        status = Path(file).stat()
    except OSError:
        return ()
    return status.st_ctime_ns, status.st_size, status.st_ino


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
