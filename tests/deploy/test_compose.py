"""docker-compose.yaml and its .env, without docker."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS = [name for name, service in SERVICES.items() if service["image"] == "corpusmill"]


def write_env(path: Path) -> tuple[str, dict[str, str]]:
    """What `make compose-env` said, and what it wrote."""
    command = [sys.executable, str(ROOT / "deploy" / "compose_env.py"), str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return said, dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_env_holds_every_variable_that_compose_requires(tmp_path: Path) -> None:
    _, written = write_env(tmp_path / ".env")
    required = set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert len(required) == 7
    assert required <= set(written)
    assert len({written[name] for name in required}) == len(required)
    assert all(len(written[name]) >= 32 for name in required)


def test_env_is_private_and_a_second_run_keeps_what_stands(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("MEMORY_GIB=3\nADMIN_PASSWORD=mine")
    said, first = write_env(path)
    assert (first["MEMORY_GIB"], first["ADMIN_PASSWORD"]) == ("3", "mine")
    assert "mine" not in said
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_env(path)[1] == first


def test_password_is_said_when_it_is_made_and_only_then(tmp_path: Path) -> None:
    said, written = write_env(tmp_path / ".env")
    assert written["ADMIN_PASSWORD"] in said
    again, _ = write_env(tmp_path / ".env")
    assert written["ADMIN_PASSWORD"] not in again


def test_env_is_not_committed() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_stands_in_the_file() -> None:
    secret = re.compile(r"(PASSWORD|SECRET|FERNET_KEY)\w*: (?!\$\{)(?!/auth/)", re.IGNORECASE)
    assert not secret.search(TEXT)


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "initialize"])
def test_every_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", OURS)
def test_our_containers_run_as_an_ordinary_user(name: str) -> None:
    assert SERVICES[name]["user"] == "50000:50000"


def test_image_is_built_from_the_lock_and_runs_as_an_ordinary_user() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert dockerfile.count("--require-hashes") == 2
    assert dockerfile.rindex("USER mill") > dockerfile.rindex("RUN ")
    copied = re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE)
    listed = (ROOT / ".dockerignore").read_text()
    for name in (name for line in copied for name in line.split()):
        assert (ROOT / name).exists(), name
        assert f"!{name}" in listed, name


@pytest.mark.parametrize("name", OURS)
def test_logins_are_where_they_are_written_and_asked_for(name: str) -> None:
    """A task reads what a configuration names: the file of passwords is not on its machine."""
    knows = name in {"initialize", "api-server"}
    assert ("auth:/auth" in SERVICES[name]["volumes"]) == knows
    assert {"data:/data", "logs:/logs"} <= set(SERVICES[name]["volumes"])
    assert ("CORPUSMILL_ADMIN_PASSWORD" in SERVICES[name]["environment"]) == (name == "initialize")


def test_forms_may_name_the_data_folder_and_the_bucket_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.bounds import form_roots

    monkeypatch.setenv("CORPUSMILL_FORM_ROOTS", SERVICES["worker"]["environment"]["CORPUSMILL_FORM_ROOTS"])
    assert form_roots() == [("/data", None), ("s3://corpusmill", "http://minio:9000")]


def test_two_workers_serve_two_queues_and_heavy_tasks_go_to_theirs() -> None:
    commands = {name: SERVICES[name]["command"] for name in ("worker", "worker-heavy")}
    queues = {name: command[command.index("--queues") + 1] for name, command in commands.items()}
    assert queues == {"worker": "default", "worker-heavy": "ram_heavy"}
    assert SERVICES["scheduler"]["environment"]["CORPUSMILL_HEAVY_QUEUE"] == "ram_heavy"


def test_messages_are_not_given_to_another_worker_before_a_task_may_have_ended() -> None:
    from pipeline.schedule import ScheduleConfig

    name = "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT"
    visible = int(SERVICES["worker"]["environment"][name])
    assert visible > ScheduleConfig().task_timeout.total_seconds()
