from __future__ import annotations

import hashlib
import logging
import traceback
from http.server import BaseHTTPRequestHandler

import pytest
import xxhash

from corpusmill.storage import Checksum, Traffic, Wanted, fetch, list_sources, open_location, open_store, transfers
from tests.faults.proxy import FaultyProxy
from tests.hub import COMMIT, Hub
from tests.raising import raises

FILES = {
    "README.md": b"# data",
    "data/part10.jsonl": b'{"text": "ten"}\n' * 200,
    "data/part2.jsonl": b'{"text": "two"}\n' * 3,
    "data/part3.jsonl": b"",
}


@pytest.fixture
def hub(monkeypatch):
    with Hub(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_hub_dataset_is_listed_in_natural_order_at_a_commit(hub) -> None:
    actual = list_sources(["hf://datasets/owner/name"], (".jsonl",))
    assert [file.name for file in actual] == ["data/part2.jsonl", "data/part3.jsonl", "data/part10.jsonl"]
    assert actual[0].location == f"hf://datasets/owner/name@{COMMIT}/data/part2.jsonl"


def test_hub_folder_and_single_file_are_sources(hub) -> None:
    assert [file.name for file in list_sources(["hf://datasets/owner/name@main/data/"], (".jsonl",))] == [
        "part2.jsonl",
        "part3.jsonl",
        "part10.jsonl",
    ]
    assert [file.name for file in list_sources(["hf://datasets/owner/name/data/part2.jsonl"], (".jsonl",))] == [
        "part2.jsonl"
    ]


def test_hub_glob_is_a_source_at_the_same_commit(hub) -> None:
    actual = list_sources(["hf://datasets/owner/name@main/d*/part[0-9].jsonl"], (".jsonl",))
    assert [file.name for file in actual] == ["data/part2.jsonl", "data/part3.jsonl"]
    assert actual[0].location == f"hf://datasets/owner/name@{COMMIT}/data/part2.jsonl"


@pytest.mark.parametrize("name", ["data/part10.jsonl", "data/part2.jsonl", "data/part3.jsonl"])
def test_hub_file_arrives_verified(hub, hasty, tmp_path, name: str) -> None:
    hub.refuse = 2
    store, last = open_location(f"hf://datasets/owner/name@{COMMIT}/{name}")
    there = store.stat(last)
    assert there is not None
    own = fetch(store, Wanted(last, there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
    assert (tmp_path / "file").read_bytes() == FILES[name]
    assert own == Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(FILES[name]))


@pytest.mark.parametrize("name", ["data/../../x.jsonl", "data//x.jsonl", "/etc/x.jsonl"])
def test_hub_that_lists_a_name_that_would_leave_the_folder_is_refused(monkeypatch, name: str) -> None:
    with Hub({name: b"{}\n"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        with raises("source.name_leaves_folder"):
            list_sources(["hf://datasets/owner/name"], (".jsonl",))


@pytest.mark.parametrize("kind", ["refused", "reset", "truncated", "delayed", "lost"])
def test_hub_download_through_faults_is_right_to_the_byte(hasty, tmp_path, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 1000)
    data = hashlib.shake_128(b"hub").digest(20_000)
    with (
        Hub({"a.jsonl": data}) as hub,
        FaultyProxy(hub.endpoint, seed=3, share=0.5, faults=6, kinds=(kind,)) as proxy,
    ):
        hub.endpoint = proxy.endpoint  # where it sends those who ask for a file
        monkeypatch.setenv("HF_ENDPOINT", proxy.endpoint)
        traffic = Traffic()
        store = open_store(f"hf://datasets/owner/name@{COMMIT}", traffic=traffic)
        there = store.stat("a.jsonl")
        assert there is not None
        fetch(store, Wanted("a.jsonl", there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
        assert (tmp_path / "file").read_bytes() == data
        assert proxy.dealt[kind] >= 1
        assert kind == "delayed" or traffic.retries >= 1


def test_hub_file_with_other_bytes_than_its_commit_says_is_refused(hub, hasty, tmp_path) -> None:
    store, last = open_location(f"hf://datasets/owner/name@{COMMIT}/data/part10.jsonl")
    entry = hub.entry("data/part10.jsonl")
    hub.entry = lambda _path: entry
    hub.files["data/part10.jsonl"] = FILES["data/part10.jsonl"].replace(b"ten", b"TEN")
    there = store.stat(last)
    assert there is not None
    with raises("store.checksum_differs"):
        fetch(store, Wanted(last, there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
    assert not (tmp_path / "file").exists()


def test_hub_gated_dataset_says_how_to_get_in(monkeypatch) -> None:
    with Hub(dict(FILES), token="let-me-in") as server:  # noqa: S106
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        with raises("hub.refused", "look up", "HF_TOKEN"):
            open_store("hf://datasets/owner/name").list_files()


class SignedHub(Hub):
    """Sends those who ask for a file to an address with a signature, where there is none."""

    def get(self, client: BaseHTTPRequestHandler) -> None:
        if "/resolve/" in client.path:
            return self.send(client, 302, b"", {"Location": f"{self.endpoint}/nowhere?X-Amz-Signature=hush"})
        return super().get(client)


def test_hub_redirect_is_never_printed_with_its_signature(monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    with SignedHub(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        store, name = open_location(f"hf://datasets/owner/name@{COMMIT}/data/part2.jsonl")
        with raises("hub.refused", "read") as caught:
            store.read_range(name, 0, 5, identity="48-x")
    assert "/nowhere" in str(caught.value)
    assert "hush" not in "".join(traceback.format_exception(caught.value)) + caplog.text


class LeadingHub(Hub):
    """Says that the next page is another host's; `sent` are the Authorization headers that it got."""

    def __init__(self, next_page: str | None) -> None:
        super().__init__(dict(FILES))
        self.next_page, self.sent = next_page, list[str | None]()

    def get(self, client: BaseHTTPRequestHandler) -> None:
        self.sent.append(client.headers.get("Authorization"))
        if self.next_page and "/tree/" in client.path:
            return self.json(client, [self.entry("README.md")], {"Link": f'<{self.next_page}>; rel="next"'})
        return super().get(client)


def test_hub_whose_next_page_is_of_another_host_is_not_followed_with_the_token(hasty, monkeypatch) -> None:
    with LeadingHub(None) as other, LeadingHub(f"{other.endpoint}/page") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_TOKEN", "hf_hush")
        with raises("store.malformed_answer"):
            open_store(f"hf://datasets/owner/name@{COMMIT}").list_files()
        assert "Bearer hf_hush" in server.sent
        assert other.sent == []


def test_hub_missing_dataset_is_permanent(hub) -> None:
    with raises("hub.refused", "look up"):
        open_store("hf://datasets/owner/nothing").list_files()


@pytest.mark.parametrize("location", ["hf://models/owner/name", "hf://datasets/name", "hf://datasets//name"])
def test_hub_location_that_is_no_dataset_is_refused(location: str) -> None:
    with raises("hub.not_a_dataset"):
        open_store(location)


def test_hub_takes_no_single_file(hub) -> None:
    with raises("hub.single_file"):
        open_store("hf://datasets/owner/name").receive_bytes(b"", "a")
