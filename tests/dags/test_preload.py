"""Modules are preloaded by the components that fork processes which need them, and renewed once they were edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill.version import __version__

ROOT = Path(__file__).resolve().parents[2]
FOR_DAG_FILES = ["airflow.sdk.definitions.retry_policy", "airflow.providers.standard.operators.hitl"]
FOR_STEPS = ["numba", "numpy.ma", "orjson"]
OURS = ["corpusmill.builds.graph", "corpusmill_airflow.steps"]


@pytest.mark.parametrize(
    ("component", "executor", "expected"),
    [
        ("scheduler", "LocalExecutor", FOR_DAG_FILES + FOR_STEPS + OURS),
        pytest.param("scheduler", "CeleryExecutor", [], marks=pytest.mark.slow),
        pytest.param("dag-processor", "LocalExecutor", FOR_DAG_FILES + OURS, marks=pytest.mark.slow),
    ],
)
def test_component_that_starts_preloads_what_its_forks_need(
    tmp_path: Path, component: str, executor: str, expected: list[str]
) -> None:
    code = (
        f"import sys\nsys.argv = ['airflow', {component!r}]\nfrom airflow.jobs.job import Job\nJob()\n"
        f"print(*(name for name in {FOR_DAG_FILES + FOR_STEPS + OURS} if name in sys.modules))"
    )
    settings = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTOR": executor,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | settings,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1].split() == expected


# A DAG file in forks of a scheduler: as it was, after a variable changed, and after a file was edited or replaced.
RENEWED = """
import os, sys
from pathlib import Path
from corpusmill_airflow import preload
preload.load_for_tasks()
assert ("numba" in sys.modules) == ("CORPUSMILL_PYTHON" not in os.environ)
loaded = "corpusmill.builds.graph" in sys.modules
sys.modules["airflow.nothing"] = None  # Python allows that: it forbids an import

def in_a_fork(**variables):
    if (child := os.fork()) == 0:
        os.environ.update(variables)
        from corpusmill_airflow.factory import make_dags
        before = sys.modules.get("corpusmill.builds.graph")
        make_dags("none", lambda steps: [steps.plan(), steps.report()])
        graph = sys.modules["corpusmill.builds.graph"]
        from corpusmill.version import __version__
        same_airflow = sys.modules["corpusmill_airflow.folder_dags"].DAG is sys.modules["airflow.sdk"].DAG
        print(loaded, __version__, graph is before, same_airflow, "own" in graph.GRAPH, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

edited = Path(sys.argv[1])
in_a_fork()
in_a_fork(CORPUSMILL_STAGES="own_stage")
status = edited.stat()
edited.write_text(edited.read_text().replace("0", "9"))
os.utime(edited, ns=(status.st_atime_ns, status.st_mtime_ns))
in_a_fork()
edited.unlink()
(edited.parent / "version").mkdir()
(edited.parent / "version" / "__init__.py").write_text("__version__ = 'a folder'")
in_a_fork()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("elsewhere", "own"), [(False, False), (True, True)])
def test_edited_module_counts_in_the_next_fork_although_it_was_preloaded(
    tmp_path: Path, elsewhere: bool, own: bool
) -> None:
    for package in ("corpusmill", "corpusmill_airflow"):
        shutil.copytree(ROOT / "pipeline" / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "own_stage.py").write_text(
        "from corpusmill.engine.stage import Stage\n"
        "from corpusmill.engine.work import EveryTime\n"
        "STAGE = Stage('own', 1, after=(), work=EveryTime(lambda *_: [], lambda *_: {}, print))\n"
    )
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",  # a compiled file is found by the time of writing, which the edit keeps
        **({"CORPUSMILL_STAGES": "own_stage"} if own else {}),
        **({"CORPUSMILL_PYTHON": sys.executable} if elsewhere else {}),
    }
    command = [sys.executable, "-c", RENEWED, str(tmp_path / "corpusmill" / "version.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    edited = __version__.replace("0", "9")
    assert done.stdout.splitlines() == [
        f"{not own} {__version__} {not own} True {own}",
        f"{not own} {__version__} False True True",
        f"{not own} {edited} False True {own}",
        f"{not own} a folder False True {own}",
    ]
