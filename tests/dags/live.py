"""A real Airflow for the slow tests: a copy of the repository, started as `make up` does, spoken to over REST."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from tests.system.corpus import write_corpus

ROOT = Path(__file__).resolve().parents[2]
ENDED = {"success", "failed"}
LONGEST_SECONDS = 300  # on a machine that others use, too
LAST_LINES = 100


def tiny(name: str, **more: Any) -> dict[str, Any]:
    """A configuration that builds in a second, of the corpus in `source/`."""
    return {
        "name": name,
        "source": {"paths": ["source"], "shard_bytes": 60000},
        "dedup": {"mode": "remove", "minimum_bytes": 100},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {"nanoset": {"file_bytes": 1000000}},
        "destinations": [{"path": "outputs"}],
        **more,
    }


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Rest:
    """An Airflow with its files in `folder`, spoken to over REST."""

    folder: Path
    port: int
    settings: dict[str, str] = field(default_factory=dict)  # variables beside those that it is started with anyway
    client: httpx.Client = field(init=False)
    refused_by_sqlite: int = 0

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=LONGEST_SECONDS)

    def login_with(self, password: str) -> None:
        """Speak as the user `admin`."""
        token = self.call("POST", "/auth/token", {"username": "admin", "password": password})["access_token"]
        self.client.headers["Authorization"] = f"Bearer {token}"

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request, put again while SQLite refuses it.

        Standalone Airflow keeps its state in SQLite, which refuses a writer at once, whatever its time limit, if
        another one has committed since the first one's read. Airflow answers 500 and has done nothing.
        """
        until = time.monotonic() + LONGEST_SECONDS
        while True:
            answer = self.client.request(method, path, json=body)
            if answer.status_code != 500 or "Database error" not in answer.text or time.monotonic() > until:
                return answer
            self.refused_by_sqlite += 1
            time.sleep(0.2)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request; an answer that is no success fails the test with its words."""
        answer = self.request(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def wait_for(
        self, what: str, actual: Callable[[], Any], seconds: float = LONGEST_SECONDS, every_seconds: float = 0.5
    ) -> Any:
        """Ask until there is something."""
        until = time.monotonic() + seconds
        while not (value := actual()):
            assert time.monotonic() < until, f"{what}: not within {seconds} s\n{self.last_words()}"
            time.sleep(every_seconds)
        return value

    def last_words(self) -> str:
        """The end of Airflow's own log but for requests, for whoever reads a test's failure."""
        logs = [self.folder / "standalone.log", self.folder / ".airflow" / "standalone.log"]
        lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()]
        return "\n".join([line for line in lines if "http.access" not in line][-LAST_LINES:])

    def wait_until_parsed(self, dag: str, *, paused: bool = False) -> None:
        """Wait until Airflow knows a DAG, and let it run, or not."""

        def known() -> bool:
            answer = self.client.get(f"/api/v2/dags/{dag}")
            return answer.is_success and not answer.json()["is_stale"]

        self.wait_for(f"the DAG {dag}", known)
        self.call("PATCH", f"/api/v2/dags/{dag}?update_mask=is_paused", {"is_paused": paused})

    def trigger(self, dag: str, run: str, *, paused: bool = False, **conf: Any) -> str:
        """Start a run; returns its id. With `paused` it stays in the queue."""
        self.wait_until_parsed(dag, paused=paused)
        self.call("POST", f"/api/v2/dags/{dag}/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": conf})
        return run

    def state(self, dag: str, run: str) -> str:
        """queued, running, success or failed."""
        return str(self.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")["state"])

    def finish(self, dag: str, run: str, seconds: float = LONGEST_SECONDS, every_seconds: float = 1) -> str:
        """Wait for the end of a run; its state. Each question makes Airflow read every task of the run."""
        return str(
            self.wait_for(
                f"run {run}", lambda: (state := self.state(dag, run)) in ENDED and state, seconds, every_seconds
            )
        )

    def tasks(self, dag: str, run: str, task: str | None = None) -> dict[tuple[str, int], dict[str, Any]]:
        """{(task id, map index): the instance} of a run."""
        actual: list[dict[str, Any]] = []
        while True:
            query = f"limit=100&offset={len(actual)}"
            answer = self.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances?{query}")
            actual += answer["task_instances"]
            if len(actual) >= answer["total_entries"]:
                break
        return {(item["task_id"], item["map_index"]): item for item in actual if task in {None, item["task_id"]}}

    def log(self, dag: str, run: str, task: str, *, map_index: int = -1, try_number: int = 1) -> str:
        """What a task logged; "" before it began."""
        place = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{try_number}"
        answer = self.client.get(f"{place}?map_index={map_index}&full_content=true")
        return json.dumps(answer.json()) if answer.is_success else ""


class Live(Rest):
    """Airflow over a copy of the repository in `folder`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dags", "demo", "deploy", "plugins"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        # Not the packages, which is installed: compiled kernels count for the path of their source. They are copied.
        cache = ROOT / ".cache" / "numba"
        if cache.is_dir():
            shutil.copytree(cache, self.folder / ".cache" / "numba")
        write_corpus(self.folder / "source")

    def configure(self, config: dict[str, Any]) -> Path:
        """Write a configuration as the file of its DAG."""
        path = self.folder / "dags" / "datasets" / f"{config['name']}.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def server(self, verb: str) -> str:
        """`make up` or `make down`."""
        return self._demo("server.py", verb)

    def command(self, *arguments: str) -> str:
        """Airflow's own command line, as the documentation says it; what it printed."""
        return self._demo("command.py", *arguments)

    def _demo(self, script: str, *arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "CORPUSMILL"))}
        environment = kept | {"PYTHONPATH": str(self.folder), "CORPUSMILL_PORT": str(self.port)} | self.settings
        command = [sys.executable, f"demo/{script}", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def login(self) -> None:
        """Speak as the user whose password `make up` made."""
        self.login_with(json.loads((self.folder / ".airflow" / "passwords.json").read_text())["admin"])

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those of this Airflow whose command line holds all of `words`."""
        session = json.loads((self.folder / ".airflow" / "server.json").read_text())["pid"]
        actual = []
        for item in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(ProcessLookupError):  # ended since it was listed
                if set(words) <= set(item.info["cmdline"] or ()) and os.getsid(item.pid) == session:
                    actual.append(item)
        return actual


def wait_for_question(live: Rest, dag: str, run: str, task: str) -> str:
    """Wait until a task asks somebody, and the scheduler knows it; the address of its question, and of the answer.

    An answer that comes before the scheduler has heard that the asking process ended would queue the task again, and
    the scheduler would then take the news for that of a task that died.
    """

    def asked() -> Any:
        actual = live.tasks(dag, run, task)
        return [item for item in actual.values() if item["state"] in {"awaiting_input", "deferred"}]

    def heartbeat() -> str:
        return str(live.call("GET", "/api/v2/monitor/health")["scheduler"]["latest_scheduler_heartbeat"])

    live.wait_for("the question", asked)
    for _ in range(2):  # the first may belong to a round that began before
        last = heartbeat()
        live.wait_for("a round of the scheduler", lambda last=last: heartbeat() != last)
    return f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/-1/hitlDetails"
