"""A build from a bucket to a bucket, against a real S3 server on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.manifest import dataset_version
from corpusmill.upload.stages.retention import find_old_versions, remove_old_version
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus


@pytest.fixture
def client(s3_endpoint, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=s3_endpoint)
    for bucket in ("raw", "ready"):
        client.create_bucket(Bucket=bucket)
    yield client
    for bucket in ("raw", "ready"):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for item in page.get("Contents", []):
                client.delete_object(Bucket=bucket, Key=item["Key"])
        client.delete_bucket(Bucket=bucket)


def upload_corpus(client, folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.put_object(Bucket="raw", Key=f"dump/{path.relative_to(folder).as_posix()}", Body=path.read_bytes())


def s3_configuration(root: Path, s3_endpoint: str) -> dict[str, object]:
    source = {"paths": ["s3://raw/dump"], "shard_bytes": "8KiB", "endpoint_url": s3_endpoint}
    destinations = [{"path": "s3://ready/datasets", "endpoint_url": s3_endpoint}, {"path": str(root / "outputs")}]
    return configuration(root, source=source, destinations=destinations)


def test_build_from_bucket_to_bucket_and_folder_holds_the_same_bytes(tmp_path, s3_endpoint, client) -> None:
    write_corpus(tmp_path / "corpus", documents=40)
    upload_corpus(client, tmp_path / "corpus")
    build_dataset(check_config(s3_configuration(tmp_path, s3_endpoint), where="test"), workers=1)
    local = tmp_path / "outputs/tiny"
    version = json.loads((local / "latest.json").read_text())["version"]
    listed = client.list_objects_v2(Bucket="ready", Prefix=f"datasets/tiny/{version}/")["Contents"]
    remote = {
        item["Key"].removeprefix("datasets/tiny/"): client.get_object(Bucket="ready", Key=item["Key"])["Body"].read()
        for item in listed
    }
    folder = {
        path.relative_to(local).as_posix(): path.read_bytes() for path in (local / version).rglob("*") if path.is_file()
    }
    assert remote == folder
    assert f"{version}/dataset.json" in remote

    from_folder = tmp_path / "other"
    write_corpus(from_folder / "corpus", documents=40)
    build_dataset(check_config(configuration(from_folder), where="test"), workers=1)
    assert (from_folder / "outputs/tiny" / version).is_dir(), (
        "a bucket and a folder with the same files give one version"
    )


def test_build_local_copy_with_one_other_byte_is_fetched_anew(tmp_path, s3_endpoint, client, caplog) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    upload_corpus(client, tmp_path / "corpus")
    planned = open_build(plan_dataset(check_config(s3_configuration(tmp_path, s3_endpoint), where="test")))
    planned.run("download", "00000")
    folder = planned.folder("download", "00000")
    listed = json.loads((folder / "files.json").read_text())
    assert [item["checksum"].partition(":")[0] for item in listed] == ["xxh3_128"] * len(listed)
    copy = folder / "files/a1.jsonl"
    content = bytearray(copy.read_bytes())
    content[-4] ^= 1
    copy.write_bytes(content)
    planned.run("index", "00000")
    assert "download 00000 runs again: error[step.output_damaged]" in caplog.text
    content[-4] ^= 1
    assert copy.read_bytes() == bytes(content)  # fetched anew


def test_build_bucket_copies_the_token_file_itself_repairs_the_folder_and_gets_nothing_twice(
    tmp_path, s3_endpoint, client
) -> None:
    from corpusmill.inspect.datasets.repair import compare_copies, repair_copies

    write_corpus(tmp_path / "corpus", documents=24)
    upload_corpus(client, tmp_path / "corpus")
    config = check_config(s3_configuration(tmp_path, s3_endpoint), where="test")
    built = open_build(build_dataset(config, workers=1))
    files = list((tmp_path / "outputs/tiny/latest").resolve().rglob("*.ds"))
    receipt = built.receipt("upload", "00000")
    assert receipt.traffic["files_named"] == len(files) > 0
    dataset_bytes = receipt.counts["dataset_bytes"]
    assert receipt.traffic["bytes_sent"] < dataset_bytes - sum(path.stat().st_size for path in files) // 2

    folder, bucket = str(tmp_path / "outputs/tiny"), "s3://ready/datasets/tiny"
    whole = files[0].read_bytes()
    files[0].unlink()
    files[0].write_bytes(whole[:-1] + b"x")
    version = files[0].parent.parent.name
    client.delete_object(Bucket="ready", Key=f"datasets/tiny/{version}/nanoset/{files[0].name}.index")
    compared = compare_copies(folder, bucket, second_endpoint_url=s3_endpoint)
    assert compared.wrong_first == (f"nanoset/{files[0].name}",)
    assert compared.wrong_second == (f"nanoset/{files[0].name}.index",)
    assert repair_copies(compared) == (1, 1)
    assert files[0].read_bytes() == whole
    again = compare_copies(folder, bucket, second_endpoint_url=s3_endpoint)
    assert (again.wrong_first, again.wrong_second) == ((), ())

    client.create_multipart_upload(Bucket="ready", Key="datasets/tiny/000000000000/numpy/killed.npy")
    built = open_build(build_dataset(config, workers=1))
    assert not client.list_multipart_uploads(Bucket="ready").get("Uploads")
    assert built.receipt("upload", "00000").traffic["files_sent"] == 0
    assert built.receipt("upload", "00000").counts["files"] > 10
    client.put_object(Bucket="ready", Key=f"datasets/tiny/{version}/megatron/stale.bin", Body=b"x")
    with raises("destination.delivery_differs", "megatron/stale.bin"):
        build_dataset(config, workers=1)


def test_old_version_goes_from_bucket_and_folder_and_the_new_one_stays_whole(tmp_path, s3_endpoint, client) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    upload_corpus(client, tmp_path / "corpus")
    values = s3_configuration(tmp_path, s3_endpoint)
    versions = []
    for seed in (7, 8):
        config = check_config({**values, "shuffle": {"seed": seed}}, where="test")
        build = open_build(build_dataset(config, workers=1))
        versions.append(dataset_version(build))
    objects = {item["Key"] for item in client.list_objects_v2(Bucket="ready")["Contents"]}
    old = find_old_versions(config, keep=1)
    assert [item.folder for item in old] == [
        f"s3://ready/datasets/tiny/{versions[0]}",
        str(tmp_path / "outputs/tiny" / versions[0]),
    ]
    assert old[0].size_bytes == old[1].size_bytes
    for item in old:
        remove_old_version(item)
    left = {item["Key"] for item in client.list_objects_v2(Bucket="ready")["Contents"]}
    assert left == {key for key in objects if versions[0] not in key}
    assert verify_build(build).findings == ()
