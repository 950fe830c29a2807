from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.slow
def test_workers_j25_dag_probes_every_worker_and_succeeds(run_dag: Callable[..., Any], tmp_path, capsys) -> None:
    done = run_dag("check_workers", work_folder="work", probes=3)
    assert done.state == "success"
    assert sum(instance.task_id == "probe" for instance in done.get_task_instances()) == 3
    assert list((tmp_path / "work").iterdir()) == []
