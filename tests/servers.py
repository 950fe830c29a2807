"""Stores on loopback, started by the tests: rclone's S3 server (it checks signatures), Google's emulator, and listings
of any length that nobody stored.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from corpusmill.storage import retries
from tests.gcs_front import GcsFront

ACCESS_KEY, SECRET_KEY = "corpusmill-tests", "a-secret-of-the-tests"


@dataclass(frozen=True)
class Server:
    """A store's address, and the folder in which it keeps buckets as folders (None: elsewhere)."""

    endpoint: str
    folder: Path | None = None


def _free_port() -> int:
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        return int(item.getsockname()[1])


@contextmanager
def _started(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as item:
                if item.connect_ex(("127.0.0.1", port)) == 0:
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
    (folder / "buckets").mkdir(exist_ok=True)
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


@pytest.fixture(scope="session")
def rclone_client(rclone_server: Server) -> Any:
    """A client of that server, which has a bucket `corpus`."""
    session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1")
    client = session.client("s3", endpoint_url=rclone_server.endpoint)
    client.create_bucket(Bucket="corpus")
    return client


@pytest.fixture
def rclone(rclone_server: Server, rclone_client: Any, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The same server, with its credentials in the environment and its bucket `corpus` empty."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for item in rclone_client.list_objects_v2(Bucket="corpus").get("Contents", []):
        rclone_client.delete_object(Bucket="corpus", Key=item["Key"])
    return rclone_server


@contextmanager
def gcs_emulator(folder: Path) -> Iterator[Server]:
    """Google's emulator, which keeps all in memory; its log goes to `folder`."""
    port = _free_port()
    program = Path(sys.executable).with_name("gcp-storage-emulator")
    command = [str(program), "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    with _started(command, port, folder / "gcs.log"):
        yield Server(f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One GCS emulator for all tests."""
    with gcs_emulator(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_front(gcs_server: Server) -> Iterator[GcsFront]:
    """What stands before it for all tests."""
    with GcsFront(gcs_server.endpoint) as front:
        yield front


@pytest.fixture
def gcs(gcs_front: GcsFront, monkeypatch: pytest.MonkeyPatch) -> GcsFront:
    """The same, named by the environment, with an empty bucket `corpus`."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_front.endpoint)
    gcs_front.empty("corpus")
    return gcs_front


@contextmanager
def http_server(answers: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers as `answers` does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Listing(BaseHTTPRequestHandler):
    """Answers without a log."""

    protocol_version = "HTTP/1.1"

    def answer(self, body: str) -> None:
        content = body.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def first_of_page(self, key: str) -> int:
        """The number of the first object of the page that a query asks for."""
        return int(parse_qs(urlsplit(self.path).query).get(key, ["0"])[0])

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def _key(number: int) -> str:
    return f"data/part-{number:06d}.{'bin' if number % 10 else 'jsonl'}"


@contextmanager
def many_objects(count: int) -> Iterator[str]:
    """The address of an S3 server that lists `count` objects below data/; every tenth is called .jsonl, of its size."""

    class Listing(_Listing):
        def do_HEAD(self) -> None:
            self.send_response(404)
            self.end_headers()

        def do_GET(self) -> None:
            first = self.first_of_page("continuation-token")
            last = min(count, first + 1000)
            rows = "".join(
                f"<Contents><Key>{_key(number)}</Key><Size>{number}</Size>"
                f"<ETag>&quot;{number:032x}&quot;</ETag></Contents>"
                for number in range(first, last)
            )
            more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < count else ""
            end = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
            self.answer(f"<ListBucketResult><Name>corpus</Name>{rows}{end}</ListBucketResult>")

    with http_server(Listing) as endpoint:
        yield endpoint


@contextmanager
def many_gcs_objects(count: int) -> Iterator[str]:
    """The address of a GCS server that lists the same objects by pages, which Google's emulator does not have."""

    class Listing(_Listing):
        def do_GET(self) -> None:
            first = self.first_of_page("pageToken")
            last = min(count, first + 1000)
            rows = [
                {"name": _key(number), "size": str(number), "generation": str(number + 1)}
                for number in range(first, last)
            ]
            more = {"nextPageToken": str(last)} if last < count else {}
            self.answer(json.dumps({"kind": "storage#objects", "items": rows, **more}))

    with http_server(Listing) as endpoint:
        yield endpoint


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries as often as ever, without the pauses."""
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(first_pause_seconds=0.0))
