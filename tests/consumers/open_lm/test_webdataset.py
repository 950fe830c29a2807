"""The webdataset package reads every sample, by open_lm's rules (its data.py and file_utils.py)."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    return [item for item in pipeline(shards) if item.get("__key__")]


def test_webdataset_manifest_by_open_lms_rule_names_every_shard() -> None:
    listed = open_lm_manifest()
    assert {f"{item['shard']}.tar" for item in listed} == {path.name for path in DATASET.glob("*.tar")}
    assert len(listed) > 2
    assert all(set(item) == {"shard", "num_sequences"} for item in listed)
    assert len({item["num_sequences"] for item in listed[:-1]}) == 1


def test_webdataset_every_shard_has_as_many_samples_as_the_manifest_says() -> None:
    for item in open_lm_manifest():
        assert len(samples([item["shard"]])) == item["num_sequences"]


def test_webdataset_brace_expression_reads_every_sample_in_order() -> None:
    shards = [item["shard"] for item in open_lm_manifest()]
    read = samples(shards)
    assert [item["json"] for item in read] == [context for shard in shards for context in plainly_read(shard)]
    assert len({item["__key__"] for item in read}) == len(read)


def test_webdataset_every_sample_is_one_field_of_plain_ints_of_one_length() -> None:
    for sample in samples([item["shard"] for item in open_lm_manifest()]):
        assert {key for key in sample if not key.startswith("__")} == {"json"}
        assert len(sample["json"]) == SEQ_LEN + 1
        assert all(type(token) is int and 0 <= token < 100_277 for token in sample["json"])


def test_webdataset_batches_are_equal_lists() -> None:
    shards = [item["shard"] for item in open_lm_manifest()]
    stages = (wds.to_tuple("json"), wds.batched(4, partial=True))
    batches = [contexts for (contexts,) in pipeline(shards, *stages)]
    assert {len(contexts) for contexts in batches[:-1]} == {4}
    read = Counter(tuple(int(token) for token in context) for contexts in batches for context in contexts)
    assert read == Counter(tuple(context) for shard in shards for context in plainly_read(shard))


def test_webdataset_exp_data_is_what_dclms_dataclass_takes() -> None:
    reference = json.loads((DATASET / "exp_data.json").read_text())
    required = {"name", "sources", "tokenized", "num_tokens", "size", "dataset_url", "manifest_url"}
    required |= {"dcnlp_commit_hash", "dcnlp_diff", "sampling_yaml"}
    optional = {"uuid", "creation_date", "tokenizer", "data_key", "note", "mirrors"}
    assert required <= set(reference) <= required | optional
    assert reference["tokenized"] is True
    assert reference["num_tokens"] == sum(item["num_sequences"] for item in open_lm_manifest()) * (SEQ_LEN + 1)
    files = [*DATASET.glob("*.tar"), DATASET / "manifest.jsonl"]
    assert reference["size"] == sum(path.stat().st_size for path in files)
    assert Path(reference["manifest_url"]).read_bytes() == (DATASET / "manifest.jsonl").read_bytes()
    assert reference["manifest_url"] == reference["dataset_url"] + "manifest.jsonl"


def test_webdataset_first_context_is_shown(shown) -> None:
    shards = [item["shard"] for item in open_lm_manifest()]
    first = samples(shards[:1])[0]["json"]

    def every() -> Iterator[Any]:
        return (sample["json"] for sample in samples(shards))

    shown("webdataset", "DataPipeline", "webdataset", first, plainly_read(shards[0])[0], every)
