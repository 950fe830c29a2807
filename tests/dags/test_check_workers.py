from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_workers_dag_probes_every_worker_and_succeeds(run_dag: Callable[..., Any], tmp_path, capsys) -> None:
    done = run_dag("check_workers", work_folder="work", probes=3)
    assert done.state == "success"
    assert sum(instance.task_id == "probe" for instance in done.get_task_instances()) == 3
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
def test_run_dag_after_a_run_with_a_form_begins_with_the_defaults(run_dag: Callable[..., Any]) -> None:
    """The function itself: Airflow writes a run's values into the DAG's params."""
    for form, probes in (({"probes": 3}, 3), ({}, 16)):
        run = run_dag("check_workers", **form)
        assert sum(instance.task_id == "probe" for instance in run.get_task_instances()) == probes
