"""Real stores on loopback, started by the tests: rclone's S3 server (it checks signatures), Google's emulator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

from pipeline.storage import retries

ACCESS_KEY, SECRET_KEY = "corpusmill-tests", "a-secret-of-the-tests"


@dataclass(frozen=True)
class Server:
    """A store's address, and the folder in which it keeps buckets as folders (None: elsewhere)."""

    endpoint: str
    folder: Path | None = None


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def _started(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()}")
        yield
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def rclone_s3(folder: Path) -> Iterator[Server]:
    """`rclone serve s3` over the folder `buckets` below `folder`, with authentication."""
    port = _free_port()
    (folder / "buckets").mkdir()
    program = Path(sys.executable).with_name("rclone")
    command = [str(program), "serve", "s3", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", "--addr", f"127.0.0.1:{port}"]
    command += ["--config", str(folder / "rclone.conf"), str(folder / "buckets")]
    (folder / "rclone.conf").touch()
    with _started(command, port, folder / "rclone.log"):
        yield Server(f"http://127.0.0.1:{port}", folder / "buckets")


@pytest.fixture(scope="session")
def rclone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One rclone S3 server for all tests."""
    with rclone_s3(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture
def rclone(rclone_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The same, with its credentials in the environment and an empty bucket `corpus`."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.Session().client("s3", endpoint_url=rclone_server.endpoint)
    if any(one["Name"] == "corpus" for one in client.list_buckets()["Buckets"]):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket="corpus"):
            for one in page.get("Contents", []):
                client.delete_object(Bucket="corpus", Key=one["Key"])
    else:
        client.create_bucket(Bucket="corpus")
    return rclone_server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One GCS emulator for all tests."""
    port = _free_port()
    program = Path(sys.executable).with_name("gcp-storage-emulator")
    command = [str(program), "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    with _started(command, port, tmp_path_factory.mktemp("gcs") / "log"):
        yield Server(f"http://127.0.0.1:{port}")


@pytest.fixture
def gcs(gcs_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The same, named by the environment, with an empty bucket `corpus`."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)
    client = storage.Client(credentials=AnonymousCredentials(), project="tests")
    bucket = client.lookup_bucket("corpus") or client.create_bucket("corpus")
    for blob in list(bucket.list_blobs()):
        blob.delete()
    return gcs_server


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries as often as ever, without the pauses."""
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(first_pause_seconds=0.0))


def s3_client(endpoint: str) -> object:
    """A client with the credentials of the environment."""
    return boto3.Session().client(
        "s3", endpoint_url=endpoint, region_name=os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    )
