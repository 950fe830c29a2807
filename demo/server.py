"""Start and stop Airflow for this repository: `make up`, `make down`.

One machine: SQLite, LocalExecutor, the API server on loopback only, a generated password. Everything it writes lies
below `.airflow/`. The processes form a session of their own: `stop` asks them to end and, after a
grace time, ends every process that is left in that session and no other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".airflow"
STATE = HOME / "server.json"
PASSWORDS = HOME / "passwords.json"
USER = "admin"
LOG = HOME / "standalone.log"
DEFAULT_PORT = 8080
NO_PROXY = ",".join(
    ["127.0.0.1", "localhost", *filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy")])]
)
START_SECONDS = 180
STOP_SECONDS = 10
LOG_TAIL_LINES = 25
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
COMPONENTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


class ServerError(Exception):
    """Airflow did not start or stop; the message says why and what to do."""


@dataclass(frozen=True)
class Server:
    """A started Airflow: its first process (also the id of its session), when that was created, its port."""

    pid: int
    created: float
    port: int

    @property
    def url(self) -> str:
        """Address of the UI and of the REST API."""
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> list[psutil.Process]:
        """Every living process of the server's session, the first one too."""
        return [
            process for process in psutil.process_iter() if _session(process) == self.pid and self._is_ours(process)
        ]

    def _is_ours(self, process: psutil.Process) -> bool:
        # A process id can be given away again once its whole session is gone; a younger leader is somebody else's.
        try:
            if process.pid == self.pid:
                return abs(process.create_time() - self.created) < 1 and process.status() != psutil.STATUS_ZOMBIE
            return process.create_time() >= self.created - 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def environment(port: int) -> dict[str, str]:
    """The whole configuration of Airflow, as environment variables; the caller's own Airflow settings are dropped."""
    settings = {
        "CORE__DAGS_FOLDER": ROOT / "dags",
        "CORE__PLUGINS_FOLDER": ROOT / "plugins",
        "CORE__LOAD_EXAMPLES": False,
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": workers(),
        "CORE__MAX_ACTIVE_TASKS_PER_DAG": 64,
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        # Loopback alone would let every user of this machine in.
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": PASSWORDS,
        "CORE__HOSTNAME_CALLABLE": "socket.gethostname",  # the default asks the network for a name
        "API__HOST": "127.0.0.1",
        "API__PORT": port,
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        # Ten lines for every task, about calls that succeeded: a tenth of what the API server does.
        "LOGGING__NAMESPACE_LEVELS": "http.access=WARNING airflow.api_fastapi.execution_api.routes=WARNING",
        # Airflow puts SQLite into WAL mode; a writer waits half a minute for another, instead of 5 s.
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db?timeout=30",
        "DAG_PROCESSOR__REFRESH_INTERVAL": 10,
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 30,
        # All datasets' DAGs come from one file: a thousand take 36 s, more on a busy machine, and Airflow would forget
        # them all after 30 s of reading or 50 s in all.
        "CORE__DAGBAG_IMPORT_TIMEOUT": 300,
        "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": 600,
        # The default second would be paid between any two steps; shorter sleeps cost processor time, because the
        # scheduler looks at every waiting task after each.
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": 0.2,
        # A third of the supervisors miss the moment their task ends and notice it at the next heartbeat.
        "WORKERS__MIN_HEARTBEAT_INTERVAL": 1,
        # A killed worker is noticed after 30 s instead of 300, by a check every 5 s instead of 10: its task runs
        # again within the minute, retry delay and all. Supervisors send a heartbeat every second.
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 30,
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": 5,
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": 5,
    }
    # Without kept compiled files, every task would compile every library again; some environments forbid them.
    dropped = ("AIRFLOW", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {
        **inherited,
        **{f"AIRFLOW__{name}": str(value) for name, value in settings.items()},
        "AIRFLOW_HOME": str(HOME),
        "CORPUSMILL_ROOT": str(ROOT),
        # The root holds .airflow with the password, too.
        "CORPUSMILL_FORM_ROOTS": os.environ.get("CORPUSMILL_FORM_ROOTS", "sample,data,work,outputs"),
        "CORPUSMILL_MEMORY_POOL": "ram_gib",  # standalone.py makes it, one slot a GiB
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "pipeline"), os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "NO_PROXY": NO_PROXY,
        "no_proxy": NO_PROXY,
        "NUMBA_THREADING_LAYER": "workqueue",  # OpenMP returns wrong numbers in a forked child
        "NUMBA_CACHE_DIR": str(ROOT / ".cache" / "numba"),
    }


def workers() -> int:
    """Tasks at the same time: one more than cores, so that a task that starts or waits leaves no core idle."""
    return (os.cpu_count() or 1) + 1


