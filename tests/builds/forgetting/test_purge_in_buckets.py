"""Purge where the work folder and the destination are in a bucket: no object there has the text any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.forgetting.purge import purge
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.work_folder.outputs import attempt_key
from corpusmill.inspect.verify import verify_build
from corpusmill.questions import QUESTIONS
from tests.builds.forgetting.test_purge import MINE
from tests.engine.work_folder.machines import machine
from tests.raising import raises
from tests.system.test_forget import build, settings, write_list, write_sources

MIDDLE = MINE["text"][len(MINE["text"]) // 2 :][:120].encode()
OUT = {"destinations": [{"path": "s3://corpus/out"}]}
# Few steps: each of them asks the store a dozen times.
IN_BUCKET = {"work_folder": "s3://corpus/mill", "dedup": {"mode": "none"}, "exports": {"megatron": {}}}


@pytest.fixture
def root(tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    write_sources(tmp_path)
    with machine(tmp_path, "here"):
        yield tmp_path


def objects_holding(client: Any, text: bytes) -> list[str]:
    """Keys of the objects that have a text, or the text as JSON: everything is read, nothing is opened."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="corpus")
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    forms = (text, json.dumps(text.decode())[1:-1].encode())
    bodies = {key: client.get_object(Bucket="corpus", Key=key)["Body"].read() for key in keys}
    return [key for key, body in bodies.items() if any(form in body for form in forms)]


@pytest.mark.slow
def test_purge_leaves_no_object_of_a_work_folder_with_the_text(root: Path, moto_client: Any) -> None:
    write_list(root, {"id": "2-3"})
    build(settings(root, "also", **IN_BUCKET))  # whose filter wrote the shard anew, with the text
    write_list(root, {"id": "2-3"}, {"id": MINE["id"]})
    of = build(settings(root, "also", **IN_BUCKET))
    # An attempt whose worker was killed: no receipt names it.
    shard = of.units("index")[-1]
    folder = attempt_key(of.step_folder("index", shard), "0123456789abcdef")[1]
    moto_client.put_object(Bucket="corpus", Key=f"{folder}/tokenized", Body=b"\xff" + MINE["text"].encode())
    before = objects_holding(moto_client, MIDDLE)
    assert f"{folder}/tokenized" in before
    assert len(before) == 3  # and of index, and of the filter before
    done = purge(of)
    assert (done.documents, done.unsearchable, done.remains) == (2, 0, [])
    assert objects_holding(moto_client, MIDDLE) == []
    assert not [path for path in (root / "here").rglob("*") if path.is_file() and MIDDLE in path.read_bytes()]
    assert done.searched_bytes > 0
    assert sorted(done.out_of_reach) == [
        "mirrors of s3://corpus/mill/tiny on other machines (remove their caches)",
        "part2.jsonl (a source)",
    ]
    assert verify_build(of).findings == ()


@pytest.mark.slow
def test_older_versions_go_and_what_purge_may_not_touch_is_named(root: Path, moto_client: Any) -> None:
    moto_client.put_bucket_versioning(Bucket="corpus", VersioningConfiguration={"Status": "Enabled"})
    build(settings(root, **OUT))
    write_list(root, {"id": MINE["id"]})
    of = build(settings(root, "also", **OUT))
    assert any(key.startswith("out/tiny/") for key in objects_holding(moto_client, MIDDLE))
    key = "out/tiny/0123456789ab/copy.jsonl"
    moto_client.put_object(Bucket="corpus", Key=key, Body=MINE["text"].encode())
    done = purge(of)
    assert done.remains == [f"s3://corpus/{key}"]
    assert objects_holding(moto_client, MIDDLE) == [key]
    assert "s3://corpus/out/tiny/0123456789ab (no run of this work folder delivered it)" in done.out_of_reach
    assert "s3://corpus/out/tiny (the bucket keeps versions of objects, deleted ones, too)" in done.out_of_reach
    for item in moto_client.list_object_versions(Bucket="corpus").get("Versions", []):
        moto_client.delete_object(Bucket="corpus", Key=item["Key"], VersionId=item["VersionId"])
    for item in moto_client.list_object_versions(Bucket="corpus").get("DeleteMarkers", []):
        moto_client.delete_object(Bucket="corpus", Key=item["Key"], VersionId=item["VersionId"])


@pytest.mark.slow
def test_purge_of_a_destination_that_cannot_be_searched_fails_and_names_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(settings(root, **OUT))
    write_list(root, {"id": MINE["id"]})
    of = build(settings(root, "also", **OUT))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with raises("forget.destinations_unsearched", "s3://corpus/out/tiny (no credentials"):
        QUESTIONS["purge"](plan_receipt=str(of.plan_folder / RECEIPT_NAME))
