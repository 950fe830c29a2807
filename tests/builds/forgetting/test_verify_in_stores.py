"""verify looks for forgotten texts in what buckets and hubs hold of the version, and names what it could not search."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.inspect.verify import verify_build
from corpusmill.inspect.verify.destinations import IN_SPITE, UNKNOWN
from corpusmill.tokens.stages.tokenize import configured_tokenizer
from corpusmill.upload.stages.description import latest_version
from tests.builds.forgetting.test_purge import MINE
from tests.hub_writing import WritableHub
from tests.system.test_forget import build, settings, write_list, write_sources

TEXT = MINE["text"][100:700]
LEAST = {"dedup": {"mode": "none"}, "exports": {"megatron": {}}}


def forgetful(root: Path, destination: str) -> Any:
    """A dataset built without MINE and delivered."""
    write_sources(root)
    write_list(root, {"id": MINE["id"]})
    return build(settings(root, "keep", destinations=[{"path": destination}], **LEAST))


def found(of: Any) -> dict[str, str]:
    """Where -> what is said of forgotten documents there."""
    return {item.where: item.got for item in verify_build(of).findings if item.what in {IN_SPITE, UNKNOWN}}


def parquet(text: str) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": ["other", text]}), stream)
    return stream.getvalue()


def tar_of_gzip(text: str) -> bytes:
    stream, content = io.BytesIO(), gzip.compress(text.encode())
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in ("one.gz", "other.gz"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_verify_text_in_objects_of_a_bucket_is_named_by_object(
    tmp_path: Path, moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    of = forgetful(tmp_path, "s3://corpus/out")
    assert verify_build(of).findings == ()
    version = f"out/tiny/{latest_version('s3://corpus/out/tiny')}"
    ids = configured_tokenizer(of.config).encode([TEXT.encode()])[0]
    planted = {
        "added.jsonl": json.dumps({"text": TEXT}).encode(),
        "added.bin": ids.astype(np.uint32).tobytes(),
        "added.jsonl.gz": gzip.compress(TEXT.encode()),
        "added.parquet": parquet(TEXT),
        "added.tar": tar_of_gzip(TEXT),
    }
    for name, data in {**planted, "other.parquet": parquet("nothing"), "other.tar": tar_of_gzip("nothing")}.items():
        moto_client.put_object(Bucket="corpus", Key=f"{version}/{name}", Body=data)
    line = f"text of 1 documents: part2.jsonl line {int(MINE['id'][2:]) + 1}"
    assert found(of) == {f"s3://corpus/{version}/{name}": line for name in planted}


def test_verify_object_that_is_damaged_and_those_behind_it_are_named_as_unsearched(
    tmp_path: Path, moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    of = forgetful(tmp_path, "s3://corpus/out")
    version = f"out/tiny/{latest_version('s3://corpus/out/tiny')}"
    for name in ("zz1.gz", "zz2"):
        moto_client.put_object(Bucket="corpus", Key=f"{version}/{name}", Body=gzip.compress(TEXT.encode())[:-9])
    damaged = "a damaged file cannot be searched; 2 files not searched"
    assert found(of) == {f"s3://corpus/{version}/zz1.gz": damaged}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    assert [*found(of)] == [f"s3://corpus/{version}"]


def test_verify_text_in_a_file_of_a_hub_is_named(tmp_path: Path, writable_hub: WritableHub) -> None:
    of = forgetful(tmp_path, "hf://datasets/owner/name")
    assert verify_build(of).findings == ()
    (version,) = writable_hub.tags
    tree = writable_hub.tree(version)
    assert tree is not None
    tree["more.txt"] = TEXT.encode()
    assert [*found(of)] == [f"hf://datasets/owner/name@{version}/more.txt"]
