"""Tasks that start warm: the scheduler loads libraries and our modules once, and every task that it forks has them.

With LocalExecutor a task is a fork of a fork of the scheduler. Each would load numpy, numba and pipeline/ again, numba
its tables and the kernels that it needs, pydantic its validators: 2.6 s of CPU for a step that may itself take a tenth.
None of them starts threads that a fork would lose (numba's only run for parallel kernels, of which there are none;
OpenBLAS makes its own anew). The scheduler pays those seconds once, and 90 MB, which its tasks share.

An edited step counts from the next task on, as it would without this: a task that finds one of our source files
changed since the scheduler read it forgets them all and imports them again.

The processor of DAG files loads what those are made with, for the processes that read them. Airflow's other
components, and schedulers whose tasks run elsewhere, load nothing.
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
    "pydantic.json_schema",
    "yaml",
)
# numba asks numpy for its masked arrays when a kernel is first called.
STEPS = ("numpy", "numpy.ma", "orjson", "zstandard")
PACKAGE = "pipeline"
LEFT_OUT = ("pipeline.cli", "pipeline.single", "pipeline.builds.local")  # no task runs commands
BESIDE_DAGS = ("checkpoints", "configurations", "dataset_dag", "running", "stage_tasks")  # which DAG files import

_read: dict[Path, int] = {}  # source file of ours -> the time of its last change when the scheduler read it


def load_libraries() -> None:
    """What most steps import, and numba's tables: compiling any kernel fills them."""
    for name in (*DAG_FILES, *STEPS):
        importlib.import_module(name)
    from airflow.sdk.listener import get_listener_manager

    get_listener_manager()  # reads the plugins
    import numba

    @numba.njit  # type: ignore[untyped-decorator]
    def nothing() -> int:
        return 0

    nothing()


def load_modules(dags_folder: str) -> None:
    """Every module of ours that a task may need, compiled kernels, and the libraries' versions, which receipts state.

    Checking the example builds the validators.
    """
    package = importlib.import_module(PACKAGE)
    try:
        for found in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
            if not found.name.startswith(LEFT_OUT):
                importlib.import_module(found.name)
        from pipeline.config import EXAMPLE, load_config
        from pipeline.ledger.receipt import installed_versions

        load_config(EXAMPLE)
        installed_versions()
        load_kernels()
        load_beside_dags(dags_folder)
    finally:  # what was read before a file that cannot be imported, too
        _read.update({path: _changed(path) for path in _sources()})


def load_kernels() -> None:
    """Every kernel that numba's cache holds compiled; the others are compiled where they are first called."""
    from numba.core.caching import FunctionCache
    from numba.core.dispatcher import Dispatcher

    for name in _modules():
        for kernel in vars(sys.modules[name]).values():
            if isinstance(kernel, Dispatcher) and isinstance(kernel._cache, FunctionCache):
                for signature, *_ in kernel._cache._cache_file._load_index():
                    kernel.compile(signature)


def load_beside_dags(folder: str) -> None:
    """The modules that the DAG files import; a task finds them by the same names, its own path being the same."""
    sys.path.append(folder)
    try:
        for name in BESIDE_DAGS:
            importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def forget_edited_modules() -> None:
    """Before a task: if a source file has changed, let every module of ours be imported again."""
    if any(_changed(path) != then for path, then in _read.items()):
        for name in _modules():
            del sys.modules[name]


def _modules() -> list[str]:
    return [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.") or name in BESIDE_DAGS]


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
            forget_edited_modules()
        # Airflow calls this before a component knows its own kind; its command line tells.
        elif sys.argv[1:2] == ["scheduler"] and "LocalExecutor" in conf.get("core", "executor"):
            load_libraries()
            load_modules(conf.get("core", "dags_folder"))
        elif sys.argv[1:2] == ["dag-processor"]:
            for name in DAG_FILES:
                importlib.import_module(name)


class WarmTasksPlugin(AirflowPlugin):
    """Registers the listener."""

    name = "warm_tasks"
    listeners = [WarmTasks()]  # noqa: RUF012
