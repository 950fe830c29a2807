"""`make compose-env`: writes .env for docker-compose.yaml, then says what would keep `docker compose up` from working.

Generated secrets, the size of the memory pool, the profile. Existing values are kept. Exit code 1, with a sentence for
each, if docker or its Compose is missing or too old, or if a port is taken.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SECRETS = (
    *("POSTGRES_PASSWORD", "REDIS_PASSWORD", "BUCKET_PASSWORD", "BUCKET_READER_PASSWORD"),
    *("BUCKET_ADMIN_PASSWORD", "JWT_SECRET", "API_SECRET_KEY", "ADMIN_PASSWORD"),
)
OLDEST_COMPOSE = (2, 23, 1)  # the first that reads the `content` of `configs`
PORTS = {"AIRFLOW_PORT": 8080, "BUCKET_PORT": 8333}
TEXTS, TEXTS_FOLDER = "TEXTS_FOLDER", "data"  # as docker-compose.yaml has it; docker would make it as root


def main(path: Path) -> int:
    """Write the file and check this machine; returns the exit code."""
    values = write(path)
    if TEXTS not in values:
        path.with_name(TEXTS_FOLDER).mkdir(exist_ok=True)
    problems = list(obstacles(path.resolve().parent, values))
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


def write(path: Path) -> dict[str, str]:
    """Add what is missing or empty; say the login when it is new. Returns all values."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    known = values_of(before)
    made = {name: secrets.token_urlsafe(32) for name in SECRETS}
    made["FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    made["MEMORY_GIB"] = str(max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30))
    made["COMPOSE_PROFILES"] = "shared"  # workers share /data; `apart`: nothing but the bucket
    new = {name: value for name, value in made.items() if not known.get(name)}
    kept = [line for line in before.splitlines() if line.partition("=")[0] not in new]
    temporary = path.with_name(f"{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
        file.writelines(f"{line}\n" for line in (*kept, *(f"{name}={value}" for name, value in new.items())))
    temporary.replace(path)
    print(f"{path}: {len(new)} values added, {len(made) - len(new)} kept; only you may read it")
    if "ADMIN_PASSWORD" in new:
        print(f"Airflow's login: admin, password {new['ADMIN_PASSWORD']}   (shown only once; kept in {path})")
    return known | new


def values_of(text: str) -> dict[str, str]:
    """{name: value} of a file like .env."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def obstacles(folder: Path, values: dict[str, str]) -> Iterator[str]:
    """A sentence for everything that is missing on this machine."""
    if shutil.which("docker") is None:
        yield "Docker is missing: there is no program `docker`. Install Docker Engine with its Compose plugin."
        return
    engine = _docker("info", "--format", "{{.ServerVersion}}")
    if engine.returncode:
        yield f"The Docker engine does not answer ({_last_line(engine.stderr)}). Start it, or join the group `docker`."
        return
    asked = _docker("compose", "version", "--short")
    numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", asked.stdout.strip())
    wanted = ".".join(map(str, OLDEST_COMPOSE))
    if asked.returncode or not numbers:
        yield f"Docker Compose is missing: `docker compose version` fails. Install its plugin, {wanted} or newer."
        return
    if tuple(map(int, numbers.groups())) < OLDEST_COMPOSE:
        yield f"Docker Compose {asked.stdout.strip()} is too old: docker-compose.yaml needs {wanted} or newer."
    for name, usual in PORTS.items():
        written = values.get(name) or str(usual)
        port = int(written) if written.isdecimal() else 0
        if not 0 < port < 1 << 16:
            yield f"{name} in .env is {written!r}: a port is a number from 1 to 65535."
        elif not _is_free(port) and str(folder) not in _docker(
            *("ps", "--filter", f"publish={port}", "--format", '{{.Label "com.docker.compose.project.working_dir"}}')
        ).stdout.split("\n"):
            yield f"Port {port} of this machine is taken by another program. Set {name} in .env to a free one."


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)  # noqa: S607


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".env")))
