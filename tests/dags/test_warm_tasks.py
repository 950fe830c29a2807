"""The scheduler, and nothing else, loads what its forks will need; a task sees code that was edited since."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def said(code: str, component: str, executor: str, folder: Path) -> list[str]:
    """The words of the last line that some code prints in a component, after its job has been made."""
    settings = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__EXECUTOR": executor,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(folder),
    }
    made = f"import sys\nsys.argv = ['airflow', {component!r}]\nfrom airflow.jobs.job import Job\nJob()\n"
    done = subprocess.run(
        [sys.executable, "-c", made + code],
        env=os.environ | settings,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("component", "executor", "expected"),
    [
        ("scheduler", "LocalExecutor", ["numba", "airflow.sdk.definitions.decorators", "pipeline.stages.tokenize"]),
        ("scheduler", "CeleryExecutor", []),
        ("triggerer", "LocalExecutor", []),
    ],
)
def test_libraries_are_loaded_by_a_scheduler_whose_tasks_are_its_forks(
    tmp_path: Path, component: str, executor: str, expected: list[str]
) -> None:
    names = ("numba", "airflow.sdk.definitions.decorators", "pipeline.stages.tokenize")
    code = f"print(*(name for name in {names} if name in sys.modules))"
    assert said(code, component, executor, tmp_path) == expected


@pytest.mark.parametrize(("edited", "expected"), [(True, ["new", "new"]), (False, ["old", "old"])])
def test_task_sees_a_package_that_was_edited_after_the_scheduler_loaded_it(
    tmp_path: Path, edited: bool, expected: list[str]
) -> None:
    shutil.copytree(ROOT / "pipeline", tmp_path / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import pipeline.slices, pipeline.stages\n"
        "import pipeline.slices as one, pipeline.stages as other\n"
        f"file = {str(tmp_path / 'pipeline' / 'slices.py')!r}\n"
        "assert one.__file__ == file\n"
        f"if {edited}:\n"
        "    open(file, 'a').write('# edited')\n"
        "from airflow.listeners.listener import get_listener_manager\n"
        "get_listener_manager().hook.on_starting(component='a task')\n"
        "import pipeline.slices, pipeline.stages\n"
        "same = (pipeline.slices is one, pipeline.stages is other)\n"
        "print(*('old' if kept else 'new' for kept in same))\n"
    )
    assert said(code, "scheduler", "LocalExecutor", tmp_path) == expected
