"""Libraries are preloaded by the components that fork processes which need them, and by no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOR_DAG_FILES = ["airflow.sdk.definitions.retry_policy", "airflow.providers.standard.operators.hitl"]
FOR_STEPS = ["numba", "numpy.ma", "orjson"]
OURS = ["corpusmill.stages", "corpusmill_airflow.stage_tasks"]


@pytest.mark.parametrize(
    ("component", "executor", "expected"),
    [
        ("scheduler", "LocalExecutor", FOR_DAG_FILES + FOR_STEPS),
        pytest.param("scheduler", "CeleryExecutor", [], marks=pytest.mark.slow),
        pytest.param("dag-processor", "LocalExecutor", FOR_DAG_FILES, marks=pytest.mark.slow),
        pytest.param("triggerer", "LocalExecutor", [], marks=pytest.mark.slow),
    ],
)
def test_component_that_starts_preloads_what_its_forks_need_and_no_module_of_ours(
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
