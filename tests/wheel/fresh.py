"""Environments made from the wheel alone, in a folder outside of the repository, and an Airflow in one of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.dags.live import Rest, tiny
from tests.system.corpus import write_corpus

ROOT = Path(__file__).resolve().parents[2]
# The newest release of each minor version that is supported, and a day on which its dependencies were those that it was
# released with: its own constraint files are not on the package index, and newer packages break older Airflows.
AIRFLOWS = {"3.1.8": "2026-03-25", "3.2.2": "2026-06-15", "3.3.2": "2026-11-20"}
TRIED = os.environ.get("CORPUSMILL_TEST_AIRFLOWS", " ".join(AIRFLOWS)).split()
UNREACHABLE = ("Failed to fetch", "error sending request", "client error (Connect)", "No route to host")
PASSWORD = "a password for tests"  # noqa: S105
# What `airflow standalone` starts, and each again when it ends, as a supervisor of processes does: a scheduler to which
# SQLite refuses a write ends, and standalone goes on without it.
COMPONENTS = """
airflow db migrate || exit
for component in api-server scheduler dag-processor triggerer; do
    while :; do airflow $component; echo "$component ended ($?): starting it again"; sleep 1; done &
done
wait
"""


def run(*command: str | Path, **arguments: Any) -> str:
    """What a program printed; the test fails with its words, or is skipped if it could not reach a package index."""
    environment = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **outside()}
    done = subprocess.run(
        [*map(str, command)], **{"env": environment, **arguments}, capture_output=True, text=True, check=False
    )
    if done.returncode and any(words in done.stderr for words in UNREACHABLE):
        pytest.skip("no package index can be reached, and these environments are made from one")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outside() -> dict[str, str]:
    """The variables of this process without those that lead Python, Airflow or Corpusmill into the repository."""
    ours = ("AIRFLOW", "CORPUSMILL", "NUMBA", "PYTEST", "PYTHON", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def uv() -> str:
    """The program that `make setup` installs, or the user's own."""
    own = ROOT / ".cache" / "setup-venv" / "bin" / "uv"
    program = str(own) if own.exists() else shutil.which("uv")
    if program is None:
        pytest.skip("needs the program uv (make setup installs it)")
    return program


def make_wheel(folder: Path) -> Path:
    """The wheel, made as `make wheel` does."""
    run("make", "wheel", f"WHEELS={folder}", cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, *packages: str | Path, newest: str = "") -> Path:
    """The interpreter of a new environment with these packages, none released after the day `newest`."""
    run(uv(), "venv", "-q", "--allow-existing", "--python", sys.executable, folder)
    dated = ["--exclude-newer", newest] if newest else []
    run(uv(), "pip", "install", "-q", "--python", folder / "bin" / "python", *dated, *packages)
    return folder / "bin" / "python"


def installed(folder: Path) -> dict[str, str]:
    """{package: version} of an environment."""
    listed = run(uv(), "pip", "list", "--format", "json", "--python", folder / "bin" / "python")
    return {package["name"]: package["version"] for package in json.loads(listed)}


@dataclass
class Fresh(Rest):
    """An Airflow of the environment `folder`/airflow-env, with a folder of configurations."""

    def start(self) -> None:
        """Write what a user writes, and start it."""
        datasets = self.folder / "dags" / "datasets"
        datasets.mkdir(parents=True)
        write_corpus(self.folder / "source")
        (datasets / "tiny.yaml").write_text(yaml.safe_dump(tiny("tiny") | {"dag": {"most_tasks": 2}}))
        (datasets / "spoilt.yaml").write_text("name: spoilt\n")
        run(self.folder / "airflow-env" / "bin" / "python", "-m", "corpusmill_airflow", self.folder / "dags")
        plugins = self.folder / "home" / "plugins"
        plugins.mkdir(parents=True)
        shutil.copy(ROOT / "plugins" / "preload.py", plugins)
        (self.folder / "passwords.json").write_text(json.dumps({"admin": PASSWORD}))
        log = (self.folder / "standalone.log").open("wb")
        self.process = subprocess.Popen(
            ["sh", "-c", COMPONENTS],
            cwd=self.folder,
            env=self.environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.wait_for("the API server", self._is_healthy)
        self.login_with(PASSWORD)

    def environment(self) -> dict[str, str]:
        """What the documentation tells people to set, and what keeps this Airflow to itself."""
        settings = {
            "CORE__DAGS_FOLDER": self.folder / "dags",
            "CORE__LOAD_EXAMPLES": False,
            "CORE__PARALLELISM": 4,
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": 0.5,
            "WORKERS__MIN_HEARTBEAT_INTERVAL": 1,
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": self.folder / "passwords.json",
            "API__HOST": "127.0.0.1",
            "API__PORT": self.port,
            "API__BASE_URL": f"http://127.0.0.1:{self.port}",
            "LOGGING__WORKER_LOG_SERVER_PORT": self.port + 1,
            "LOGGING__TRIGGER_LOG_SERVER_PORT": self.port + 2,
        }
        return {
            **outside(),
            **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
            "AIRFLOW_HOME": str(self.folder / "home"),
            "CORPUSMILL_ROOT": str(self.folder),
            "PATH": f"{self.folder / 'airflow-env' / 'bin'}:{os.environ['PATH']}",
            **self.settings,
        }

    def stop(self) -> None:
        """End every process of its session; once more, for what a shell started meanwhile."""
        for _ in range(2):
            session = [item for item in psutil.process_iter() if _session(item.pid) == self.process.pid]
            for item in session:
                with contextlib.suppress(psutil.NoSuchProcess):
                    item.kill()
            psutil.wait_procs(session, timeout=20)
        self.process.wait()

    def python(self, code: str) -> str:
        """What a line of Python prints in Airflow's environment; its last line."""
        python = self.folder / "airflow-env" / "bin" / "python"
        return run(python, "-c", code, cwd=self.folder, env=self.environment()).splitlines()[-1]

    def _is_healthy(self) -> bool:
        assert self.process.poll() is None, (self.folder / "standalone.log").read_text(errors="replace")[-4000:]
        try:
            health = self.client.get("/api/v2/monitor/health").json()
        except (httpx.TransportError, ValueError):
            return False
        return all(health[name]["status"] == "healthy" for name in ("metadatabase", "scheduler", "dag_processor"))


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
