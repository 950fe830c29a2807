"""The project in docker compose: a copy of the repository in a folder of its own, on ports of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.run import environment
from tests.dags.live import Rest, free_port

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "corpusmill-tested"
PULL_SECONDS = 60
IMAGES = re.compile(r"^(?:\s*image: |FROM )([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?", re.MULTILINE)


def docker(*arguments: str | Path, seconds: float = 600, **more: Any) -> str:
    """What a docker command printed; the test fails with its words if it fails."""
    done = subprocess.run(
        ["docker", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=seconds, **more
    )
    assert done.returncode == 0, f"docker {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
    return done.stdout


def require_docker() -> None:
    """Skip where there is no engine, or no Compose that reads the file; CI has both."""
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        if shutil.which("docker") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"no containers on this machine: `{' '.join(command)}` fails")


def require_images() -> None:
    """The images of other projects: here already, or pulled, or stand-ins where no registry is reached."""
    texts = [(ROOT / name).read_text() for name in ("docker-compose.yaml", "Dockerfile")]
    missing = []
    for name, digest in sorted({found for text in texts for found in IMAGES.findall(text)}):
        if subprocess.run(["docker", "image", "inspect", name + digest], capture_output=True, check=False).returncode:
            try:
                docker("pull", name + digest, seconds=PULL_SECONDS)
            except (AssertionError, subprocess.TimeoutExpired):
                missing.append(name)
    if missing:
        if os.geteuid() or shutil.which("debootstrap") is None:
            pytest.skip(f"no registry has {missing}, and stand-ins need root and debootstrap")
        weed = environment(Path(__file__).with_name("requirements.lock")).with_name("weed")
        subprocess.run([Path(__file__).with_name("stand_ins.sh"), weed, *missing], check=True)


@dataclass
class Compose(Rest):
    """The services of one profile."""

    env: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str | Path) -> str:
        """`docker compose ...` in the folder."""
        return docker("compose", *arguments, cwd=self.folder)

    def line(self, text: str) -> None:
        """A line of the documentation, as somebody types it."""
        done = subprocess.run(["bash", "-ec", text], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"

    def containers(self) -> list[dict[str, Any]]:
        """Every container: Service, State, Health, ExitCode and more."""
        return [json.loads(line) for line in self.run("ps", "--all", "--format", "json").splitlines()]

    def container(self, service: str) -> str:
        """Its id."""
        return self.run("ps", "--all", "--quiet", service).strip()

    def not_healthy(self) -> dict[str, str]:
        """{service: what it is} of those that are neither healthy nor, like `initialize`, done."""
        return {
            item["Service"]: f"{item['State']} {item['Health']}"
            for item in self.containers()
            if item["Health"] != "healthy" and (item["State"], item["ExitCode"]) != ("exited", 0)
        }

    def wait_until_healthy(self, seconds: float) -> None:
        """The test fails, with the logs of the services that are not healthy by then."""
        until = time.monotonic() + seconds
        while left := self.not_healthy():
            assert time.monotonic() < until, f"{left}\n{self.run('logs', '--tail', '60', *left)}"
            time.sleep(1)
        assert len(self.containers()) == len(self.run("config", "--services").splitlines())

    def restart(self, service: str, seconds: float) -> None:
        """Until the service's own health check succeeds: Docker asks only every 5 to 30 s."""
        self.run("restart", service)
        container = self.container(service)
        kind, *check = json.loads(docker("inspect", "--format", "{{json .Config.Healthcheck.Test}}", container))
        command = ["sh", "-c", *check] if kind == "CMD-SHELL" else check

        def healthy() -> bool:
            return not subprocess.run(
                ["docker", "exec", container, *command], capture_output=True, check=False
            ).returncode

        self.wait_for(f"{service}, healthy", healthy, seconds)

    def log_in(self) -> None:
        """As the admin whose password is in .env."""
        self.env = dict(line.split("=", 1) for line in (self.folder / ".env").read_text().splitlines())
        self.login_with(self.env["ADMIN_PASSWORD"])

    def last_words(self) -> str:
        return self.run("logs", "--tail", "40")


@contextmanager
def composed(folder: Path, profile: str) -> Iterator[Compose]:
    """A copy of the repository with an .env that says what differs: names, ports, profile. Taken down at the end."""
    folder.mkdir()
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, files.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    ports = {"AIRFLOW_PORT": free_port(), "BUCKET_PORT": free_port()}
    own = {**ports, "COMPOSE_PROJECT_NAME": f"corpusmill-tested-{profile}", "COMPOSE_PROFILES": profile, "IMAGE": IMAGE}
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    compose = Compose(folder, ports["AIRFLOW_PORT"])
    try:
        yield compose
    finally:
        subprocess.run(["docker", "compose", "down", "--volumes", "--timeout", "5"], cwd=folder, check=False)
        shutil.rmtree(folder, ignore_errors=True)
