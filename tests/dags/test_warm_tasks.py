"""The scheduler, and nothing else, loads the libraries that its forks will need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def loaded(component: str, executor: str, folder: Path) -> list[str]:
    """Which libraries a component has loaded once its job exists, by which Airflow says that it starts."""
    code = (
        "import sys\n"
        f"sys.argv = ['airflow', {component!r}]\n"
        "from airflow.jobs.job import Job\n"
        "Job()\n"
        "print(*(name for name in ('numba', 'pipeline') if name in sys.modules))\n"
    )
    settings = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__CORE__EXECUTOR": executor,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("component", "executor", "expected"),
    [
        ("scheduler", "LocalExecutor", ["numba"]),
        ("scheduler", "CeleryExecutor", []),
        ("triggerer", "LocalExecutor", []),
    ],
)
def test_libraries_are_loaded_by_a_scheduler_whose_tasks_are_its_forks(
    tmp_path: Path, component: str, executor: str, expected: list[str]
) -> None:
    assert loaded(component, executor, tmp_path) == expected
