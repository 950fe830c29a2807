"""The few calls of Airflow's REST API that the demo makes."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from server import DIRECT, USER, Server, ServerError, log_tail, password

DAG = "build_dataset"
PARSE_SECONDS = 60
LOG_TAIL_LINES = 40
TRIES = 5


class ApiError(ServerError):
    """Airflow refused a call; the message carries what it said."""

    def __init__(self, method: str, path: str, error: urllib.error.HTTPError) -> None:
        self.code = error.code
        super().__init__(f"Airflow refused {method} {path}: {error.code}\n{error.read().decode(errors='replace')}")


@dataclass(frozen=True)
class FailedTask:
    """A task of a run that failed, and the end of its log."""

    name: str
    log: str


@dataclass(frozen=True)
class Api:
    """Airflow's REST API at one server."""

    server: Server

    @cached_property
    def token(self) -> str:
        """A short-lived token."""
        login = {"username": USER, "password": password()}
        return str(self._call("POST", "/auth/token", login, authorized=False)["access_token"])

    def trigger(self, run: str) -> None:
        """Unpause the DAG and start a run with the form's defaults, in the place of unfinished runs of the same kind.

        Runs wait for each other, and one that was cut off (by kill -9, by a power cut) would first be waited for.
        """
        self._wait_until_parsed()
        kind = run.partition("_")[0] + "_"
        unfinished = self._call("GET", f"/api/v2/dags/{DAG}/dagRuns?state=running&state=queued&limit=100")["dag_runs"]
        for other in unfinished:
            if other["dag_run_id"].startswith(kind):
                self.give_up(other["dag_run_id"])
        self._call("PATCH", f"/api/v2/dags/{DAG}?update_mask=is_paused", {"is_paused": False})
        try:
            self._call("POST", f"/api/v2/dags/{DAG}/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": {}})
        except ApiError as error:
            if error.code != 409:  # it exists: an earlier try had got through
                raise

    def give_up(self, run: str) -> None:
        """Mark a run as failed; Airflow ends its tasks."""
        self._call("PATCH", f"/api/v2/dags/{DAG}/dagRuns/{run}?update_mask=state", {"state": "failed"})

    def run_state(self, run: str) -> str:
        """queued, running, success or failed."""
        return str(self._call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run}")["state"])

    def result(self, run: str, task: str, key: str = "return_value") -> str | None:
        """The path of a receipt that the tasks plan or report handed on, or None if there is none, or not yet."""
        try:
            value = self._call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/{task}/xcomEntries/{key}")
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        handed = value["value"]
        if isinstance(handed, list):  # the plan's: what each part of a step is given
            return str(handed[0]["plan_receipt"])
        return str(json.loads(handed) if handed.startswith('"') else handed)

    def failed_tasks(self, run: str) -> list[FailedTask]:
        """Every task of the run that failed by itself, the first one first."""
        query = "state=failed&order_by=end_date&limit=100"
        tasks = self._call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances?{query}")["task_instances"]
        return [FailedTask(_name(task), self._log(run, task)) for task in tasks]

    def run_page(self, run: str) -> str:
        """Address of the run in the UI."""
        return f"{self.server.url}/dags/{DAG}/runs/{run}"

    def _log(self, run: str, task: dict[str, Any]) -> str:
        place = f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
        events = self._call("GET", f"{place}?map_index={task['map_index']}&full_content=true")["content"]
        lines = [line for event in events for line in _lines(event)]
        return "\n".join(f"    {line}" for line in lines[-LOG_TAIL_LINES:])

    def _wait_until_parsed(self) -> None:
        deadline = time.monotonic() + PARSE_SECONDS
        while time.monotonic() < deadline:
            dags = self._call("GET", f"/api/v2/dags?dag_id_pattern={DAG}")["dags"]
            if any(dag["dag_id"] == DAG and not dag["is_stale"] for dag in dags):
                return
            errors = self._call("GET", "/api/v2/importErrors")["import_errors"]
            if errors:
                raise ServerError(f"Airflow cannot read {errors[0]['filename']}\n{errors[0]['stack_trace']}")
            time.sleep(0.3)
        raise ServerError(f"Airflow did not read the DAG {DAG} within {PARSE_SECONDS} s\n{log_tail()}")

    def _call(self, method: str, path: str, body: object = None, *, authorized: bool = True) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if authorized:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)  # noqa: S310
        for attempt in range(1, TRIES + 1):
            try:
                with DIRECT.open(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == TRIES:
                    raise ApiError(method, path, error) from error
            except OSError as error:
                raise ServerError(f"Airflow no longer responds: {error}\n{log_tail()}") from error
            time.sleep(1)  # SQLite was busy; every call here may be repeated
        raise AssertionError("not reached")


def _name(task: dict[str, Any]) -> str:
    return f"{task['task_id']} {task['rendered_map_index']}" if task["rendered_map_index"] else str(task["task_id"])


def _lines(event: dict[str, Any]) -> list[str]:
    """One log entry as lines: its text, and the errors that came with it."""
    text = str(event.get("event", ""))
    if text.startswith("::"):
        return []
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail") or []]
    return [line for part in (text, *errors) for line in part.splitlines()]
