"""docker-compose.yaml and its .env, without docker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.deploy.test_compose_env import write_env

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"] == "${IMAGE:-corpusmill}"]
PROFILES = {"shared": "worker", "apart": "worker-apart"}


def test_env_is_not_committed() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text().split()


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_is_in_the_file() -> None:
    secret = re.compile(r"(PASSWORD|SECRET|FERNET_KEY)\w*: (?!\$\{)(?!/auth/)", re.IGNORECASE)
    assert not secret.search(TEXT)


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "initialize"])
def test_every_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize(
    ("answer", "component", "healthy"),
    [
        ((200, b""), (), True),
        ((503, b"<html>"), (), False),
        ((200, b'{"metadatabase": {"status": "healthy"}, "scheduler": {"status": "unhealthy"}}'), (), True),
        ((200, b'{"metadatabase": {"status": "unhealthy"}}'), (), False),
        ((200, b'{"metadatabase": {"status": "healthy"}, "triggerer": {"status": "healthy"}}'), ("triggerer",), True),
        ((200, b'{"metadatabase": {"status": "healthy"}, "triggerer": {"status": null}}'), ("triggerer",), False),
        (None, (), False),
    ],
)
def test_health_check_of_a_service_is_its_status_and_that_of_the_component(
    answer: tuple[int, bytes] | None, component: tuple[str, ...], healthy: bool
) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answer or (0, b"")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answering)
    port = server.server_address[1]
    if answer is None:
        server.server_close()
    else:
        Thread(target=server.handle_request, daemon=True).start()
    check = [sys.executable, str(ROOT / "deploy" / "healthy.py"), f"http://127.0.0.1:{port}/health", *component]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    server.server_close()
    assert (done.returncode == 0, done.stderr) == (healthy, "")


def test_one_service_builds_the_image_that_the_others_use() -> None:
    assert [name for name in OURS if "build" in SERVICES[name]] == ["initialize"]


@pytest.mark.parametrize("name", SERVICES)
def test_containers_run_as_an_ordinary_user(name: str) -> None:
    assert SERVICES[name]["user"] == ("50000:50000" if name in OURS else SERVICES[name]["user"])
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", SERVICES[name]["user"])


def test_image_is_built_from_the_lock_and_runs_as_an_ordinary_user() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert dockerfile.count("--require-hashes") == 2
    assert "-dev" not in dockerfile
    assert dockerfile.rindex("USER mill") < dockerfile.rindex("RUN python deploy/compile_kernels.py")
    assert dockerfile.count("\nUSER ") == 1
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    listed = (ROOT / ".dockerignore").read_text()
    for name in (name for line in copied for name in line.split()):
        assert (ROOT / name).exists(), name
        assert f"!{name.partition('/')[0]}" in listed, name


@pytest.mark.parametrize("name", OURS)
def test_logins_are_where_they_are_written_and_asked_for(name: str) -> None:
    """A task reads what a configuration names: the file of passwords is not on its machine."""
    knows = name in {"initialize", "api-server"}
    assert any(volume.startswith("auth:") for volume in SERVICES[name]["volumes"]) == knows
    assert ("CORPUSMILL_ADMIN_PASSWORD" in SERVICES[name]["environment"]) == (name == "initialize")


def test_forms_may_name_the_data_folder_and_the_bucket_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from corpusmill.config.bounds import form_roots

    monkeypatch.setenv("CORPUSMILL_FORM_ROOTS", SERVICES["worker"]["environment"]["CORPUSMILL_FORM_ROOTS"])
    assert form_roots() == [("/data", None), ("/texts", None), ("s3://corpusmill", "http://seaweedfs:8333")]


@pytest.mark.parametrize(
    ("profile", "form"),
    [
        ("shared", {"settings": "work_folder: /data/work", "destinations": ["/data/outputs"]}),
        ("shared", {"destinations": ["s3://corpusmill/out | http://seaweedfs:8333"]}),
        ("apart", {"settings": "work_folder: s3://corpusmill/work", "destinations": ["s3://corpusmill/out"]}),
        ("apart", {"source_paths": ["s3://corpusmill/texts | http://seaweedfs:8333"]}),
    ],
)
def test_form_names_the_places_of_its_profile_where_its_plan_runs(
    monkeypatch: pytest.MonkeyPatch, profile: str, form: dict[str, Any]
) -> None:
    from corpusmill.config import load_config
    from corpusmill.config.bounds import require_bounded
    from corpusmill.config.form import config_from_form

    for name, value in SERVICES[PROFILES[profile]]["environment"].items():
        if name.startswith(("CORPUSMILL_", "AWS_ENDPOINT")):
            monkeypatch.setenv(name, value)
    demo = load_config(ROOT / "dags" / "datasets" / "demo.yaml")
    require_bounded(config_from_form({"source_paths": ["/texts"], **form}, demo), demo)


@pytest.mark.parametrize("apart", ["", "-apart"])
def test_two_workers_serve_two_queues_and_heavy_tasks_go_to_theirs(apart: str) -> None:
    commands = {name: SERVICES[f"{name}{apart}"]["command"] for name in ("worker", "worker-heavy")}
    queues = {name: command[command.index("--queues") + 1] for name, command in commands.items()}
    assert queues == {"worker": "default", "worker-heavy": "ram_heavy"}
    assert SERVICES["scheduler"]["environment"]["CORPUSMILL_HEAVY_QUEUE"] == "ram_heavy"


def test_workers_share_the_data_or_nothing_but_the_bucket_as_the_profile_says(tmp_path: Path) -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items() if name.startswith("worker")}
    assert profiles == {
        "worker": ["shared"],
        "worker-heavy": ["shared"],
        "worker-apart": ["apart"],
        "worker-heavy-apart": ["apart"],
    }
    assert write_env(tmp_path / ".env")[1]["COMPOSE_PROFILES"] == "shared"
    for name in ("worker-apart", "worker-heavy-apart"):
        environment = SERVICES[name]["environment"]
        assert environment["CORPUSMILL_ROOT"] == environment["CORPUSMILL_CACHE"] == "/cache"
        assert environment["AWS_ENDPOINT_URL"] == "http://seaweedfs:8333"


def test_messages_are_not_given_to_another_worker_before_a_task_may_have_ended() -> None:
    from corpusmill.config.schedule import ScheduleConfig

    name = "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT"
    visible = int(SERVICES["worker"]["environment"][name])
    assert visible > ScheduleConfig().task_timeout.total_seconds()


SECRETS = {
    "postgres": {"POSTGRES_PASSWORD"},
    "redis": {"REDIS_PASSWORD"},
    "seaweedfs": set(),  # its users are in a file that it alone is given
    "initialize": {"POSTGRES_PASSWORD", "FERNET_KEY", "ADMIN_PASSWORD", "BUCKET_ADMIN_PASSWORD"},
    "api-server": {"POSTGRES_PASSWORD", "FERNET_KEY", "JWT_SECRET", "API_SECRET_KEY", "BUCKET_READER_PASSWORD"},
    "scheduler": {"POSTGRES_PASSWORD", "FERNET_KEY", "REDIS_PASSWORD", "JWT_SECRET"},
    "dag-processor": {"POSTGRES_PASSWORD", "FERNET_KEY"},
    "triggerer": {"POSTGRES_PASSWORD", "FERNET_KEY", "API_SECRET_KEY"},
    "worker": {"REDIS_PASSWORD", "API_SECRET_KEY", "BUCKET_PASSWORD"},
    "worker-heavy": {"REDIS_PASSWORD", "API_SECRET_KEY", "BUCKET_PASSWORD"},
    "worker-apart": {"REDIS_PASSWORD", "API_SECRET_KEY", "BUCKET_PASSWORD"},
    "worker-heavy-apart": {"REDIS_PASSWORD", "API_SECRET_KEY", "BUCKET_PASSWORD"},
}
DATASETS = "${DATASETS_FOLDER:-./dags/datasets}:/opt/corpusmill/dags/datasets:ro"
TEXTS = "${TEXTS_FOLDER:-./data}:/texts:ro"
NO_SECRETS = {"CORPUSMILL_STAGES", "IMAGE", "DATASETS_FOLDER", "TEXTS_FOLDER", "AIRFLOW_PORT", "BUCKET_PORT"}
MOUNTS = {
    "initialize": {"auth:/auth"},
    "api-server": {DATASETS, "data:/data:ro", "auth:/auth", "logs:/logs:ro", "/cache"},
    "scheduler": {"logs:/logs"},
    "dag-processor": {DATASETS, "data:/data:ro", "logs:/logs"},
    "triggerer": {"logs:/logs"},
    "worker": {DATASETS, TEXTS, "data:/data", "logs:/logs"},
    "worker-heavy": {DATASETS, TEXTS, "data:/data", "logs:/logs"},
    "worker-apart": {DATASETS, TEXTS, "/cache", "logs:/logs"},
    "worker-heavy-apart": {DATASETS, TEXTS, "/cache", "logs:/logs"},
}


@pytest.mark.parametrize("name", SERVICES)
def test_service_holds_only_the_secrets_that_it_uses(name: str) -> None:
    used = set(re.findall(r"\$\{(\w+)", str(SERVICES[name]))) - NO_SECRETS
    assert {item for item in used if not item.endswith("_GIB")} == SECRETS[name]
    assert (name == "seaweedfs") == ("configs" in SERVICES[name])


@pytest.mark.parametrize("name", OURS)
def test_service_mounts_only_what_it_reads_and_writes(name: str) -> None:
    assert set(SERVICES[name]["volumes"]) == MOUNTS[name]


@pytest.mark.parametrize("name", SERVICES)
def test_service_has_no_capability_no_new_privileges_and_an_end_of_memory(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"(\$\{\w+:-\d+\}|\d+)g", service["mem_limit"])
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc"}


def test_workers_use_the_bucket_as_a_user_who_may_do_nothing_else() -> None:
    users = {load["name"]: load for load in json.loads(COMPOSE["configs"]["bucket_users"]["content"])["identities"]}
    assert users["corpusmill"]["actions"] == [f"{may}:corpusmill" for may in ("Read", "Write", "List", "Tagging")]
    (credentials,) = users["corpusmill"]["credentials"]
    for name in (name for name in SERVICES if name.startswith("worker")):
        environment = SERVICES[name]["environment"]
        assert environment["AWS_ACCESS_KEY_ID"] == credentials["accessKey"] == "corpusmill"
        assert environment["AWS_SECRET_ACCESS_KEY"] == credentials["secretKey"]
    assert users["pages"]["actions"] == ["Read:corpusmill", "List:corpusmill"]
    assert SERVICES["api-server"]["environment"]["AWS_ACCESS_KEY_ID"] == "pages"
    (admin,) = users["admin"]["credentials"]
    initialize = SERVICES["initialize"]["environment"]
    assert initialize["AWS_SECRET_ACCESS_KEY"] == admin["secretKey"] != credentials["secretKey"]
    assert initialize["CORPUSMILL_BUCKET"] == "corpusmill"


def pin(folder: Path, docker: str) -> subprocess.CompletedProcess[str]:
    """Run the script over copies, with a program of that text as docker."""
    for name in ("docker-compose.yaml", "Dockerfile"):
        if not (folder / name).exists():
            (folder / name).write_text((ROOT / name).read_text())
    program = folder / "bin" / "docker"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{docker}\n")
    program.chmod(0o755)
    return subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "pin_images.py"), str(folder)],
        env={"PATH": f"{program.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pinning_writes_every_foreign_image_s_digest_and_a_second_run_the_new_one(tmp_path: Path) -> None:
    images = [service["image"] for name, service in SERVICES.items() if name not in OURS]
    names = {image.partition("@")[0] for image in (*images, "python:3.11-slim-bookworm")}
    for letter in ("a", "b"):
        asked = tmp_path / f"asked-{letter}"
        digest = f'printf "sha256:%064d" 0 | tr 0 {letter}'
        done = pin(tmp_path, f'for image; do :; done; echo "$image" >> {asked}; {digest}')
        assert done.returncode == 0, done.stderr
        assert set(asked.read_text().split()) == names
        texts = [(tmp_path / name).read_text() for name in ("docker-compose.yaml", "Dockerfile")]
        assert all(f"{name}@sha256:{letter * 64}\n" in "".join(texts) for name in names)
        assert sum(text.count("@sha256:") for text in texts) == len(names)
        pinned = yaml.safe_load(texts[0])["services"]
        assert {name: {**item, "image": ""} for name, item in pinned.items()} == {
            name: {**item, "image": ""} for name, item in SERVICES.items()
        }


@pytest.mark.parametrize("docker", ["echo no route to the registry >&2; exit 1", "echo latest"])
def test_pinning_without_a_registry_says_so_and_changes_nothing(tmp_path: Path, docker: str) -> None:
    done = pin(tmp_path, docker)
    assert done.returncode == 1
    assert "does not know the digest of" in done.stderr
    for name in ("docker-compose.yaml", "Dockerfile"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()
