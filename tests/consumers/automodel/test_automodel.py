"""NeMo AutoModel's reader of our shards; the package asks for 40 more that its one file does not import."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

OUTPUTS = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"])
LAYOUTS = {"automodel": (OUTPUTS / "automodel", 4, 100_257), "llmc": (OUTPUTS / "olmo", 2, 0)}
SEQUENCE = 64


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    file = distribution("nemo-automodel").locate_file("nemo_automodel/components/datasets/llm/nanogpt_dataset.py")
    spec = importlib.util.spec_from_file_location("nanogpt_dataset", str(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_dataset"] = module
    spec.loader.exec_module(module)
    return module


def pattern_of(layout: str) -> str:
    return str(LAYOUTS[layout][0] / "latest" / "numpy" / "*train*.bin")


def files_of(layout: str) -> list[np.ndarray]:
    """The tokens of each training file, by the format's description."""
    folder, width, _ = LAYOUTS[layout]
    paths = sorted((folder / "latest" / "numpy").glob("*train*.bin"))
    return [np.fromfile(path, f"<u{width}", offset=1024) for path in paths]


def samples(
    reader: ModuleType, layout: str, count: int, monkeypatch: Any = None, rank: int = 0, ranks: int = 1, **more: Any
) -> list[list[int]]:
    """The first `count` samples of a rank, each with its last label."""
    if monkeypatch is not None:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    dataset = reader.NanogptDataset(pattern_of(layout), SEQUENCE, **more)
    return [[*map(int, row["input_ids"]), int(row["labels"][-1])] for row in islice(iter(dataset), count)]


def windows(tokens: np.ndarray) -> list[list[int]]:
    """A token more than a sequence each, one after another."""
    return tokens[: len(tokens) // (SEQUENCE + 1) * (SEQUENCE + 1)].reshape(-1, SEQUENCE + 1).tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_automodel_shard_is_our_tokens(reader, layout: str) -> None:
    paths = sorted(Path(pattern_of(layout)).parent.glob("*train*.bin"))
    assert len(paths) > 2
    for path, tokens in zip(paths, files_of(layout), strict=True):
        assert np.array_equal(reader.load_bin_shard(path).numpy(), tokens)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_automodel_samples_of_one_rank_are_the_windows_of_all_files_in_order(reader, layout: str) -> None:
    expected = [window for tokens in files_of(layout) for window in windows(tokens)]
    assert samples(reader, layout, len(expected)) == expected
    assert len(expected) > 20


def test_automodel_ranks_with_two_files_each_read_every_file_once(reader, monkeypatch) -> None:
    files = files_of("automodel")
    ranks = len(files) // 2
    assert ranks > 1
    for rank in range(ranks):
        expected = [window for tokens in files[rank::ranks] for window in windows(tokens)]
        assert samples(reader, "automodel", len(expected), monkeypatch, rank, ranks) == expected


def test_automodel_samples_aligned_by_our_index_are_those_of_a_search(reader, monkeypatch) -> None:
    eot, expected = LAYOUTS["automodel"][2], []
    for tokens in files_of("automodel"):
        at = 0
        while True:
            begins = np.flatnonzero(tokens[at:] == eot)
            if not len(begins) or at + begins[0] + SEQUENCE + 1 > len(tokens):
                break
            at += int(begins[0])
            expected.append(tokens[at : at + SEQUENCE + 1].tolist())
            at += SEQUENCE + 1
    assert len(expected) > 10
    aligned = {"align_to_bos": True, "bos_token": eot}
    indexed = samples(reader, "automodel", len(expected), **aligned)
    monkeypatch.setattr(reader, "_load_bos_index", lambda _path: None)
    searched = samples(reader, "automodel", len(expected), **aligned)
    assert indexed == searched == expected


def test_automodel_first_tokens_are_shown(reader, shown) -> None:
    paths = sorted(Path(pattern_of("automodel")).parent.glob("*train*.bin"))
    read = reader.load_bin_shard(paths[0])[:SEQUENCE].tolist()
    plain = files_of("automodel")[0][:SEQUENCE]
    name = "numpy, layout automodel"
    shown("nemo-automodel", "load_bin_shard", name, read, plain, lambda: map(reader.load_bin_shard, paths))
