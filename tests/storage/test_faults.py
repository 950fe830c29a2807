"""Downloads and uploads through a proxy that does harm, or broken off: right to the byte, or refused."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
import requests
from botocore.config import Config

from corpusmill.errors import CorpusmillError, StoreUnavailableError
from corpusmill.storage import Traffic, Wanted, fetch, open_store, transfers
from corpusmill.storage.s3 import S3Store
from tests.gcs_front import GcsFront
from tests.raising import raises
from tests.storage.far import DATA, Far, big_file, download

FAULTS = ["refused", "reset", "truncated", "delayed", "corrupted", "lost", "reordered"]


def content(number: int, size: int) -> bytes:
    return hashlib.shake_128(b"%d" % number).digest(size)


@pytest.mark.parametrize("fault", FAULTS)
def test_download_through_faults_is_right_to_the_byte(far: Far, hasty, tmp_path, monkeypatch, fault: str) -> None:
    if far.kind == "hub" and fault in {"corrupted", "reordered"}:
        return
    monkeypatch.setattr(transfers, "PART_BYTES", 10_000)
    faults = 1 if fault == "corrupted" else 8
    with far.behind(seed=3, share=0.5, faults=faults, kinds=(fault,)) as (proxy, store):
        assert download(store, "a.jsonl", tmp_path) == DATA
        assert proxy.dealt[fault] >= 1
        assert fault in {"delayed", "reordered"} or far.traffic.retries >= 1
        assert fault != "reordered" or far.kind == "gcs" or proxy.overtaken >= 1


@pytest.mark.parametrize(
    ("far", "fault"),
    [*(("s3", fault) for fault in FAULTS), *(("gcs", fault) for fault in ("refused", "reset", "corrupted", "lost"))],
    indirect=["far"],
)
def test_upload_in_parts_through_faults_is_right_to_the_byte_or_refused(far: Far, hasty, tmp_path, fault: str) -> None:
    path, sha256 = big_file(tmp_path)
    arrived = True
    with far.behind(seed=4, share=0.5, faults=3, kinds=(fault,)) as (proxy, store):
        try:
            store.receive(path, "new", sha256)
        except CorpusmillError:
            # As parts go up side by side and the faults meet them in any order, one part may be corrupted twice.
            assert fault == "corrupted" or far.kind == "s3"
            arrived = False
        assert proxy.dealt[fault] >= 1 or fault == "truncated"
    seen = far.store()
    if arrived or seen.stat("new"):
        assert seen.open("new").read() == path.read_bytes()


def test_download_that_broke_off_goes_on_behind_what_arrived(rclone, hasty, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 100_000)
    data = content(3, 2_000_000)
    open_store("s3://corpus", endpoint_url=rclone.endpoint).receive_bytes(data, "a")
    first = open_store("s3://corpus", endpoint_url=rclone.endpoint)
    read_range = S3Store.read_range

    def breaks(self, name, start, last, *, identity):
        if start >= 1_200_000:
            raise StoreUnavailableError("network.gone: the network is gone")
        return read_range(self, name, start, last, identity=identity)

    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "read_range", breaks)
        with raises("network.gone"):
            download(first, "a", tmp_path)
    arrived = (tmp_path / "partial").stat().st_size
    assert arrived >= 500_000
    traffic = Traffic()
    assert download(open_store("s3://corpus", endpoint_url=rclone.endpoint, traffic=traffic), "a", tmp_path) == data
    assert traffic.bytes_received == len(data) - arrived // 100_000 * 100_000


@pytest.mark.parametrize("by", ["us", "others"])
def test_download_of_a_damaged_partial_file_starts_again(rclone, hasty, tmp_path, monkeypatch, by: str) -> None:
    """What an object of ours says is sha256, of one of others the store's md5: of what had arrived, too."""
    monkeypatch.setattr(transfers, "PART_BYTES", 100_000)
    data = content(4, 1_000_000)
    if by == "us":
        open_store("s3://corpus", endpoint_url=rclone.endpoint).receive_bytes(data, "a")
    else:
        plainly = Config(request_checksum_calculation="when_required")
        boto3.Session().client("s3", endpoint_url=rclone.endpoint, config=plainly).put_object(
            Bucket="corpus", Key="a", Body=data
        )
    traffic = Traffic()
    store = open_store("s3://corpus", endpoint_url=rclone.endpoint, traffic=traffic)
    there = store.stat("a")
    assert there is not None
    assert [checksum.kind for checksum in store.checksums("a", identity=there.identity)] == [
        "sha256" if by == "us" else "md5"
    ]
    arrived = bytearray(data[:300_000])
    arrived[150_000] ^= 1
    (tmp_path / "partial").write_bytes(arrived)
    assert download(store, "a", tmp_path) == data
    assert traffic.bytes_received == 700_000 + 1_000_000


