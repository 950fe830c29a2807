"""What a store can do wrong, or be asked wrongly: an error that says what was tried, and no try that cannot help."""

from __future__ import annotations

import gzip
import io
from http.server import BaseHTTPRequestHandler

import pytest
import zstandard

from corpusmill.documents.compression import open_decompressed
from corpusmill.errors import StoreUnavailableError
from corpusmill.storage import Traffic, Wanted, fetch, list_sources, open_store, retries
from tests.raising import raises
from tests.servers import http_server


def test_s3_wrong_secret_is_permanent_and_tried_once(rclone, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    traffic = Traffic()
    with raises("s3.refused", "list", "AWS_SECRET_ACCESS_KEY") as caught:
        open_store("s3://corpus", endpoint_url=rclone.endpoint, traffic=traffic).list_files()
    assert "wrong" not in str(caught.value)
    assert (traffic.requests, traffic.retries) == (1, 0)


def test_s3_unknown_access_key_is_permanent(rclone, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with raises("s3.refused", "list", "check AWS_ACCESS_KEY_ID"):
        open_store("s3://corpus", endpoint_url=rclone.endpoint).list_files()


def test_s3_no_credentials_says_where_they_belong(rclone, monkeypatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with raises("s3.no_credentials", "AWS_PROFILE"):
        open_store("s3://corpus", endpoint_url=rclone.endpoint).list_files()


def test_s3_missing_bucket_says_so(rclone) -> None:
    with raises("s3.refused", "list", "create the bucket"):
        list_sources(["s3://nowhere/data/"], (".jsonl",), rclone.endpoint)


def test_gcs_missing_bucket_says_so(gcs) -> None:
    with raises("gcs.refused", "list", "create the bucket"):
        list_sources(["gs://nowhere/data/"], (".jsonl",))


@pytest.fixture
def no_list_permission(monkeypatch):
    """A bucket in which objects can be read and nothing can be listed, as a policy without s3:ListBucket has it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    class Denied(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http_server(Denied) as endpoint:
        yield endpoint


def test_s3_bucket_without_list_permission_names_the_permission(no_list_permission) -> None:
    with raises("s3.refused", "list", "s3:ListBucket"):
        list_sources(["s3://corpus/data/"], (".jsonl",), no_list_permission)


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_object_deleted_since_it_was_listed_is_refused_by_name(request, tmp_path, kind: str) -> None:
    server = request.getfixturevalue("rclone" if kind == "s3" else "gcs")
    folder = "s3://corpus/data" if kind == "s3" else "gs://corpus/data"
    store = open_store(folder, endpoint_url=server.endpoint if kind == "s3" else None)
    store.receive_bytes(b"content", "a.jsonl")
    there = store.stat("a.jsonl")
    assert there is not None
    store.delete("a.jsonl")
    with raises("source.changed_since_planned", f"{folder}/a.jsonl", "it is gone"):
        fetch(store, Wanted("a.jsonl", there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
    assert not (tmp_path / "file").exists()


def test_s3_object_overwritten_since_it_was_listed_is_refused(rclone, tmp_path) -> None:
    store = open_store("s3://corpus", endpoint_url=rclone.endpoint)
    store.receive_bytes(b"content", "a.jsonl")
    there = store.stat("a.jsonl")
    assert there is not None
    store.receive_bytes(b"CONTENT", "a.jsonl")
    with raises("source.changed_since_planned"):
        store.read_range("a.jsonl", 0, 3, identity=there.identity)


@pytest.mark.parametrize("key", ["a b.jsonl", "ü/中文 №1.jsonl", "a+b%20c.jsonl", "a'\"&<>.jsonl", "deep/er/x.jsonl"])
def test_s3_odd_key_is_a_source_like_any_other(rclone, rclone_client, tmp_path, key: str) -> None:
    rclone_client.put_object(Bucket="corpus", Key=f"data/{key}", Body=b"{}\n")
    (file,) = list_sources(["s3://corpus/data"], (".jsonl",), rclone.endpoint)
    assert file.name == key
    store = open_store("s3://corpus/data", endpoint_url=rclone.endpoint)
    fetch(store, Wanted(file.name, file.size_bytes, file.identity), tmp_path / "x" / key, tmp_path / "partial")
    assert (tmp_path / "x" / key).read_bytes() == b"{}\n"


@pytest.mark.parametrize("key", ["data/../x.jsonl", "data//etc/x.jsonl", "data/./x.jsonl", "data/a/../../../x.jsonl"])
def test_s3_key_that_would_leave_the_folder_is_refused(moto, moto_client, key: str) -> None:
    moto_client.put_object(Bucket="corpus", Key=key, Body=b"{}")
    with raises("source.name_leaves_folder"):
        list_sources(["s3://corpus/data"], (".jsonl",), moto)


def test_s3_key_with_a_leading_slash_is_refused(moto, moto_client) -> None:
    moto_client.put_object(Bucket="corpus", Key="/etc/x.jsonl", Body=b"{}")
    with raises("source.name_leaves_folder"):
        list_sources(["s3://corpus"], (".jsonl",), moto)


@pytest.mark.parametrize("location", ["s3://corpus//x.jsonl", "s3://corpus/../x.jsonl", "gs://corpus/a//x.jsonl"])
def test_location_with_odd_parts_is_refused_before_anything_is_asked(location: str) -> None:
    with raises("source.name_leaves_folder"):
        list_sources([location], (".jsonl",))


def test_zero_byte_object_arrives_as_an_empty_file(rclone, tmp_path) -> None:
    store = open_store("s3://corpus", endpoint_url=rclone.endpoint)
    store.receive_bytes(b"", "empty.jsonl")
    there = store.stat("empty.jsonl")
    assert there is not None
    fetch(store, Wanted("empty.jsonl", 0, there.identity), tmp_path / "file", tmp_path / "partial")
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_compressed_bomb_is_refused_before_it_fills_memory(ending: str) -> None:
    zeros = bytes(80 << 20)
    bomb = gzip.compress(zeros, 9) if ending == ".jsonl.gz" else zstandard.compress(zeros)
    read = []
    with open_decompressed(io.BytesIO(bomb), f"bomb{ending}") as stream:  # noqa: SIM117
        with raises("source.decompression_bomb"):
            read.extend(map(len, iter(lambda: stream.read(1 << 20), b"")))
    assert sum(read) <= 70 << 20


def test_retries_pauses_double_spread_and_stay_within_the_longest() -> None:
    policy = retries.RetryPolicy()
    pauses = [policy.pause_seconds("s3://corpus/a", attempt) for attempt in range(12)]
    assert pauses == [policy.pause_seconds("s3://corpus/a", attempt) for attempt in range(12)]
    for attempt, pause in enumerate(pauses):
        whole = min(20.0, 0.1 * 2**attempt)
        assert whole / 2 <= pause <= whole
    assert policy.pause_seconds("s3://corpus/b", 5) != pauses[5]


def test_retries_stop_when_their_budget_is_spent(monkeypatch) -> None:
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(budget_seconds=0.0))
    traffic = Traffic()

    def fails() -> None:
        raise StoreUnavailableError("store.busy: busy")

    with raises("store.busy", "1 times"):
        retries.retried(fails, where="here", traffic=traffic)
    assert traffic.requests == 1
