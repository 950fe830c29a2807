"""What a store's answer means: worth another try, or not; and which of its checksums a download is compared with."""

from __future__ import annotations

import base64
import hashlib
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import google_crc32c
import pytest
import xxhash
from botocore.config import Config

from corpusmill.storage import Checksum, Store, Traffic, Wanted, fetch, open_store, retries, s3
from corpusmill.storage.s3 import S3Store
from tests.gcs_front import GcsFront
from tests.hub import COMMIT
from tests.oracles.storage import crc64nvme
from tests.quick import quick
from tests.raising import raises
from tests.servers import http_server

CONTENT = hashlib.shake_128(b"answers").digest(6 << 20)  # two parts


@pytest.fixture(params=["s3", "gcs", "hub"])
def asked(request, monkeypatch) -> Iterator[tuple[Store, Traffic, dict[str, int]]]:
    """A store whose server answers everything with `answer["status"]`."""
    answer: dict[str, int] = {}

    class Says(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(answer["status"])
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=3, first_pause_seconds=0.0))
    traffic = Traffic()
    with http_server(Says) as endpoint:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        folder = {"s3": "s3://corpus", "gcs": "gs://corpus", "hub": f"hf://datasets/owner/name@{COMMIT}"}
        there = endpoint if request.param == "s3" else None
        yield open_store(folder[request.param], endpoint_url=there, traffic=traffic), traffic, answer


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_answer_that_may_change_is_asked_for_again(asked, status: int) -> None:
    store, traffic, answer = asked
    answer["status"] = status
    with raises("gcs.unavailable hub.unavailable s3.unavailable", "list") as caught:
        store.list_files()
    assert (traffic.requests, traffic.retries) == (3, 2)
    assert "3 times" in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_answer_that_stays_is_asked_for_once_and_says_what_to_mend(asked, status: int) -> None:
    store, traffic, answer = asked
    answer["status"] = status
    with raises("gcs.no_credentials gcs.refused hub.refused s3.refused") as caught:
        store.list_files()
    assert (traffic.requests, traffic.retries) == (1, 0)
    assert status == 400 or "next" in str(caught.value)


@pytest.mark.parametrize("folder", ["s3://corpus", "gs://corpus", f"hf://datasets/owner/name@{COMMIT}"])
def test_server_that_never_answers_is_a_transient_error(monkeypatch, rclone, folder: str) -> None:
    over = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            over.wait(30)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    monkeypatch.setattr(s3, "READ_SECONDS", 0.1)
    monkeypatch.setattr("corpusmill.storage.gcs.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("corpusmill.storage.hub.TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=2, first_pause_seconds=0.0))
    traffic = Traffic()
    with http_server(Silent) as endpoint:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        store = open_store(folder, endpoint_url=endpoint if folder.startswith("s3") else None, traffic=traffic)
        try:
            with raises("gcs.unavailable hub.unavailable s3.unavailable", "read"):
                store.read_range("a", 0, 1, identity="1-1")
        finally:
            over.set()
    assert (traffic.requests, traffic.retries) == (2, 1)


def put_by_others(client: Any, kind: str) -> None:
    """An object of which the store keeps that checksum, without our metadata."""
    values = {
        "sha256": lambda: hashlib.sha256(CONTENT).digest(),
        "crc64nvme": lambda: crc64nvme(CONTENT).to_bytes(8, "big"),  # bit by bit: 8 s
        "crc32c": lambda: google_crc32c.value(CONTENT).to_bytes(4, "big"),
        "crc32": lambda: zlib.crc32(CONTENT).to_bytes(4, "big"),
    }
    if kind in values:
        value = base64.b64encode(values[kind]()).decode()
        stated = {"ChecksumAlgorithm": kind.upper(), f"Checksum{kind.upper()}": value}
        client.put_object(Bucket="corpus", Key="a", Body=CONTENT, **stated)
    elif kind == "md5":
        client.put_object(Bucket="corpus", Key="a", Body=CONTENT)
    else:
        named = {"Bucket": "corpus", "Key": "a"}
        named["UploadId"] = client.create_multipart_upload(**named)["UploadId"]
        pieces = (CONTENT[: 5 << 20], CONTENT[5 << 20 :])
        etags = [
            client.upload_part(**named, PartNumber=number, Body=piece)["ETag"] for number, piece in enumerate(pieces, 1)
        ]
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        client.complete_multipart_upload(**named, MultipartUpload={"Parts": parts})


@pytest.mark.parametrize("kind", quick(["sha256", "crc32c", "md5-parts", "crc64nvme", "crc32", "md5"], 3))
def test_s3_download_of_others_object_is_compared_with_the_checksum_that_the_store_keeps(
    moto, hasty, tmp_path, monkeypatch, kind: str
) -> None:
    plainly = Config(request_checksum_calculation="when_required")
    put_by_others(boto3.client("s3", endpoint_url=moto, config=plainly), kind)
    store = open_store("s3://corpus", endpoint_url=moto)
    there = store.stat("a")
    assert there is not None
    assert [checksum.kind for checksum in store.checksums("a", identity=there.identity)] == [kind]
    wanted = Wanted("a", there.size_bytes, there.identity)
    own = fetch(store, wanted, tmp_path / "whole", tmp_path / "partial")
    assert own == Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(CONTENT))
    assert (tmp_path / "whole").read_bytes() == CONTENT

    read = S3Store.read_range

    def damaged(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        data = read(self, name, first, last, identity=identity)
        return data[:-1] + bytes([data[-1] ^ 1])

    monkeypatch.setattr(S3Store, "read_range", damaged)
    with raises("store.checksum_differs", "twice, with the same outcome", f"{kind}"):
        fetch(store, wanted, tmp_path / "damaged", tmp_path / "partial")
    assert not (tmp_path / "damaged").exists()


def test_gcs_download_of_others_object_is_compared_with_its_crc32c(gcs, hasty, tmp_path, monkeypatch) -> None:
    """A flipped byte is noticed and fetched again; a store that flips it every time is refused."""
    address = f"{gcs.target.geturl()}/upload/storage/v1/b/corpus/o"
    import requests

    requests.post(address, params={"uploadType": "media", "name": "a"}, data=CONTENT, timeout=60).raise_for_status()
    there = open_store("gs://corpus").stat("a")
    assert there is not None
    wanted = Wanted("a", there.size_bytes, there.identity)
    for faults, path in ((1, tmp_path / "whole"), (9, tmp_path / "damaged")):
        with GcsFront(gcs.target.geturl(), seed=1, share=1.0, faults=faults, kinds=("corrupted",)) as front:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", front.endpoint)
            store = open_store("gs://corpus")
            assert [checksum.kind for checksum in store.checksums("a", identity=there.identity)] == ["crc32c"]
            if faults == 1:
                fetch(store, wanted, path, tmp_path / "partial")
                assert path.read_bytes() == CONTENT
            else:
                with raises("store.checksum_differs"):
                    fetch(store, wanted, path, tmp_path / "partial")
                assert not path.exists()
            assert front.dealt["corrupted"] >= 1


def test_gcs_no_credentials_says_where_they_belong(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with raises("gcs.no_credentials", "gcloud auth application-default login"):
        open_store("gs://corpus/data")