def test_upload_that_broke_off_is_finished_by_the_next_one(moto, moto_client, hasty, tmp_path) -> None:
    data = content(5, 20 << 20)
    path = tmp_path / "file"
    path.write_bytes(data)
    ours = moto_client.create_multipart_upload(
        Bucket="corpus", Key="a", Metadata={"sha256": hashlib.sha256(data).hexdigest()}
    )["UploadId"]
    moto_client.upload_part(Bucket="corpus", Key="a", UploadId=ours, PartNumber=2, Body=data[8 << 20 : 16 << 20])
    foreign = moto_client.create_multipart_upload(Bucket="corpus", Key="a")["UploadId"]
    moto_client.upload_part(Bucket="corpus", Key="a", UploadId=foreign, PartNumber=1, Body=b"x" * (5 << 20))
    traffic = Traffic()
    open_store("s3://corpus", endpoint_url=moto, traffic=traffic).receive(path, "a", hashlib.sha256(data).hexdigest())
    assert traffic.bytes_sent == 12 << 20
    assert moto_client.get_object(Bucket="corpus", Key="a")["Body"].read() == data
    assert not moto_client.list_multipart_uploads(Bucket="corpus").get("Uploads")


def test_upload_that_another_aborted_begins_anew(rclone, hasty, monkeypatch, tmp_path) -> None:
    data = content(7, 20 << 20)
    path = tmp_path / "file"
    path.write_bytes(data)
    store = S3Store("s3://corpus", endpoint_url=rclone.endpoint)
    send, aborted = store.client.upload_part, list[str]()

    def send_when_aborted(**printed: Any) -> Any:
        if not aborted:
            aborted.append(printed["UploadId"])
            store.client.abort_multipart_upload(Bucket="corpus", Key="a", UploadId=printed["UploadId"])
        return send(**printed)

    monkeypatch.setattr(store.client, "upload_part", send_when_aborted)
    store.receive(path, "a", hashlib.sha256(data).hexdigest())
    assert aborted
    assert store.open("a").read() == data


@pytest.mark.parametrize("left", ["nothing", "an object without our metadata"])
def test_upload_that_another_ended_while_it_was_completed_begins_anew(rclone, hasty, tmp_path, left: str) -> None:
    """Two uploads that go on with the same parts: one aborts them, or its object has no metadata yet."""
    data = content(10, 17 << 20)
    path = tmp_path / "file"
    path.write_bytes(data)
    store = S3Store("s3://corpus", endpoint_url=rclone.endpoint)
    complete, ended = store.client.complete_multipart_upload, list[str]()

    def complete_when_ended(**printed: Any) -> Any:
        if not ended:
            ended.append(printed["UploadId"])
            store.client.abort_multipart_upload(Bucket="corpus", Key="a", UploadId=printed["UploadId"])
            if left != "nothing":
                store.client.put_object(Bucket="corpus", Key="a", Body=data)
        return complete(**printed)

    store.client.complete_multipart_upload = complete_when_ended
    digest = hashlib.sha256(data).hexdigest()
    store.receive(path, "a", digest)
    assert ended
    assert store.digest("a") == digest
    assert store.open("a").read() == data


def test_uploads_of_one_file_at_the_same_time_both_arrive(rclone, hasty, tmp_path) -> None:
    data = content(8, 20 << 20)
    path = tmp_path / "file"
    path.write_bytes(data)
    stores = [open_store("s3://corpus", endpoint_url=rclone.endpoint) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for sending in [pool.submit(store.receive, path, "a", hashlib.sha256(data).hexdigest()) for store in stores]:
            sending.result()
    assert stores[0].open("a").read() == data


def test_file_that_two_copies_deliver_at_the_same_time_arrives_from_both(tmp_path) -> None:
    data = content(9, 1 << 20)
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "file").write_bytes(data)
    os.mkfifo(tmp_path / "slow")
    store = open_store(str(tmp_path / "out"))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(store.receive, tmp_path / "slow", "a", digest)
        with (tmp_path / "slow").open("wb", buffering=0) as feed:
            feed.write(data[:-1])  # more than a pipe holds: the copy has begun
            store.receive(tmp_path / "file", "a", digest)
            feed.write(data[-1:])
        slow.result()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert (tmp_path / "out" / "a").read_bytes() == data


