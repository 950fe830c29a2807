"""Answers that are rare and right: slow bodies, Retry-After, weak and bare ETags, statuses that pass; and odd names."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from corpusmill.builds.overlap import require_no_overlap
from corpusmill.storage import Store, Traffic, list_sources, open_store, reading, retries
from tests.faults.proxy import Answer, FaultyProxy, Harm
from tests.gcs_front import GcsFront
from tests.hub import COMMIT, Hub
from tests.raising import raises

DATA = bytes(range(256)) * 400
FOLDERS = {"s3": "s3://corpus", "gcs": "gs://corpus", "hub": f"hf://datasets/owner/name@{COMMIT}"}


Served = tuple[str, str, Hub | None]


@pytest.fixture(params=["s3", "gcs", "hub"])
def served(request) -> Served:
    """(kind, address, the hub if it is one) of a store that holds a.jsonl."""
    kind: str = request.param
    if kind == "hub":
        hub = request.getfixturevalue("hub")
        return kind, hub.endpoint, hub
    if kind == "s3":
        endpoint = request.getfixturevalue("rclone").endpoint
    else:
        endpoint = request.getfixturevalue("gcs").target.geturl()
    open_store(FOLDERS[kind], endpoint_url=endpoint if kind == "s3" else None).receive_bytes(DATA, "a.jsonl")
    return kind, endpoint, None


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({"a.jsonl": DATA, "data/x[1].jsonl": b"{}\n"}) as hub:
        yield hub


def behind(served: Served, monkeypatch, proxy: FaultyProxy, traffic: Traffic | None = None) -> Store:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.endpoint)
    monkeypatch.setenv("HF_ENDPOINT", proxy.endpoint)
    if served[2]:
        served[2].endpoint = proxy.endpoint
    return open_store(FOLDERS[served[0]], endpoint_url=proxy.endpoint, traffic=traffic)


def proxy_of(served: Served, **harm) -> FaultyProxy:
    return (GcsFront if served[0] == "gcs" else FaultyProxy)(served[1], **harm)


def test_body_that_drips_is_a_transient_error_that_says_how_slow(served, monkeypatch) -> None:
    """Every byte comes long before a read times out: only the rate says that the whole will never be here."""
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=2, first_pause_seconds=0.0))
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(reading, "LEAST_BYTES_PER_SECOND", 1 << 20)
    over = threading.Event()
    with proxy_of(served) as proxy:
        store = behind(served, monkeypatch, proxy, traffic := Traffic())
        there = store.stat("a.jsonl")
        assert there is not None
        proxy.drip = lambda path: over.wait(0.02) if "alt=media" in path or "a.jsonl" in path else None
        traffic.requests = 0
        try:
            with raises("store.too_slow") as caught:
                store.read_range("a.jsonl", 0, len(DATA), identity=there.identity)
        finally:
            over.set()
    assert traffic.requests == 2
    assert "bytes a second" in str(caught.value)
    assert "a.jsonl" in str(caught.value)


def refusing(header: str, times: int) -> Harm:
    """503 with this Retry-After to the first so many requests, but not to those that Google's SDK makes beside ours."""
    left = [times]

    def harm(_method: str, path: str, answer: Answer) -> Answer:
        if not left[0] or path.startswith("/storage/v1/b/corpus?"):
            return answer
        left[0] -= 1
        return Answer(503, [("Retry-After", header)], b"")

    return harm


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited_for_as_the_store_asked(served, monkeypatch, form: str) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(retries, "sleep", pauses.append)
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=9), usegmt=True)
    with proxy_of(served, harm=refusing("7" if form == "seconds" else at, 1)) as proxy:
        store = behind(served, monkeypatch, proxy)
        assert store.stat("a.jsonl") is not None
    (pause,) = pauses
    assert pause == 7 if form == "seconds" else 5 < pause <= 9


@pytest.mark.parametrize(("header", "pause"), [("86400", retries.LONGEST_ASKED_SECONDS), ("soon", 0.0), ("-5", 0.0)])
def test_retry_after_without_end_or_sense_is_bounded(served, monkeypatch, header: str, pause: float) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(retries, "sleep", pauses.append)
    monkeypatch.setattr(retries, "POLICY", retries.RetryPolicy(first_pause_seconds=0.0))
    with proxy_of(served, harm=refusing(header, 1)) as proxy:
        assert behind(served, monkeypatch, proxy).stat("a.jsonl") is not None
    assert pauses == [pause]


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
    "location",
    [
        "hf://datasets/owner/name@..",
        "hf://datasets/owner/name@.",
        "hf://datasets/owner/name@a%2F..%2Fb",
        "hf://datasets/../name@main",
        "hf://datasets/owner/..@main",
        f"hf://datasets/owner/name?x=@{COMMIT}",
    ],
)
def test_hub_location_that_is_none_is_refused_before_anything_is_asked(location: str) -> None:
    with raises("hub.not_a_dataset"):
        open_store(location)


def test_source_whose_name_holds_brackets_is_listed(tmp_path: Path, rclone, rclone_client, hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    folder = tmp_path / "data [1]"
    folder.mkdir()
    (folder / "x[1].jsonl").write_bytes(b"{}\n")
    rclone_client.put_object(Bucket="corpus", Key="data/x[1].jsonl", Body=b"{}\n")
    for path, name in (
        (str(folder), "x[1].jsonl"),
        (str(folder / "x[1].jsonl"), "x[1].jsonl"),
        ("s3://corpus/data/x[1].jsonl", "x[1].jsonl"),
        (f"{FOLDERS['hub']}/data/x[1].jsonl", "x[1].jsonl"),
    ):
        assert [file.name for file in list_sources([path], (".jsonl",), rclone.endpoint)] == [name]
    (folder / "x1.jsonl").write_bytes(b"{}\n")
    (folder / "x[1].jsonl").unlink()
    pattern = str(tmp_path / "data [[]1]" / "x[1].jsonl")
    assert [file.name for file in list_sources([pattern], (".jsonl",))] == ["data [1]/x1.jsonl"]


def test_destination_below_a_source_whose_name_holds_brackets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data[1]").mkdir()
    with raises("source.contains_output"):
        require_no_overlap([str(tmp_path / "data[1]")], [("destinations", str(tmp_path / "data[1]" / "out"))])
