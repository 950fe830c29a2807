"""Our supervisor sees the end of a task at once, and says no more often than asked that the task lives."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import uuid
from pathlib import Path

import httpx
import pytest
import yaml
from airflow.executors.workloads.task import TaskInstanceDTO

ROOT = Path(__file__).resolve().parents[2]
LINGERS_SECONDS, INTERVAL_SECONDS = 0.3, 60
THEN = "2026-01-01T00:00:00Z"
RUN = {"dag_id": "dag", "run_id": "run", "run_type": "manual", "state": "running", "run_after": THEN}
BEGUN = {  # what the API server says to a task that begins
    "dag_run": {
        **RUN,
        **dict.fromkeys(("logical_date", "start_date", "data_interval_start", "data_interval_end"), THEN),
        "end_date": None,
        "partition_key": None,
        "consumed_asset_events": [],
    },
    "max_tries": 0,
    "should_retry": False,
}


def close_and_linger() -> None:
    """A task whose sockets are closed a while before its process ends; every task's are, for a moment."""
    os.read(0, 1)  # what it is to do
    os.closerange(0, 256)
    time.sleep(LINGERS_SECONDS)
    os._exit(0)


@pytest.fixture
def supervisor(airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> object:
    """The module, with an interval of Airflow's that nobody could take for the end of a task."""
    from airflow.sdk.execution_time import supervisor

    monkeypatch.setattr(supervisor, "MIN_HEARTBEAT_INTERVAL", INTERVAL_SECONDS)
    monkeypatch.setattr(supervisor, "HEARTBEAT_TIMEOUT", 10 * INTERVAL_SECONDS)
    monkeypatch.syspath_prepend(ROOT / "plugins")
    return supervisor


def test_supervisor_of_a_task_whose_sockets_close_first_sees_its_end(supervisor: object) -> None:
    from airflow.executors.workloads.base import BundleInfo
    from airflow.sdk.api.client import Client
    from prompt_supervisor import PromptCoordinator

    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path.rpartition("/")[2])
        return httpx.Response(200, json=BEGUN)

    made = {"id": uuid.uuid4(), "dag_version_id": uuid.uuid4(), "task_id": "one", "dag_id": "dag", "run_id": "run"}
    numbers = {"try_number": 1, "pool_slots": 1, "priority_weight": 1, "queue": "default"}
    began = time.monotonic()
    with Client(base_url=None, dry_run=True, token="", transport=httpx.MockTransport(answer)) as client:
        found = PromptCoordinator().execute_task(
            what=TaskInstanceDTO(**made, **numbers),
            dag_rel_path="dag.py",
            bundle_info=BundleInfo(name="dags", version=None),
            client=client,
            target=close_and_linger,
            subprocess_logs_to_stdout=False,
        )
    assert (found.exit_code, found.final_state) == (0, "success")
    assert time.monotonic() - began < INTERVAL_SECONDS / 2  # either at once, or after the whole interval
    assert asked[0] == "run"
    assert "heartbeat" not in asked  # saying that it runs was one


def settings_of_make_up() -> dict[str, str]:
    """Airflow's settings, as `make up` gives them."""
    sys.path.insert(0, str(ROOT / "demo"))
    try:
        return importlib.import_module("server").environment(1)
    finally:
        sys.path.remove(str(ROOT / "demo"))


def settings_of_compose() -> dict[str, str]:
    """Those of docker-compose.yaml."""
    return yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]["worker"]["environment"]


@pytest.mark.parametrize(
    ("settings", "queues"), [(settings_of_make_up, {"default"}), (settings_of_compose, {"default", "ram_heavy"})]
)
def test_settings_name_the_supervisor_for_every_queue_of_ours(
    supervisor: object, monkeypatch: pytest.MonkeyPatch, settings: object, queues: set[str]
) -> None:
    from airflow.sdk.execution_time.coordinator import CoordinatorManager

    given = settings()  # type: ignore[operator]
    for name in ("AIRFLOW__SDK__COORDINATORS", "AIRFLOW__SDK__QUEUE_TO_COORDINATOR"):
        monkeypatch.setenv(name, given[name])
    assert set(json.loads(given["AIRFLOW__SDK__QUEUE_TO_COORDINATOR"])) == queues
    manager = CoordinatorManager.from_config()
    assert {type(manager.for_queue(queue)).__name__ for queue in queues} == {"PromptCoordinator"}
