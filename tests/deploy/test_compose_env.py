"""`make compose-env`: what it writes into .env, and what it says of a machine on which compose would not work."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dags.live import free_port

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yaml").read_text()


def compose_env(path: Path, programs: str | None = None) -> subprocess.CompletedProcess[str]:
    """`make compose-env` for that file, with only the programs of a folder on the path."""
    command = [sys.executable, str(ROOT / "deploy" / "compose_env.py"), str(path)]
    path_of_programs = {"PATH": programs} if programs else {}
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | path_of_programs, check=False)


def write_env(path: Path) -> tuple[str, dict[str, str]]:
    """What `make compose-env` said, and what it wrote."""
    printed = compose_env(path).stdout
    return printed, dict(line.split("=", 1) for line in path.read_text().splitlines())


def docker(folder: Path, compose: str = "echo 2.26.1", engine: str = "echo 28.0") -> str:
    """A folder with a program called docker: what it does as `docker compose version` and as `docker info`."""
    program = folder / "bin" / "docker"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\ncase "$1" in compose) {compose} ;; info) {engine} ;; esac\n')
    program.chmod(0o755)
    return f"{program.parent}:/usr/bin:/bin"


def test_env_holds_every_variable_that_compose_requires(tmp_path: Path) -> None:
    _, written = write_env(tmp_path / ".env")
    required = set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert len(required) == 9
    assert required <= set(written)
    assert len({written[name] for name in required}) == len(required)
    assert all(len(written[name]) >= 32 for name in required)


def test_env_is_private_and_a_second_run_keeps_existing_values(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("MEMORY_GIB=3\nADMIN_PASSWORD=mine")
    printed, first = write_env(path)
    assert (first["MEMORY_GIB"], first["ADMIN_PASSWORD"]) == ("3", "mine")
    assert "mine" not in printed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_env(path)[1] == first


def test_env_value_that_is_empty_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("JWT_SECRET=\nMEMORY_GIB=3\n# mine\n")
    compose_env(path)
    written = path.read_text()
    assert written.count("JWT_SECRET=") == 1
    assert "JWT_SECRET=\n" not in written
    assert {"MEMORY_GIB=3", "# mine"} <= set(written.splitlines())


@pytest.mark.parametrize(
    ("programs", "sentence"),
    [
        ({"compose": "echo 2.23.0"}, "Docker Compose 2.23.0 is too old: docker-compose.yaml needs 2.23.1 or newer."),
        ({"compose": "echo v1.29.2"}, "Docker Compose v1.29.2 is too old"),
        ({"compose": "exit 1"}, "Docker Compose is missing"),
        ({"engine": "echo 'no permission' >&2; exit 1"}, "The Docker engine does not answer (no permission)."),
    ],
)
def test_what_keeps_compose_from_working_is_one_sentence_and_the_file_is_written_all_the_same(
    tmp_path: Path, programs: dict[str, str], sentence: str
) -> None:
    done = compose_env(tmp_path / ".env", docker(tmp_path, **programs))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(sentence)
    assert "JWT_SECRET=" in (tmp_path / ".env").read_text()


def test_missing_docker_is_one_sentence(tmp_path: Path) -> None:
    done = compose_env(tmp_path / ".env", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("Docker is missing: there is no program `docker`.")


def test_port_that_is_taken_is_named_with_the_variable_that_changes_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / ".env").write_text(f"AIRFLOW_PORT={port}\nBUCKET_PORT={free_port()}\n")
        done = compose_env(tmp_path / ".env", docker(tmp_path))
        assert done.returncode == 1
        assert done.stderr == (
            f"Port {port} of this machine is taken by another program. Set AIRFLOW_PORT in .env to a free one.\n"
        )
    assert compose_env(tmp_path / ".env", docker(tmp_path)).returncode == 0


@pytest.mark.parametrize("written", ["x", "0", "65536", "-1"])
def test_port_that_is_none_is_named(tmp_path: Path, written: str) -> None:
    (tmp_path / ".env").write_text(f"AIRFLOW_PORT={written}\nBUCKET_PORT={free_port()}\n")
    done = compose_env(tmp_path / ".env", docker(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        f"AIRFLOW_PORT in .env is {written!r}: a port is a number from 1 to 65535.\n",
    )


def test_password_is_said_when_it_is_made_and_only_then(tmp_path: Path) -> None:
    printed, written = write_env(tmp_path / ".env")
    assert written["ADMIN_PASSWORD"] in printed
    again, _ = write_env(tmp_path / ".env")
    assert written["ADMIN_PASSWORD"] not in again
