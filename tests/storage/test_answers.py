"""What a store's answer means: worth another try, or not; rare answers that are right; how often it is asked again; and
which of its checksums a download is compared with.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import boto3
import google_crc32c
import pytest
import xxhash
import zstandard
from botocore.config import Config

from corpusmill.documents.compression import open_decompressed
from corpusmill.storage import Checksum, Store, Traffic, Wanted, fetch, list_sources, open_store, reading, retries, s3
from corpusmill.storage.crc64 import Crc64Nvme
from corpusmill.storage.s3 import S3Store
from tests.faults.proxy import Answer, FaultyProxy, Harm
from tests.gcs_front import GcsFront
from tests.hub import COMMIT
from tests.quick import quick
from tests.raising import raises
from tests.servers import Server, http_server
from tests.storage.far import DATA, FOLDERS, Far, wanted

CONTENT = hashlib.shake_128(b"answers").digest(6 << 20)  # two parts


@pytest.fixture(params=FOLDERS)
def asked(request, aws, monkeypatch) -> Iterator[tuple[Store, Traffic, dict[str, Any]]]:
    """A store whose server answers everything with `answer["status"]` and `answer["body"]`."""
    answer: dict[str, Any] = {"body": b"{}"}

    class Says(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(answer["status"])
            self.send_header("Content-Length", str(len(answer["body"])))
            self.end_headers()
            self.wfile.write(answer["body"])

        do_POST = do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=3, first_pause_seconds=0.0))
    with http_server(Says) as endpoint:
        far = Far(request.param, endpoint, monkeypatch)
        yield far.store(), far.traffic, answer


@pytest.mark.parametrize("status", [429, 500, 504])
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


@pytest.mark.parametrize("status", [401, 403])
def test_anonymous_request_that_is_refused_is_told_about_anonymous_not_about_its_credentials(
    asked, monkeypatch, status: int
) -> None:
    store, _, answer = asked
    monkeypatch.setattr(store, "anonymous", True)
    answer["status"] = status
    with raises("gcs.no_credentials gcs.refused hub.refused s3.refused", "leave out anonymous") as caught:
        store.list_files()
    assert not {"AWS_PROFILE", "HF_TOKEN", "roles/"} & set(str(caught.value).split())


@pytest.mark.parametrize("folder", ["s3://corpus", "gs://corpus", f"hf://datasets/owner/name@{COMMIT}"])
def test_server_that_never_answers_is_named_and_a_transient_error(monkeypatch, rclone, caplog, folder: str) -> None:
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
    monkeypatch.setattr(retries, "NAMED_AFTER_SECONDS", 0.01)
    monkeypatch.setattr(retries, "_told", set())
    monkeypatch.setattr(retries, "_answered", set())
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
    (named,) = [record.getMessage() for record in caplog.records if "does not answer" in record.getMessage()]
    assert folder.startswith(named.split(" ")[0])
    assert "silent for 0.01 s" in named  # before the request timed out


@pytest.fixture
def unaccepting() -> Iterator[str]:
    """The address of a server whose queue of connections is full, so that no other is ever accepted."""
    with ExitStack() as opened:
        listening = opened.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["s3://corpus", "gs://corpus"])
def test_store_that_accepts_no_connection_is_named_after_three_seconds(
    folder: str, rclone: Server, unaccepting: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=2, first_pause_seconds=0.0))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", unaccepting)
    monkeypatch.setattr(retries, "_told", set())
    store = open_store(folder, endpoint_url=unaccepting if folder.startswith("s3") else None)
    began = time.time()
    with raises("gcs.unavailable s3.unavailable", folder):
        store.stat("a")
    (named,) = [record for record in caplog.records if "does not answer" in record.getMessage()]
    assert folder in named.getMessage()
    assert 2.9 < named.created - began < 20  # of a busy machine; a minute before


@pytest.mark.parametrize("asked", ["s3"], indirect=True)
def test_s3_bucket_without_list_permission_names_the_permission(asked) -> None:
    store, _, answer = asked
    answer |= {"status": 403, "body": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"}
    with raises("s3.refused", "list", "s3:ListBucket"):
        store.list_files()


@pytest.mark.parametrize(
    ("name", "value", "code", "shown"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "s3.refused", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "nobody", "s3.refused", "check AWS_ACCESS_KEY_ID"),
        ("AWS_ACCESS_KEY_ID", None, "s3.no_credentials", "AWS_PROFILE"),
    ],
)
def test_s3_credentials_that_are_wrong_or_missing_are_tried_once_and_named(
    rclone, monkeypatch, tmp_path, name: str, value: str | None, code: str, shown: str
) -> None:
    if value:
        monkeypatch.setenv(name, value)
    else:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    traffic = Traffic()
    with raises(code, "list", shown) as caught:
        open_store("s3://corpus", endpoint_url=rclone.endpoint, traffic=traffic).list_files()
    assert "wrong" not in str(caught.value)
    assert (traffic.requests, traffic.retries) == (1, 0)


def test_gcs_no_credentials_says_where_they_belong(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with raises("gcs.no_credentials", "gcloud auth application-default login"):
        open_store("gs://corpus/data")


@pytest.mark.parametrize(("kind", "folder"), [("s3", "s3://nowhere/data/"), ("gcs", "gs://nowhere/data/")])
def test_missing_bucket_says_so(request, kind: str, folder: str) -> None:
    server = request.getfixturevalue("rclone" if kind == "s3" else "gcs")
    with raises(f"{kind}.refused", "list", "create the bucket"):
        list_sources([folder], (".jsonl",), server.endpoint if kind == "s3" else None)


@pytest.mark.parametrize("far", ["s3", "gcs"], indirect=True)
@pytest.mark.parametrize("harm", ["deleted", "overwritten"])
def test_object_that_is_another_since_it_was_listed_is_refused_by_name(far: Far, tmp_path, harm: str) -> None:
    with far.behind() as (_, store):
        planned = wanted(store)
        store.delete("a.jsonl")
        if harm == "overwritten":
            store.receive_bytes(DATA[::-1], "a.jsonl")
        shown = (f"{store.folder}/a.jsonl", "it is gone" if harm == "deleted" else "got")
        with raises("source.changed_since_planned", *shown):
            fetch(store, planned, tmp_path / "file", tmp_path / "partial")
        with raises("source.changed_since_planned", *shown):
            store.read_range("a.jsonl", 0, 3, identity=planned.identity)
    assert not (tmp_path / "file").exists()


def put_by_others(client: Any, kind: str) -> None:
    """An object of which the store keeps that checksum, without our metadata."""

    def crc64nvme() -> bytes:
        running = Crc64Nvme()
        running.update(CONTENT)
        return running.digest()

    values = {
        "sha256": lambda: hashlib.sha256(CONTENT).digest(),
        "crc64nvme": crc64nvme,
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


def test_body_that_drips_is_a_transient_error_that_says_how_slow(far: Far, monkeypatch) -> None:
    """Every byte comes long before a read times out: only the rate says that the whole will never be here."""
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=2, first_pause_seconds=0.0))
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(reading, "LEAST_BYTES_PER_SECOND", 1 << 20)
    over = threading.Event()
    with far.behind() as (proxy, store):
        identity = wanted(store).identity
        proxy.drip = lambda path: over.wait(0.02) if "alt=media" in path or "a.jsonl" in path else None
        far.traffic.requests = 0
        try:
            with raises("store.too_slow", "bytes a second", "a.jsonl"):
                store.read_range("a.jsonl", 0, len(DATA), identity=identity)
        finally:
            over.set()
    assert far.traffic.requests == 2


def refusing(header: str, times: int) -> Harm:
    """503 with this Retry-After to the first so many requests, but not to those that Google's SDK makes beside ours."""
    left = [times]

    def harm(_method: str, path: str, answer: Answer) -> Answer:
        if not left[0] or path.startswith("/storage/v1/b/corpus?"):
            return answer
        left[0] -= 1
        return Answer(503, [("Retry-After", header)], b"")

    return harm


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7", 7, 7),
        ("a date", 5, 9),
        ("86400", retries.LONGEST_ASKED_SECONDS, retries.LONGEST_ASKED_SECONDS),
        ("soon", 0, 0),
        ("-5", 0, 0),
    ],
)
def test_retry_after_is_waited_for_as_the_store_asked_within_reason(
    far: Far, monkeypatch, header: str, least: float, most: float
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(retries, "sleep", pauses.append)
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(first_pause_seconds=0.0))
    if header == "a date":
        header = format_datetime(datetime.now(UTC) + timedelta(seconds=9), usegmt=True)
    with far.behind(harm=refusing(header, 1)) as (_, store):
        assert store.stat("a.jsonl") is not None
    (pause,) = pauses
    assert least <= pause <= most


