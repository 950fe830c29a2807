"""The services of docker-compose.yaml as processes here: a worker is killed, the build ends with the right bytes.

Commands and environment are read from the compose file; only addresses, ports and folders are this machine's. Needs
PostgreSQL's and Redis's programs (Debian: postgresql, redis-server); skipped where they are missing.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.documents.sample_corpus import write_sample_corpus
from tests.dags.live import Live, free_port
from tests.quick import THOROUGH

pytestmark = THOROUGH  # test_cluster_apart kills a worker of the same services in every run

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
BIN = Path(sys.executable).parent
DAG = "dataset__cluster"
LONGEST_SECONDS_TO_RUN_AGAIN = 150  # 44 to 60 on two idle cores; the default settings would take more than 300


def program(name: str) -> str:
    """A program's path; skips the test if there is none."""
    places = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    actual = next((place for place in places if place and Path(place).exists()), None)
    if not actual:
        pytest.skip(f"needs the program {name} (Debian: postgresql, redis-server)")
    return str(Path(actual).resolve()) if name != "redis-server" else actual


@dataclass
class Cluster:
    """The compose file's services in `folder`, each a process group of its own."""

    folder: Path
    live: Live
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment(self, service: str, name: str = "") -> dict[str, str]:
        """What compose gives a container, with this machine's addresses in the place of the containers'; /cache is the
        own disk of `name`.
        """
        env_file = dict(line.split("=", 1) for line in (self.folder / ".env").read_text().splitlines())
        given = {}
        for variable, value in COMPOSE["services"][service]["environment"].items():
            text = re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: env_file.get(m[1], m[2] or ""), str(value))
            for there, here in (
                ("@postgres/", f"@127.0.0.1:{self.ports['postgres']}/"),
                ("@redis:6379", f"@127.0.0.1:{self.ports['redis']}"),
                ("api-server:8080", f"127.0.0.1:{self.ports['api']}"),
                ("seaweedfs:8333", f"127.0.0.1:{self.ports.get('bucket')}"),
                ("/opt/corpusmill", str(self.folder)),
            ):
                text = text.replace(there, here)
            inside = {"/cache": self.disk(name or service)}
            inside |= {place: self.folder / place[1:] for place in ("/data", "/logs", "/auth/passwords.json")}
            given[variable] = str(inside.get(text, text))
        here = {
            "AIRFLOW_HOME": str(self.folder / "home" / service),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.ports["api"]),
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(self.ports["scheduler"]),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "NO_PROXY": "127.0.0.1,localhost",
            "NUMBA_CACHE_DIR": str(ROOT / ".cache" / "numba"),
            "NUMBA_THREADING_LAYER": "workqueue",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
        }
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "CORPUSMILL", "PYTHONDONT")) and name.lower() != "no_proxy"
        }
        if "bucket" not in self.ports:
            given.pop("CORPUSMILL_BUCKET", None)
        return kept | given | here

    def disk(self, name: str) -> Path:
        """What a container calls /cache."""
        return self.folder / "disks" / name

    def command(self, service: str) -> list[str]:
        first, *rest = COMPOSE["services"][service]["command"]
        return [str(BIN / first), *rest]

    def run(self, service: str, *more: str, name: str | None = None) -> None:
        """Start a service, or a second one of its kind as `name`."""
        log = (self.folder / f"{name or service}.log").open("ab")
        self.processes[name or service] = subprocess.Popen(
            [*self.command(service), *more],
            cwd=self.folder,
            env=self.environment(service, name or service),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """Kill a service and all its children, as the kernel or a power cut would."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)


def start_postgres(folder: Path, port: int, password: str) -> subprocess.Popen[bytes]:
    """PostgreSQL on loopback. It refuses to run as root, so then as an ordinary user of this machine."""
    user = "nobody" if os.geteuid() == 0 else None
    data = folder / "postgres"
    data.mkdir(mode=0o700)
    if user:
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
    programs = Path(program("postgres")).parent
    secret = data.with_name("postgres-password")
    secret.write_text(password)
    initdb = [programs / "initdb", "-D", data, "-U", "airflow", "-A", "scram-sha-256", f"--pwfile={secret}"]
    subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=folder)
    with (folder / "postgres.log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", str(data)],
            user=user,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    environment = os.environ | {"PGPASSWORD": password}
    at = ["-h", "127.0.0.1", "-p", str(port), "-U", "airflow"]
    until = time.monotonic() + 60
    while subprocess.run([programs / "pg_isready", *at], capture_output=True, check=False).returncode:
        assert time.monotonic() < until, (folder / "postgres.log").read_text()
        time.sleep(0.2)
    subprocess.run([programs / "createdb", *at, "airflow"], check=True, env=environment)
    return server


@contextmanager
def running_cluster(weed: Path | None = None) -> Iterator[Cluster]:
    """PostgreSQL, Redis, and every Airflow service of the compose file but for workers; with `weed`, SeaweedFS."""
    program("postgres")
    redis = program("redis-server")
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-cluster-"))
    folder.chmod(0o755)
    ports = {name: free_port() for name in ("postgres", "redis", "api", "scheduler", *(["bucket"] if weed else []))}
    cluster = Cluster(folder, Live(folder, ports["api"]), ports)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    for name in ("data", "logs", "home"):
        (folder / name).mkdir()
    try:
        subprocess.run([sys.executable, ROOT / "deploy" / "compose_env.py", folder / ".env"], check=True)
        secrets = dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())
        cluster.processes["postgres"] = start_postgres(folder, ports["postgres"], secrets["POSTGRES_PASSWORD"])
        asked = ["--bind", "127.0.0.1", "--port", str(ports["redis"]), "--dir", str(folder), "--save", ""]
        cluster.processes["redis"] = subprocess.Popen(
            [redis, *asked, "--requirepass", secrets["REDIS_PASSWORD"]],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        if weed is not None:
            start_seaweedfs(cluster, weed, secrets)
        initialize = cluster.command("initialize")
        done = subprocess.run(
            initialize, cwd=folder, env=cluster.environment("initialize"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for service in ("api-server", "scheduler", "dag-processor", "triggerer"):
            cluster.run(service)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def start_seaweedfs(cluster: Cluster, weed: Path, secrets: dict[str, str]) -> None:
    """The compose file's store with its users, on loopback."""
    users = re.sub(r"\$\{(\w+)[^}]*\}", lambda m: secrets[m[1]], COMPOSE["configs"]["bucket_users"]["content"])
    (cluster.folder / "users.json").write_text(users)
    (cluster.folder / "objects").mkdir()
    own = {"master.port": free_port(), "volume.port": free_port(), "filer.port": free_port()}
    own |= {f"{name.split('.')[0]}.port.grpc": free_port() for name in own} | {"s3.port.grpc": free_port()}
    options = {"dir": cluster.folder / "objects", "ip": "127.0.0.1", "s3.port": cluster.ports["bucket"], **own}
    options |= {"s3.config": cluster.folder / "users.json", "volume.max": 50}
    with (cluster.folder / "seaweedfs.log").open("wb") as log:
        cluster.processes["seaweedfs"] = subprocess.Popen(
            [weed, "server", "-filer", "-s3", *(f"-{name}={value}" for name, value in options.items())],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    cluster.live.wait_for("the object store", lambda: answers(f"http://127.0.0.1:{cluster.ports['bucket']}/status"))


def answers(address: str) -> bool:
    try:
        return httpx.get(address, trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """With two workers that share a folder."""
    with running_cluster() as cluster:
        cluster.run("worker", "--celery-hostname", "ordinary@%h")
        cluster.run("worker-heavy", "--celery-hostname", "heavy@%h")
        yield cluster


def healthy(cluster: Cluster) -> bool:
    try:
        printed = cluster.live.client.get("/api/v2/monitor/health").json()
    except Exception:
        return False
    return all(
        printed[name]["status"] == "healthy" for name in ("metadatabase", "scheduler", "dag_processor", "triggerer")
    )


def settings(root: Path) -> dict[str, Any]:
    """One shard that takes a while: the slow engine, so that there is time to kill its worker."""
    return {
        "name": "cluster",
        "source": {"paths": [str(root / "corpus")]},
        "dedup": {"mode": "none"},
        "tokenizer": {"name": "cl100k_base", "engine": "tiktoken"},
        "shuffle": {"seed": 3},
        "exports": {"nanoset": {}},
        "destinations": [{"path": str(root / "out")}],
        "work_folder": str(root / "work"),
    }


def begin(cluster: Cluster, configuration: dict[str, Any]) -> None:
    """Log in, begin the run `killed`, and wait until it tokenizes."""
    live = cluster.live
    live.configure(configuration)
    live.wait_for("health", lambda: healthy(cluster))
    password = dict(line.split("=", 1) for line in (cluster.folder / ".env").read_text().splitlines())["ADMIN_PASSWORD"]
    token = live.call("POST", "/auth/token", {"username": "admin", "password": password})["access_token"]
    live.client.headers["Authorization"] = f"Bearer {token}"
    live.trigger(DAG, "killed")

    def tokenizes() -> bool:
        task = live.tasks(DAG, "killed", "tokenize").get(("tokenize", 0))
        return bool(task and task["state"] == "running")

    live.wait_for("tokenize", tokenizes, every_seconds=0.2)


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_worker_killed_in_the_middle_of_a_shard_costs_no_byte_and_less_than_a_minute(cluster: Cluster) -> None:
    live, data = cluster.live, cluster.folder / "data"
    write_sample_corpus(data / "corpus", target_bytes=20_000_000, files=2)
    for path in sorted((data / "corpus").glob("*.zst")):
        shutil.copy(path, path.with_name(f"copy-{path.name}"))  # 40 MB: three seconds and more of the slow engine
    begin(cluster, settings(data))
    cluster.kill("worker")
    killed_at = time.monotonic()
    cluster.run("worker", "--celery-hostname", "ordinary@%h")  # as `restart: unless-stopped` would

    def again() -> bool:
        item = live.tasks(DAG, "killed", "tokenize")["tokenize", 0]
        return bool(item["try_number"] == 2 and item["state"] in {"running", "success"})

    live.wait_for("the second try", again)
    seconds = time.monotonic() - killed_at
    assert live.finish(DAG, "killed") == "success"
    print(f"the killed worker's task ran again after {seconds:.0f} s")

    tries = {place: task["try_number"] for place, task in live.tasks(DAG, "killed").items()}
    assert tries["tokenize", 0] == 2
    hosts = {task["queue"] for task in live.tasks(DAG, "killed").values()}
    assert hosts == {"default", "ram_heavy"}
    alone = cluster.folder / "alone"
    wanted = settings(data) | {"destinations": [{"path": str(alone / "out")}], "work_folder": str(alone / "work")}
    build_dataset(check_config(wanted, where="a test"), workers=1)
    assert files_below(data / "out") == files_below(alone / "out")
    assert seconds < LONGEST_SECONDS_TO_RUN_AGAIN
