"""verify: what a bucket holds of a dataset is read again, and whatever is damaged there is named."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from tests.system.corpus import write_corpus
from tests.system.verified import (
    build,
    findings,
    flipped,
)


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


def test_verify_object_with_another_byte_and_the_right_digest_noted_is_named(tmp_path, bucket) -> None:
    write_corpus(tmp_path / "corpus", documents=20)
    destinations = [{"path": "s3://ready/sets", "endpoint_url": bucket.meta.endpoint_url}]
    built = build(tmp_path, destinations=destinations)
    version = json.loads(bucket.get_object(Bucket="ready", Key="sets/tiny/latest.json")["Body"].read())["version"]
    named = {"Bucket": "ready", "Key": f"sets/tiny/{version}/documents/a1.jsonl"}
    there = bucket.get_object(**named)
    bucket.put_object(**named, Body=flipped(there["Body"].read()), Metadata=there["Metadata"])
    (actual,) = findings(built)
    assert (actual.where, actual.what) == (
        f"s3://ready/{named['Key']}",
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
