"""Megatron-Energon prepares our WebDataset shards by its own command, and its loader draws every context once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from megatron.energon import (
    Cooker,
    DefaultTaskEncoder,
    WorkerConfig,
    basic_sample_keys,
    get_loader,
    get_train_dataset,
    stateless,
)

DATASET = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest" / "webdataset"


@stateless
def cook(sample: dict) -> dict:
    """What a training script writes for shards whose samples are gzipped lists of ids."""
    return {**basic_sample_keys(sample), "tokens": json.loads(gzip.decompress(sample["json.gz"]))}


class Contexts(DefaultTaskEncoder):
    """A sample is a context as it stands in the shard."""

    decoder = None
    cookers = (Cooker(cook),)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A copy of the delivered folder, because Energon keeps its index beside the shards."""
    folder = tmp_path_factory.mktemp("energon") / "webdataset"
    shutil.copytree(DATASET, folder)
    command = [Path(sys.executable).with_name("energon"), "prepare", "--non-interactive", "--no-progress"]
    command += ["--num-workers", "1", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def plainly() -> dict[str, list[int]]:
    """Key -> tokens of every sample of the shards."""
    contexts = {}
    for path in DATASET.glob("*.tar"):
        with tarfile.open(path) as shard:
            for member in shard:
                contexts[member.name.removesuffix(".json.gz")] = json.loads(
                    gzip.decompress(shard.extractfile(member).read())
                )
    return contexts


def drawn(folder: Path, ranks: int, shuffle_buffer: int | None) -> list[tuple[str, list[int]]]:
    samples = []
    for rank in range(ranks):
        dataset = get_train_dataset(
            folder,
            worker_config=WorkerConfig(rank=rank, world_size=ranks, num_workers=0),
            batch_size=None,
            shuffle_buffer_size=shuffle_buffer,
            max_samples_per_sequence=None,
            task_encoder=Contexts(),
            repeat=False,
        )
        samples += [(sample["__key__"], sample["tokens"]) for sample in get_loader(dataset)]
    return samples


@pytest.mark.parametrize(("ranks", "shuffle_buffer"), [(1, None), (2, 16)])
def test_energon_loader_draws_every_context_once_on_all_ranks(prepared, ranks, shuffle_buffer) -> None:
    samples = drawn(prepared, ranks, shuffle_buffer)
    assert len(samples) == len(plainly()) > 100
    assert dict(samples) == plainly()


def test_energon_index_has_as_many_samples_of_each_shard_as_our_manifest(prepared) -> None:
    counted = json.loads((prepared / ".nv-meta" / ".info.json").read_text())["shard_counts"]
    manifest = [json.loads(line) for line in (DATASET / "manifest.jsonl").read_text().splitlines()]
    assert counted == {f"{line['shard']}.tar": line["num_sequences"] for line in manifest}