def test_upload_of_a_file_that_changed_is_aborted_and_the_old_object_stays(moto, moto_client, tmp_path) -> None:
    moto_client.put_object(Bucket="corpus", Key="a", Body=b"as it was")
    path = tmp_path / "file"
    path.write_bytes(content(6, 17 << 20))
    with raises("store.upload_differs_from_receipt"):
        open_store("s3://corpus", endpoint_url=moto).receive(path, "a", hashlib.sha256(b"other").hexdigest())
    assert not moto_client.list_multipart_uploads(Bucket="corpus").get("Uploads")
    assert moto_client.get_object(Bucket="corpus", Key="a")["Body"].read() == b"as it was"


@pytest.mark.parametrize("kind", ["s3", "gcs"])
def test_killed_uploads_of_other_versions_are_removed_and_those_of_this_one_stay(request, tmp_path, kind: str) -> None:
    if kind == "s3":
        store = open_store("s3://corpus/web", endpoint_url=request.getfixturevalue("moto"))
        client = request.getfixturevalue("moto_client")
        for key in ("web/v1/a", "web/v1/b", "web/v2/a", "webs/v1/a"):
            client.create_multipart_upload(Bucket="corpus", Key=key)
        left = lambda: {item["Key"] for item in client.list_multipart_uploads(Bucket="corpus").get("Uploads", [])}  # noqa: E731
    else:
        gcs = request.getfixturevalue("gcs")
        store = open_store("gs://corpus/web")
        for key in ("web/v1/a", "web/v1/b", "web/v2/a", "webs/v1/a"):
            gcs.uploads[key] = (f"/corpus/{key}", {}, {})
        left = lambda: set(gcs.uploads)  # noqa: E731
    assert store.remove_unfinished(keep="v2/") == 2
    assert left() == {"web/v2/a", "webs/v1/a"}
    assert store.remove_unfinished(keep="v2/") == 0


def test_arrivals_that_nobody_has_written_to_for_a_day_are_removed(tmp_path) -> None:
    store = open_store(str(tmp_path))
    store.receive_bytes(b"whole", "v1/a")
    name = f".{hashlib.sha256(b'a').hexdigest()[:32]}.partial"
    forgotten, arriving, foreign = tmp_path / "v1" / name, tmp_path / "v2" / name, tmp_path / "v1" / "mine.partial"
    arriving.parent.mkdir()
    for path in (forgotten, arriving, foreign):
        path.write_bytes(b"half")
    for path in (forgotten, foreign):
        os.utime(path, (0, 0))
    assert store.remove_unfinished(keep="v2/") == 1
    assert not forgotten.exists()
    assert all(path.exists() for path in (arriving, foreign, tmp_path / "v1" / "a"))
    assert open_store(str(tmp_path / "nowhere")).remove_unfinished(keep="v2/") == 0


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


@pytest.mark.parametrize(("method", "verb"), [("PUT", "write"), ("GET", "list uploads of")])
def test_gcs_upload_that_is_not_permitted_is_aborted_and_nothing_is_visible(
    gcs, hasty, tmp_path, monkeypatch, method: str, verb: str
) -> None:
    path, sha256 = big_file(tmp_path)
    answer = GcsFront._upload

    def forbids(front, client, address, query, body):
        if client.command == method and query.get("partNumber", ["2"]) == ["2"]:
            return 403, [], b"<Error><Code>AccessDenied</Code></Error>"
        return answer(front, client, address, query, body)

    monkeypatch.setattr(GcsFront, "_upload", forbids)
    with raises("gcs.refused", verb, "roles/storage.objectUser"):
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


def test_fetch_holds_no_more_than_its_parts_in_flight(rclone, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 256 << 10)
    store = open_store("s3://corpus", endpoint_url=rclone.endpoint)
    store.receive_bytes(bytes(16 << 20), "big")
    there = store.stat("big")
    assert there is not None
    tracemalloc.start()
    try:
        fetch(store, Wanted("big", there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "file").stat().st_size == 16 << 20
    assert peak_bytes < 2 * (transfers.PARTS_IN_FLIGHT + transfers.THREADS) << 18
