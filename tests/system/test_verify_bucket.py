"""verify: what a bucket holds of a dataset is read again, and whatever is damaged there is named."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from corpusmill.storage import open_store
from tests.system.corpus import write_corpus
from tests.system.verified import build, damage, findings, flipped


@pytest.fixture
def bucket(monkeypatch, s3_endpoint):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    client.create_bucket(Bucket="ready")
    yield client
    empty_and_delete(client)


def empty_and_delete(client: Any) -> None:
    for item in client.list_objects_v2(Bucket="ready").get("Contents", []):
        client.delete_object(Bucket="ready", Key=item["Key"])
    client.delete_bucket(Bucket="ready")


def test_verify_objects_in_a_bucket_missing_changed_or_added_are_named(tmp_path, bucket) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    destinations = [{"path": "s3://ready/sets", "endpoint_url": bucket.meta.endpoint_url}]
    built = build(tmp_path, destinations=destinations)
    assert findings(built) == ()
    version = json.loads(bucket.get_object(Bucket="ready", Key="sets/tiny/latest.json")["Body"].read())["version"]
    prefix = f"sets/tiny/{version}"
    keys = {name: f"{prefix}/{name}" for name in ("dataset.json", "documents/a1.jsonl", "added")}
    same_size = bytes(bucket.head_object(Bucket="ready", Key=keys["documents/a1.jsonl"])["ContentLength"])
    bucket.delete_object(Bucket="ready", Key=keys["dataset.json"])
    bucket.put_object(Bucket="ready", Key=keys["documents/a1.jsonl"], Body=same_size)
    bucket.put_object(Bucket="ready", Key=keys["added"], Body=b"x")
    actual = findings(built)
    assert sorted(item.where for item in actual) == sorted(f"s3://ready/{key}" for key in keys.values())


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_verify_object_with_another_byte_and_the_right_digest_noted_is_named(tmp_path, request, scheme) -> None:
    endpoint = request.getfixturevalue("moto") if scheme == "s3" else request.getfixturevalue("gcs") and None
    write_corpus(tmp_path / "corpus", documents=20)
    place = f"{scheme}://corpus/ready-{scheme}"
    destination = {"path": place} | ({"endpoint_url": endpoint} if endpoint else {})
    built = build(tmp_path, destinations=[destination])
    assert findings(built) == ()
    store = open_store(f"{place}/tiny", endpoint_url=endpoint)
    (name,) = [file.name for file in store.list_files() if file.name.endswith("documents/a1.jsonl")]
    with store.open(name) as stream:
        damage(store, name, flipped(stream.read()))
    (actual,) = findings(built)
    assert (actual.where, actual.what) == (
        f"{place}/tiny/{name}",
        "a file at a destination differs from the one that was sent",
    )


def test_verify_bucket_that_cannot_be_read_is_a_finding(tmp_path, bucket) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    destinations = [{"path": "s3://ready/sets", "endpoint_url": bucket.meta.endpoint_url}]
    built = build(tmp_path, destinations=destinations)
    empty_and_delete(bucket)
    (actual,) = findings(built)
    bucket.create_bucket(Bucket="ready")
    assert actual.where.startswith("s3://ready/sets/tiny/")
    assert "NoSuchBucket" in actual.got