@pytest.mark.parametrize("form", ["W/{}", "{bare}"], ids=["weak", "bare"])
def test_s3_etag_that_is_weak_or_bare_is_one_identity(rclone, hasty, monkeypatch, tmp_path, form: str) -> None:
    """Some gateways do not quote it; a proxy that may compress marks it as weak, in some answers only."""
    open_store("s3://corpus", endpoint_url=rclone.endpoint).receive_bytes(DATA, "a.jsonl")

    def harm(_method: str, _path: str, answer: Answer) -> Answer:
        def other(name: str, value: str) -> str:
            return form.format(value, bare=value.strip('"')) if name.lower() == "etag" else value

        return answer._replace(headers=[(name, other(name, value)) for name, value in answer.headers])

    with FaultyProxy(rclone.endpoint, harm=harm) as proxy:
        store = open_store("s3://corpus", endpoint_url=proxy.endpoint)
        (listed,) = store.list_files()
        assert store.stat("a.jsonl") == listed
        assert store.read_range("a.jsonl", 5, 300, identity=listed.identity) == DATA[5:300]
        store.receive_bytes(DATA[:99], "b.jsonl")
        path = tmp_path / "large"
        path.write_bytes(DATA * 90)
        store.receive(path, "c.jsonl", hashlib.sha256(DATA * 90).hexdigest())
    assert open_store("s3://corpus", endpoint_url=rclone.endpoint).open("c.jsonl").read() == DATA * 90


