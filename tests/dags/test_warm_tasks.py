"""The scheduler, and nothing else, loads what its forks will need; a task sees code that was edited since."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("numba", "airflow.sdk.definitions.decorators", "pipeline.stages.tokenize", "stage_tasks")


def said(code: str, component: str, executor: str, folder: Path) -> list[str]:
    """The words of the last line that some code prints in a component, after its job has been made."""
    settings = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags" if (folder / "dags").exists() else ROOT / "dags"),
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
        ("scheduler", "LocalExecutor", list(NAMES)),
        ("scheduler", "CeleryExecutor", []),
        ("dag-processor", "LocalExecutor", ["airflow.sdk.definitions.decorators"]),
        ("triggerer", "LocalExecutor", []),
    ],
)
def test_libraries_are_loaded_by_a_scheduler_whose_tasks_are_its_forks(
    tmp_path: Path, component: str, executor: str, expected: list[str]
) -> None:
    code = f"print(*(name for name in {NAMES} if name in sys.modules))"
    assert said(code, component, executor, tmp_path) == expected


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        (None, ["old", "old", "old"]),
        ("pipeline/slices.py", ["new", "new", "new"]),
        ("dags/stage_tasks.py", ["new", "new", "new"]),
    ],
)
def test_task_sees_modules_that_were_edited_after_the_scheduler_loaded_them(
    tmp_path: Path, edited: str | None, expected: list[str]
) -> None:
    for name in ("pipeline", "dags"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "names = ('pipeline.slices', 'pipeline.stages', 'stage_tasks')\n"
        "before = [sys.modules[name] for name in names]\n"
        f"assert all(one.__file__.startswith({str(tmp_path)!r}) for one in before)\n"
        f"if {edited!r}:\n"
        f"    open({str(tmp_path / (edited or ''))!r}, 'a').write('# edited')\n"
        "from airflow.listeners.listener import get_listener_manager\n"
        "get_listener_manager().hook.on_starting(component='a task')\n"
        "same = [sys.modules.get(name) is one for name, one in zip(names, before)]\n"
        "print(*('old' if kept else 'new' for kept in same))\n"
    )
    assert said(code, "scheduler", "LocalExecutor", tmp_path) == expected


def test_kernels_that_are_compiled_already_are_loaded_for_every_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    count = "from pipeline.slices import _copy\nprint(len(_copy.signatures))"
    assert said(count, "scheduler", "LocalExecutor", tmp_path) == ["0"]
    call = "import numpy as np\nfrom pipeline.slices import copy_slices\none = np.ones(1, np.uint64)\n"
    said(f"{call}copy_slices(one, one - one, one, one.copy())\nprint()\nprint('called')", "triggerer", "", tmp_path)
    assert said(count, "scheduler", "LocalExecutor", tmp_path) == ["1"]