def running() -> Server | None:
    """The server that this repository started, if any process of it is alive."""
    try:
        server = Server(**json.loads(STATE.read_text()))
    except (FileNotFoundError, ValueError, TypeError):  # never started, or killed while it said so
        return None
    return server if server.processes() else None


def start() -> tuple[Server, bool]:
    """Start Airflow unless it runs, wait until every component is healthy; also returns whether it was started now."""
    with _one_at_a_time():
        if server := running():
            if _is_healthy(server):
                return server, False
            _stop()
        port = _free_port()
        _make_password()
        with LOG.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "demo" / "standalone.py")],
                cwd=ROOT,
                env=environment(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A shell that starts make in the background ignores SIGINT, and that would be inherited.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )
        server = Server(process.pid, psutil.Process(process.pid).create_time(), port)
        STATE.write_text(json.dumps(asdict(server)))
        try:
            _wait_until_healthy(server, process)
        except BaseException:
            _stop()
            raise
        return server, True


def password() -> str:
    """The generated password of the user `admin`; only this user of the machine may read its file."""
    return str(json.loads(PASSWORDS.read_text())[USER])


def _make_password() -> None:
    if PASSWORDS.exists():
        return
    made = secrets.token_urlsafe(18)
    descriptor = os.open(PASSWORDS, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({USER: made}, file)
    print(f"Airflow's UI asks for a login: {USER}, password {made}   (shown only once; kept in {PASSWORDS})")


def stop() -> bool:
    """Stop the server of this repository; False if none was running. Returns when its last process has ended."""
    with _one_at_a_time():
        return _stop()


def _stop() -> bool:
    server = running()
    if server is None:
        STATE.unlink(missing_ok=True)
        return False
    try:
        os.kill(server.pid, signal.SIGINT)  # the only signal that makes standalone stop its components
    except ProcessLookupError:
        for process in server.processes():
            process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    while (left := server.processes()) and time.monotonic() < deadline:
        _reap(server.pid)
        time.sleep(0.1)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=STOP_SECONDS)
    STATE.unlink(missing_ok=True)
    return True


def log_tail() -> str:
    """The last lines of Airflow's own log."""
    lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
    return "\n".join(f"    {line}" for line in lines[-LOG_TAIL_LINES:])


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except (ProcessLookupError, PermissionError):
        return -1


def _reap(pid: int) -> None:
    """Collect the first process if it is our child, so that it does not stay as a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Only one process starts or stops the server at a time: a late stop must not forget a server started since."""
    HOME.mkdir(exist_ok=True)
    with (HOME / "server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _free_port() -> int:
    """CORPUSMILL_PORT, which must be free; else the default, or any free port when the default is taken."""
    wanted = os.environ.get("CORPUSMILL_PORT")
    if wanted:
        if not wanted.isdecimal() or not _is_free(int(wanted)):
            raise ServerError(
                f"port {wanted} cannot be used\n  expected  a free port on 127.0.0.1, from CORPUSMILL_PORT\n"
                "  next      choose another, or unset CORPUSMILL_PORT to let the program choose"
            )
        return int(wanted)
    if _is_free(DEFAULT_PORT):
        return DEFAULT_PORT
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    print(f"Port {DEFAULT_PORT} is taken by another program; using {port}. (Set CORPUSMILL_PORT to choose.)")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def _wait_until_healthy(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_healthy(server):
        if process.poll() is not None:
            why = f"it ended with exit code {process.returncode}"
        elif time.monotonic() > deadline:
            why = f"not healthy after {START_SECONDS} s"
        else:
            time.sleep(0.3)
            continue
        raise ServerError(f"Airflow did not start: {why}\n  log   {LOG}\n{log_tail()}")
    # Airflow builds the API that tasks speak when it is first asked for: 5 s, which the first task would wait for (and
    # does, should this one question fail).
    with contextlib.suppress(OSError), DIRECT.open(f"{server.url}/execution/health", timeout=START_SECONDS):
        pass


def _is_healthy(server: Server) -> bool:
    try:
        with DIRECT.open(f"{server.url}/api/v2/monitor/health", timeout=5) as answer:
            health = json.load(answer)
    except (OSError, ValueError):
        return False
    return all(health.get(name, {}).get("status") == "healthy" for name in COMPONENTS)


def main(verb: str) -> int:
    """`up` or `down`; returns the exit code."""
    if verb == "down":
        print("Airflow is stopped." if stop() else "Airflow was not running.")
        return 0
    try:
        server, started = start()
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    word = "is running" if started else "is already running"
    print(f"Airflow {word}: {server.url}   (this machine only)   stop it with: make down")
    print(f"Log in as {USER} with the password in {PASSWORDS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "up"))
