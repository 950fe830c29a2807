"""Tasks that start warm: the scheduler loads libraries and pipeline/ once, and every task that it forks has them.

With LocalExecutor a task is a fork of a fork of the scheduler. Each would load numpy, numba and pipeline/ again, numba
its tables before its first kernel, pydantic its validators: 1.8 s of CPU for a step that may itself take a tenth.
None of them starts threads that a fork would lose (numba's only run for parallel kernels, of which there are none;
OpenBLAS makes its own anew). pipeline/ adds 15 MB to the scheduler, which its tasks share.

An edited step counts from the next task on, as it would without this: a task that finds a source file of pipeline/
changed since the scheduler read it forgets them all and imports them again.

Airflow's other components, and schedulers whose tasks run elsewhere, load nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

DAG_FILES = (  # what the DAG files are made with
    "airflow.sdk.definitions.decorators",
    "airflow.sdk.definitions.retry_policy",
    "airflow.providers.common.io.assets.file",
    "airflow.providers.standard.decorators.python",
    "airflow.providers.standard.decorators.short_circuit",
    "airflow.providers.standard.operators.hitl",
)
STEPS = ("numpy", "orjson", "pydantic.json_schema", "yaml", "zstandard")
PACKAGE = "pipeline"
LEFT_OUT = ("pipeline.cli", "pipeline.single", "pipeline.local")  # no task runs commands

_read: dict[Path, int] = {}  # source file of pipeline/ -> the time of its last change when the scheduler read it


def load_libraries() -> None:
    """What most steps import, and numba's tables: compiling any kernel fills them."""
    for name in (*DAG_FILES, *STEPS):
        importlib.import_module(name)
    import numba

    @numba.njit  # type: ignore[untyped-decorator]
    def nothing() -> int:
        return 0

    nothing()


def load_package() -> None:
    """Every module of pipeline/ that a step may need; checking the example builds the validators."""
    package = importlib.import_module(PACKAGE)
    try:
        for found in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
            if not found.name.startswith(LEFT_OUT):
                importlib.import_module(found.name)
        from pipeline.config import EXAMPLE, load_config

        load_config(EXAMPLE)
    finally:  # what was read before a file that cannot be imported, too
        _read.update({path: _changed(path) for path in _sources()})


def forget_edited_package() -> None:
    """Before a task: if a source file has changed, let every module of pipeline/ be imported again."""
    if any(_changed(path) != then for path, then in _read.items()):
        for name in _modules():
            del sys.modules[name]


def _modules() -> list[str]:
    return [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]


def _sources() -> list[Path]:
    files = (sys.modules[name].__file__ for name in _modules())
    return [Path(file) for file in files if file]


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


class WarmTasks:
    """Listens for the start of Airflow's components and of tasks."""

    @hookimpl
    def on_starting(self, component: object) -> None:
        """Called before the scheduler starts its executor, which forks the processes that fork the tasks; and by every
        task, which is no Job.
        """
        from airflow.configuration import conf
        from airflow.jobs.job import Job

        if not isinstance(component, Job):
            forget_edited_package()
        # Airflow calls this before a component knows its own kind; its command line tells.
        elif sys.argv[1:2] == ["scheduler"] and "LocalExecutor" in conf.get("core", "executor"):
            load_libraries()
            load_package()


class WarmTasksPlugin(AirflowPlugin):
    """Registers the listener."""

    name = "warm_tasks"
    listeners = [WarmTasks()]  # noqa: RUF012
