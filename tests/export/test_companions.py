"""The manifest open_lm reads, DCLM's dataset reference, and checkpoints by the rules of Jaxformer's --continue."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export.companions import (
    EVERY,
    FOLDER,
    exp_data,
    read_manifest,
    shard_checkpoints,
    write_checkpoints,
    write_manifest,
    write_placeholders,
)
from corpusmill.export.numpy_shards import shard_names
from tests.oracles import export as oracle
from tests.oracles import jaxformer
from tests.oracles.export import append, jaxformer_shards, keep
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


EOT = 99
DOCUMENTS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), max_size=15)


def written(documents: list[list[int]], shard_tokens: int, folder: Path, cuts: list[int] | None = None) -> list[dict]:
    """Write the checkpoints of a stream whose cells are cut before the documents `cuts`; returns all of them."""
    bounds = [0, *sorted(min(cut, len(documents)) for cut in cuts or []), len(documents)]
    cells = []
    for first, last in pairwise(bounds):
        ends = np.cumsum([len(document) for document in documents[first:last]], dtype=np.uint64)
        cells.append((ends, np.zeros(last - first, np.uint64), np.arange(first, last, dtype=np.uint64)))
    write_checkpoints(shard_checkpoints(cells, shard_tokens), folder)
    every = folder / FOLDER / EVERY
    return [json.loads(line) for line in every.read_text().splitlines()] if every.exists() else []


def bucket_of(folder: Path, written_at: int = 5) -> dict[str, jaxformer.Object]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): (written_at, path.read_text()) for path in files}


@given(DOCUMENTS, st.integers(1, 12), st.lists(st.integers(0, 15), max_size=3))
def test_numpy_stream_continued_at_any_checkpoint_is_the_uninterrupted_one(
    tmp_path_factory, documents, shard_tokens: int, cuts
) -> None:
    """Killed after any shard: the rest of the stream, straddling documents included, to the last token."""
    folder = tmp_path_factory.mktemp("checkpoints")
    whole = jaxformer_shards(documents, EOT, shard_tokens)
    every = written(documents, shard_tokens, folder, cuts)
    assert len(every) == sum(len(shard) == shard_tokens for shard in whole)
    for item in every:
        rest = jaxformer.continued(documents, EOT, shard_tokens, item["documents"], item["carry_tokens"])
        assert rest == whole[item["shard"] + 1 :]


def test_numpy_original_reads_our_checkpoint_and_would_lose_the_straddling_rest(tmp_path) -> None:
    documents = [[number % 10] * 4 for number in range(30)]
    every = written(documents, 12, tmp_path)
    ours = bucket_of(tmp_path)
    assert sum(name.endswith(".txt") for name in ours) == 1  # with two, the server's time would decide
    actual = jaxformer.newest_checkpoint(ours)
    assert actual == (every[-1]["document"], 11, every[-1]["documents"])
    assert every[0] == {"shard": 0, "documents": 3, "document": "00000-000000002", "carry_tokens": 3}
    whole = jaxformer_shards(documents, EOT, 12)
    assert jaxformer.continued(documents, EOT, 12, 3, 0) != whole[1:]
    assert jaxformer.continued(documents, EOT, 12, 3, 3) == whole[1:]


def test_numpy_loader_sees_every_shard_behind_a_placeholder(tmp_path) -> None:
    names = shard_names(6, 2)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("shard")
    write_placeholders(names, tmp_path)
    for split in ("test/", "train/"):
        seen = jaxformer.listed(list(bucket_of(tmp_path)), split)
        assert seen == [name for name in names if name.startswith(split)]
