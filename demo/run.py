"""`make demo`: a dataset from raw text to four training formats, under Airflow, offline.

Collects the sample corpus, starts Airflow (unless it runs), triggers build_dataset over REST, shows progress,
prints the report, and stops Airflow again if it was started here.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import server

from corpusmill.builds.graph import open_build
from corpusmill.builds.progress import RunProgress
from corpusmill.engine.stage import StepMissingError
from corpusmill.report.progress import StageProgress, progress_view
from corpusmill.report.summary import from_json
from corpusmill.report.terminal import print_summary

DAG = "build_dataset"
PARSE_SECONDS = 60
LOG_TAIL_LINES = 40
TRIES = 5
SAMPLE = server.ROOT / "sample"
POLL_SECONDS = 0.5


class RunFailedError(Exception):
    """The run ended without success; the message carries what the failed tasks logged."""


class ApiError(server.ServerError):
    """Airflow refused a call; the message carries what it said."""

    def __init__(self, method: str, path: str, error: urllib.error.HTTPError) -> None:
        self.code = error.code
        super().__init__(f"Airflow refused {method} {path}: {error.code}\n{error.read().decode(errors='replace')}")


@dataclass(frozen=True)
class Api:
    """Airflow's REST API at one server."""

    airflow: server.Server

    @cached_property
    def token(self) -> str:
        """A short-lived token."""
        login = {"username": server.USER, "password": server.password()}
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

    def failed_tasks(self, run: str) -> list[tuple[str, str]]:
        """(name, the end of the log) of every task of the run that failed by itself, the first one first."""
        query = "state=failed&order_by=end_date&limit=100"
        tasks = self._call("GET", f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances?{query}")["task_instances"]
        return [(_name(task), self._log(run, task)) for task in tasks]

    def run_page(self, run: str) -> str:
        """Address of the run in the UI."""
        return f"{self.airflow.url}/dags/{DAG}/runs/{run}"

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
                raise server.ServerError(f"Airflow cannot read {errors[0]['filename']}\n{errors[0]['stack_trace']}")
            time.sleep(0.3)
        raise server.ServerError(f"Airflow did not read the DAG {DAG} within {PARSE_SECONDS} s\n{server.log_tail()}")

    def _call(self, method: str, path: str, body: object = None, *, authorized: bool = True) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if authorized:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.airflow.url + path, data, headers, method=method)  # noqa: S310
        for attempt in range(1, TRIES + 1):
            try:
                with server.DIRECT.open(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == TRIES:
                    raise ApiError(method, path, error) from error
            except OSError as error:
                raise server.ServerError(f"Airflow no longer responds: {error}\n{server.log_tail()}") from error
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


def main() -> int:
    """Run the demo; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Airflow is stopped then, too
    began = time.monotonic()
    started = False
    try:
        kernels = beside(
            "The kernels could not be compiled", str(server.ROOT / "deploy" / "compile_kernels.py"), "demo"
        )
        with sample_corpus(), kernels:
            airflow, started = server.start()
        print(f"Airflow runs at {airflow.url}   ({time.monotonic() - began:.0f} s)")
        build_demo(Api(airflow))
    except (server.ServerError, RunFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Finished steps are kept and will be reused.", file=sys.stderr)
        return 130
    finally:
        if started and server.stop():
            print("Airflow is stopped.")
    print(f"All of it took {time.monotonic() - began:.0f} s.  Next: make up (the UI), or read README.md.")
    return 0


def build_demo(api: Api) -> None:
    """Trigger the DAG, follow the run to its end, print its report."""
    run = f"demo_{datetime.now(UTC):%Y%m%dT%H%M%S}"
    api.trigger(run)
    print(f"Building the dataset: {api.run_page(run)}")
    try:
        state = follow(api, run)
    except (KeyboardInterrupt, SystemExit):
        api.give_up(run)  # else it would be resumed when Airflow starts again
        raise
    if state != "success":
        failures = "\n".join(f"  {name}\n{log}" for name, log in api.failed_tasks(run))
        raise RunFailedError(f"The run {run} {state}.\n{failures}")
    # A run in which nothing has changed ends with its plan, which names the last report.
    report = Path(str(api.result(run, "report") or api.result(run, "plan", "unchanged"))).parent
    print_summary(from_json((report / "summary.json").read_bytes()), report / "report.html")
    print(f"In the UI: make up, then {api.run_page(run)}")


def follow(api: Api, run: str) -> str:
    """Show how far the stages are until the run has ended; returns its state."""
    while (plan := api.result(run, "plan")) is None:
        if (state := api.run_state(run)) in {"success", "failed"}:
            return state
        time.sleep(POLL_SECONDS)
    with progress_view(lambda: progress_of(Path(plan))):
        while (state := api.run_state(run)) not in {"success", "failed"}:
            time.sleep(POLL_SECONDS)
    return state


def progress_of(plan_receipt: Path) -> list[StageProgress]:
    """How far a run elsewhere is, by the receipts that are there at this moment."""
    build = open_build(plan_receipt)
    progress = RunProgress(build.graph, build.graph.names)
    with build.at_this_moment():
        for stage in build.graph.names:
            # Units may not be known yet, and a receipt goes when its step runs again.
            with suppress(StepMissingError, FileNotFoundError):
                progress.begin(build, stage)
                for unit in build.units(stage):
                    if build.find(stage, unit):
                        progress.end(build, stage, unit)
    return progress.read()


@contextmanager
def sample_corpus() -> Iterator[None]:
    """Collect the sample corpus beside whatever the body does; it appears under its name when it is complete."""
    if SAMPLE.exists():
        print(f"Sample text: {SAMPLE}")
        yield
        return
    print(f"Collecting sample text from the installed Python packages: {SAMPLE}")
    partial = SAMPLE.with_name(".sample-being-written")
    with beside("The sample corpus could not be written", str(server.ROOT / "deploy/sample_corpus.py"), str(partial)):
        yield
    partial.rename(SAMPLE)


@contextmanager
def beside(failed: str, *arguments: str) -> Iterator[None]:
    """Run Python with these arguments while the body runs, then wait for it."""
    with subprocess.Popen([sys.executable, *arguments], env=server.environment(server.DEFAULT_PORT)) as process:
        try:
            yield
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RunFailedError(f"{failed}; its messages are above. Exit code {process.returncode}.")


if __name__ == "__main__":
    sys.exit(main())
