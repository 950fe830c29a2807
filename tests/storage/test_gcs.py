"""What only GCS has: generations, uploads in parts by the XML API, crc32c of everything."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import requests

from corpusmill.errors import CorpusmillError
from corpusmill.storage import Traffic, Wanted, fetch, open_store, transfers
from tests.gcs_front import GcsFront
from tests.raising import raises


def content(size: int) -> bytes:
    return hashlib.shake_128(b"gcs").digest(size)


def big_file(folder: Path) -> tuple[Path, str]:
    data = content(17 << 20)
    (folder / "big").write_bytes(data)
    return folder / "big", hashlib.sha256(data).hexdigest()


def test_gcs_object_is_read_at_its_planned_generation_and_another_is_refused(gcs, tmp_path) -> None:
    store = open_store("gs://corpus/data")
    store.receive_bytes(b"planned", "a.jsonl")
    planned = store.stat("a.jsonl")
    assert planned is not None
    assert store.read_range("a.jsonl", 0, 4, identity=planned.identity) == b"plan"
    assert gcs.generations == [planned.identity.partition("-")[2]]
    store.receive_bytes(b"changed", "a.jsonl")  # of the same size
    with raises("source.changed_since_planned", "gs://corpus/data/a.jsonl"):
        store.read_range("a.jsonl", 0, 4, identity=planned.identity)
    with raises("source.changed_since_planned"):
        fetch(store, Wanted("a.jsonl", 7, planned.identity), tmp_path / "file", tmp_path / "partial")
    with raises("source.changed_since_planned"):
        fetch(store, Wanted("a.jsonl", 7, planned.identity, ((0, 3),)), tmp_path / "file", tmp_path / "partial")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("kind", ["refused", "reset", "truncated", "delayed", "corrupted", "lost", "reordered"])
def test_gcs_download_through_faults_is_right_to_the_byte(gcs, hasty, tmp_path, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 100_000)
    data = content(1_500_000)
    open_store("gs://corpus").receive_bytes(data, "a")
    faults = 1 if kind == "corrupted" else 8
    with GcsFront(gcs.target.geturl(), seed=3, share=0.5, faults=faults, kinds=(kind,)) as front:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", front.endpoint)
        traffic = Traffic()
        store = open_store("gs://corpus", traffic=traffic)
        there = store.stat("a")
        assert there is not None
        fetch(store, Wanted("a", there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
        assert (tmp_path / "file").read_bytes() == data
        assert front.dealt[kind] >= 1
        assert kind in {"delayed", "reordered"} or traffic.retries >= 1


def test_gcs_large_file_goes_up_in_parts_and_has_our_digest(gcs, tmp_path) -> None:
    path, sha256 = big_file(tmp_path)
    traffic = Traffic()
    store = open_store("gs://corpus/data", traffic=traffic)
    store.receive(path, "a b/ü.bin", sha256)
    assert gcs.parts == 3
    assert not gcs.uploads
    assert store.open("a b/ü.bin").read() == path.read_bytes()
    assert store.digest("a b/ü.bin") == sha256
    assert traffic.bytes_sent == 17 << 20
    assert traffic.requests >= 3 + 3  # parts, their beginning and end, the look that follows


@pytest.mark.parametrize("kind", ["refused", "reset", "corrupted", "lost"])
def test_gcs_upload_through_faults_is_right_to_the_byte_or_refused(
    gcs, hasty, tmp_path, monkeypatch, kind: str
) -> None:
    path, sha256 = big_file(tmp_path)
    with GcsFront(gcs.target.geturl(), seed=4, share=0.5, faults=3, kinds=(kind,)) as front:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", front.endpoint)
        traffic = Traffic()
        try:
            open_store("gs://corpus", traffic=traffic).receive(path, "a", sha256)
        except CorpusmillError:
            # As parts go up side by side and the faults meet them in any order, one part may be corrupted twice.
            assert kind == "corrupted"
        assert front.dealt[kind] >= 1
        assert traffic.retries >= 1
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
    seen = open_store("gs://corpus")
    if seen.stat("a"):
        assert seen.open("a").read() == path.read_bytes()


@pytest.mark.parametrize("there", ["nothing", "another"])
def test_gcs_upload_whose_completion_was_not_heard_is_done(gcs, hasty, tmp_path, monkeypatch, there: str) -> None:
    """The store has completed it, the answer is lost, and asked again it knows no such upload: the object says so."""
    path, sha256 = big_file(tmp_path)
    if there == "another":
        open_store("gs://corpus").receive_bytes(b"as it was", "a")
    fate = GcsFront._fate
    lost = []

    def loses_the_completion(front, client, body):
        if client.command == "POST" and "uploadId" in client.path and not lost:
            lost.append(client.path)
            return "lost", 0, 0
        return fate(front, client, body)

    monkeypatch.setattr(GcsFront, "_fate", loses_the_completion)
    store = open_store("gs://corpus")
    store.receive(path, "a", sha256)
    assert lost
    assert store.digest("a") == sha256
    assert store.open("a").read() == path.read_bytes()
    assert not gcs.uploads


def test_gcs_upload_that_may_not_go_on_is_aborted_and_nothing_is_visible(gcs, hasty, tmp_path, monkeypatch) -> None:
    path, sha256 = big_file(tmp_path)
    put = GcsFront._upload

    def forbids(front, client, address, query, body):
        forbidden = client.command == "PUT" and query["partNumber"] == ["2"]
        return (
            (403, [], b"<Error><Code>AccessDenied</Code></Error>")
            if forbidden
            else put(front, client, address, query, body)
        )

    monkeypatch.setattr(GcsFront, "_upload", forbids)
    with raises("gcs.refused", "write", "roles/storage.objectUser"):
        open_store("gs://corpus").receive(path, "a", sha256)
    assert not gcs.uploads
    assert open_store("gs://corpus").list_files() == []


def test_gcs_upload_that_was_killed_is_aborted_by_the_next_one_of_its_key_alone(gcs, tmp_path) -> None:
    path, sha256 = big_file(tmp_path)
    for key in ("data/a%20b", "data/a%20b", "data/a%20bc", "data/a"):  # what kill -9 leaves: begun, never ended
        requests.post(f"{gcs.endpoint}/corpus/{key}?uploads", timeout=10).raise_for_status()
    store = open_store("gs://corpus/data")
    store.receive(path, "a b", sha256)
    assert sorted(address for address, _, _ in gcs.uploads.values()) == ["/corpus/data/a", "/corpus/data/a%20bc"]
    assert store.digest("a b") == sha256
    store.receive(path, "a", sha256)
    store.receive(path, "a bc", sha256)
    assert not gcs.uploads


def test_gcs_upload_left_behind_that_may_not_be_listed_is_refused_with_the_role_to_grant(
    gcs, tmp_path, monkeypatch
) -> None:
    path, sha256 = big_file(tmp_path)
    answer = GcsFront._upload

    def forbids(front, client, address, query, body):
        if client.command == "GET":
            return 403, [], b"<Error><Code>AccessDenied</Code></Error>"
        return answer(front, client, address, query, body)

    monkeypatch.setattr(GcsFront, "_upload", forbids)
    with raises("gcs.refused", "list uploads of", "roles/storage.objectUser"):
        open_store("gs://corpus").receive(path, "a", sha256)
    assert open_store("gs://corpus").list_files() == []