@pytest.mark.parametrize(
    ("status", "code"), [(408, "RequestTimeout"), (408, ""), (403, "RequestTimeTooSkewed")], ids=str
)
def test_s3_answer_that_passes_is_asked_for_again(rclone, hasty, status: int, code: str) -> None:
    left = [1]

    def harm(_method: str, _path: str, answer: Answer) -> Answer:
        if not left[0]:
            return answer
        left[0] -= 1
        return Answer(status, [], f"<Error><Code>{code}</Code></Error>".encode() if code else b"")

    with FaultyProxy(rclone.endpoint, harm=harm) as proxy:
        traffic = Traffic()
        assert open_store("s3://corpus", endpoint_url=proxy.endpoint, traffic=traffic).list_files() == []
    assert traffic.retries == 1


def test_s3_request_that_the_server_does_not_have_is_refused_at_once(rclone) -> None:
    with FaultyProxy(rclone.endpoint, harm=lambda *_: Answer(501, [], b"")) as proxy:
        traffic = Traffic()
        with raises("s3.refused", "list"):
            open_store("s3://corpus", endpoint_url=proxy.endpoint, traffic=traffic).list_files()
    assert traffic.requests == 1


@pytest.mark.parametrize(
    ("environment", "requests"),
    [({retries.ATTEMPTS_KEY: "1"}, 1), ({retries.ATTEMPTS_KEY: "3"}, 3), ({retries.BUDGET_KEY: "0"}, 1)],
)
def test_retries_of_the_environment_hold_for_reads_and_writes(
    aws, monkeypatch, environment: dict[str, str], requests: int
) -> None:
    """The original reads five times whatever --s3-retries says, and writes once."""
    monkeypatch.setattr(retries, "POLICY", retries.policy_of(environment))
    for ask in (lambda store: store.stat("a"), lambda store: store.receive_bytes(b"x", "a")):
        traffic = Traffic()
        with raises("s3.unavailable", f"{requests} times"):
            ask(open_store("s3://corpus", endpoint_url="http://127.0.0.1:9", traffic=traffic))  # nobody listens there
        assert (traffic.requests, traffic.retries) == (requests, requests - 1)


@pytest.mark.parametrize("words", ["many", "0", "-1", "1.5"])
def test_retries_attempts_that_are_no_number_are_refused(words: str) -> None:
    with raises("store.attempts", words):
        retries.policy_of({retries.ATTEMPTS_KEY: words})
    assert retries.policy_of({}) == retries.RetryPolicy()


def test_retries_pauses_double_spread_and_stay_within_the_longest() -> None:
    policy = retries.RetryPolicy()
    pauses = [policy.pause_seconds("s3://corpus/a", attempt) for attempt in range(12)]
    assert pauses == [policy.pause_seconds("s3://corpus/a", attempt) for attempt in range(12)]
    for attempt, pause in enumerate(pauses):
        whole = min(20.0, 0.1 * 2**attempt)
        assert whole / 2 <= pause <= whole
    assert policy.pause_seconds("s3://corpus/b", 5) != pauses[5]


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst"])
def test_compressed_bomb_is_refused_before_it_fills_memory(ending: str) -> None:
    zeros = bytes(80 << 20)
    bomb = gzip.compress(zeros, 9) if ending == ".jsonl.gz" else zstandard.compress(zeros)
    read = []
    with open_decompressed(io.BytesIO(bomb), f"bomb{ending}") as stream:  # noqa: SIM117
        with raises("source.decompression_bomb"):
            read.extend(map(len, iter(lambda: stream.read(1 << 20), b"")))
    assert sum(read) <= 70 << 20
