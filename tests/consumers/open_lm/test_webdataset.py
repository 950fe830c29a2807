"""The webdataset package reads every sample, by open_lm's rules (its data.py and file_utils.py)."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections import Counter
from pathlib import Path

import webdataset as wds

DATASET = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest" / "webdataset"
SEQ_LEN = 128


def open_lm_manifest() -> list[dict]:
    """open_lm splits the file at newlines and drops the last piece."""
    return [json.loads(line) for line in (DATASET / "manifest.jsonl").read_text().split("\n")[:-1]]


def plainly_read(shard: str) -> list[list[int]]:
    with tarfile.open(DATASET / f"{shard}.tar") as archive:
        return [json.loads(gzip.decompress(archive.extractfile(member).read())) for member in archive]


def pipeline(shards: list[str], *stages) -> wds.DataPipeline:
    url = f"{DATASET}/{{{','.join(shards)}}}.tar" if len(shards) > 1 else f"{DATASET}/{shards[0]}.tar"
    return wds.DataPipeline(
        wds.SimpleShardList(url),
        wds.split_by_node,
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.decode(),
        wds.rename(json="json.gz"),
        *stages,
    )


def samples(shards: list[str]) -> list[dict]:
    # webdataset from 0.2.96 on hands out one item without a key at the end of a tar.
    return [one for one in pipeline(shards) if one.get("__key__")]


def test_webdataset_t33_manifest_by_open_lms_rule_names_every_shard() -> None:
    listed = open_lm_manifest()
    assert {f"{one['shard']}.tar" for one in listed} == {path.name for path in DATASET.glob("*.tar")}
    assert len(listed) > 2
    assert all(set(one) == {"shard", "num_sequences"} for one in listed)
    assert len({one["num_sequences"] for one in listed[:-1]}) == 1


def test_webdataset_t33_every_shard_has_as_many_samples_as_the_manifest_says() -> None:
    for one in open_lm_manifest():
        assert len(samples([one["shard"]])) == one["num_sequences"]


def test_webdataset_t33_brace_expression_reads_every_sample_in_order() -> None:
    shards = [one["shard"] for one in open_lm_manifest()]
    read = samples(shards)
    assert [one["json"] for one in read] == [context for shard in shards for context in plainly_read(shard)]
    assert len({one["__key__"] for one in read}) == len(read)


def test_webdataset_t33_every_sample_is_one_field_of_plain_ints_of_one_length() -> None:
    for one in samples([one["shard"] for one in open_lm_manifest()]):
        assert {key for key in one if not key.startswith("__")} == {"json"}
        assert len(one["json"]) == SEQ_LEN + 1
        assert all(type(token) is int and 0 <= token < 100_277 for token in one["json"])


def test_webdataset_t33_batches_are_equal_lists() -> None:
    shards = [one["shard"] for one in open_lm_manifest()]
    stages = (wds.to_tuple("json"), wds.batched(4, partial=True))
    batches = [contexts for (contexts,) in pipeline(shards, *stages)]
    assert {len(contexts) for contexts in batches[:-1]} == {4}
    read = Counter(tuple(int(token) for token in context) for contexts in batches for context in contexts)
    assert read == Counter(tuple(context) for shard in shards for context in plainly_read(shard))


def test_webdataset_t27_exp_data_is_what_dclms_dataclass_takes() -> None:
    reference = json.loads((DATASET / "exp_data.json").read_text())
    required = {"name", "sources", "tokenized", "num_tokens", "size", "dataset_url", "manifest_url"}
    required |= {"dcnlp_commit_hash", "dcnlp_diff", "sampling_yaml"}
    optional = {"uuid", "creation_date", "tokenizer", "data_key", "note", "mirrors"}
    assert required <= set(reference) <= required | optional
    assert reference["tokenized"] is True
    assert reference["num_tokens"] == sum(one["num_sequences"] for one in open_lm_manifest()) * (SEQ_LEN + 1)
    files = [*DATASET.glob("*.tar"), DATASET / "manifest.jsonl"]
    assert reference["size"] == sum(path.stat().st_size for path in files)
    assert Path(reference["manifest_url"]).read_bytes() == (DATASET / "manifest.jsonl").read_bytes()
    assert reference["manifest_url"] == reference["dataset_url"] + "manifest.jsonl"
