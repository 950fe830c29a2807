"""The manifest open_lm reads, and DCLM's dataset reference."""

from __future__ import annotations

import pytest

from corpusmill.export.companions import exp_data, read_manifest, write_manifest
from tests.oracles import export as oracle
from tests.oracles.export import append, keep
from tests.raising import raises

SHARDS = [("shard_00000000", 8192), ("shard_00000001", 8192), ("shard_00000002", 1234)]
TEXT = (
    b'{"num_sequences":8192,"shard":"shard_00000000"}\n'
    b'{"num_sequences":8192,"shard":"shard_00000001"}\n'
    b'{"num_sequences":1234,"shard":"shard_00000002"}\n'
)


@pytest.fixture
def folder(tmp_path):
    write_manifest(tmp_path / "manifest.jsonl", SHARDS)
    for name, _ in SHARDS:
        (tmp_path / f"{name}.tar").touch()
    return tmp_path


def test_webdataset_manifest_is_sorted_and_ends_with_a_newline(tmp_path):
    counts = write_manifest(tmp_path / "manifest.jsonl", reversed(SHARDS))
    assert (tmp_path / "manifest.jsonl").read_bytes() == TEXT
    assert counts == {"shards": 3, "records": 17_618, "bytes": len(TEXT)}


def test_webdataset_open_lm_sees_every_shard(folder):
    seen = oracle.open_lm_manifest((folder / "manifest.jsonl").read_text())
    assert [(entry["shard"], entry["num_sequences"]) for entry in seen] == SHARDS
    # tokshuf's file, without the last newline, loses one
    assert len(oracle.open_lm_manifest(TEXT.decode().rstrip("\n"))) == 2


def test_webdataset_order_holds_beyond_eight_digits(tmp_path):
    shards = [("shard_100000000", 1), ("shard_99999999", 2)]
    write_manifest(tmp_path / "manifest.jsonl", shards)
    assert read_manifest(tmp_path / "manifest.jsonl") == shards[::-1]


@pytest.mark.parametrize(
    "shards",
    [
        [],
        [("shard_00000000", 0)],
        [("shard_00000000.tar", 1)],
        [("shard_0", 1)],
        [("a,b", 1)],
        [("shard_00000000", 1), ("shard_00000000", 2)],
    ],
)
def test_webdataset_shards_open_lm_could_not_find_are_refused(tmp_path, shards):
    with raises("manifest.no_common_name"):
        write_manifest(tmp_path / "manifest.jsonl", shards)


@pytest.mark.parametrize(
    ("damage", "at"),
    [
        (keep(-1), 96),
        (append(b"\n"), 144),
        (append(b"{}\n"), 144),
        (append(b"[1]\n"), 144),
        (append(b"7\n"), 144),
        (lambda data: data.replace(b"\n{", b"\n\n{", 1), 48),
        (lambda data: data.replace(b":8192", b": 8192", 1), 0),
        (lambda data: data.replace(b"1234", b"1234.0"), 96),
        (lambda data: data.replace(b"}\n", b',"x":1}\n', 1), 0),
    ],
)
def test_webdataset_manifest_with_a_bad_line_is_refused_with_the_byte(folder, damage, at):
    path = folder / "manifest.jsonl"
    path.write_bytes(damage(TEXT))
    with raises("manifest.line_differs manifest.not_a_shard", f"{path}, byte {at}\n"):
        read_manifest(path)


ARGUMENTS = {
    "name": "oscar",
    "sources": ["oscar-en"],
    "num_tokens": 8192 * 2049,
    "size_bytes": 79_965_184,
    "dataset_url": "s3://bucket/oscar/",
    "manifest_url": "s3://bucket/oscar/manifest.jsonl",
    "tokenizer": "EleutherAI/gpt-neox-20b",
}
REQUIRED = {
    "name", "sources", "tokenized", "num_tokens", "size", "dataset_url", "manifest_url", "dcnlp_commit_hash",
    "dcnlp_diff", "sampling_yaml",
}  # fmt: skip
OPTIONAL = {"uuid", "creation_date", "tokenizer", "data_key", "note", "mirrors"}


def test_webdataset_exp_data_has_the_required_keys_and_no_unknown_one():
    reference = exp_data(**ARGUMENTS)
    assert set(reference) >= REQUIRED
    assert set(reference) <= REQUIRED | OPTIONAL
    assert (reference["tokenized"], reference["data_key"], reference["size"]) == (True, "json.gz", 79_965_184)


def test_webdataset_exp_data_has_no_time_and_no_uuid_of_its_own():
    assert not {"uuid", "creation_date"} & set(exp_data(**ARGUMENTS))


@pytest.mark.parametrize(
    "urls",
    [
        {"dataset_url": "s3://bucket/oscar"},
        {"manifest_url": "manifest.jsonl"},
        {"manifest_url": "s3://bucket/manifest.jsonl"},
    ],
)
def test_webdataset_urls_open_lm_could_not_use_are_refused(urls):
    with raises("manifest.shards_not_found"):
        exp_data(**{**ARGUMENTS, **urls})
