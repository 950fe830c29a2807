"""Records as torch's datasets, in DataLoaders with workers and among ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "pipeline"))

from corpusmill.inspect.datasets.dataset import open_dataset  # noqa: E402

DATASET = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "all" / "latest"


@pytest.mark.parametrize("workers", [0, 2])
def test_map_style_dataset_gives_every_record_of_a_shuffling_loader_once(workers: int) -> None:
    contexts = open_dataset(DATASET)["webdataset"]
    loader = DataLoader(contexts.torch(), batch_size=7, num_workers=workers, shuffle=True)
    batches = list(loader)
    assert {batch.dtype for batch in batches} == {torch.int64}
    actual = sorted(context.tolist() for batch in batches for context in batch)
    assert actual == sorted(context.tolist() for context in contexts)


def test_map_style_dataset_of_documents_decodes_to_the_texts_of_their_numbers() -> None:
    documents = open_dataset(DATASET)["megatron"]
    for number in (0, len(documents) - 1):
        assert documents.torch()[number].tolist() == documents[number].tolist()
        assert documents.text(number).endswith("<|endoftext|>")


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_streamed_dataset_gives_each_record_to_one_worker_in_order(context: str) -> None:
    windows = open_dataset(DATASET)["nanoset"].windows(64)
    loader = DataLoader(windows.torch_stream(), batch_size=None, num_workers=3, multiprocessing_context=context)
    assert [window.tolist() for window in loader] == [window.tolist() for window in windows]


RANK = """
import json, sys
import torch.distributed
from torch.utils.data import DataLoader
from corpusmill.inspect.datasets.dataset import open_dataset
rank, folder, meeting = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
loader = DataLoader(open_dataset(folder)["megatron"].torch_stream(), batch_size=None, num_workers=2)
print(json.dumps([ids.tolist() for ids in loader]))
torch.distributed.destroy_process_group()
"""


def test_streamed_dataset_gives_each_record_to_one_rank(tmp_path: Path) -> None:
    settings = os.environ | {"PYTHONPATH": str(ROOT / "pipeline")}
    command = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(DATASET), str(tmp_path / "meeting")],
            env=settings, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    seen = [json.loads(rank.communicate(timeout=120)[0].splitlines()[-1]) for rank in ranks]
    documents = [ids.tolist() for ids in open_dataset(DATASET)["megatron"]]
    assert sorted(ids for part in seen for ids in part) == sorted(documents)
    assert abs(len(seen[0]) - len(seen[1])) <= 1 + len(documents) % 4


def test_map_style_dataset_works_with_torchs_distributed_sampler() -> None:
    documents = open_dataset(DATASET)["megatron"]
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(documents.torch(), num_replicas=2, rank=rank, shuffle=False, drop_last=False)
        seen += [documents[number].tolist() for number in sampler]
    assert {tuple(ids) for ids in seen} == {tuple(ids.tolist()) for ids in documents}
