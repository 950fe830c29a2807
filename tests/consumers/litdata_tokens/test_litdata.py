"""litdata 0.2.76 reads shards of llm.c and AutoModel as they are, beside the index that docs/formats.md writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litdata import StreamingDataset, TokensLoader
from litdata.utilities.env import _DistributedEnv

DATASETS = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"])
DOCS = Path(__file__).resolve().parents[3] / "docs" / "formats.md"
BLOCK = 64
WIDTHS = {"olmo": "<u2", "automodel": "<u4"}
"""The dataset with shards of a width of ids -> it."""


@pytest.fixture(params=WIDTHS)
def shards(request, tmp_path) -> Iterator[tuple[str, Path, list[list[int]]]]:
    """(dataset, a folder of links to its training shards with the index of the docs, the blocks that they hold)."""
    folder = tmp_path / "train"
    folder.mkdir()
    paths = sorted((DATASETS / request.param / "latest" / "numpy").rglob("*train*.bin"))
    assert len(paths) > 1
    for path in paths:
        (folder / path.name).symlink_to(path)
    (lines,) = re.findall(r"```python\n(import json, pathlib, struct\n.*?)```", DOCS.read_text(), re.DOTALL)
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        exec(lines, {})  # noqa: S102 (the docs' own lines)
    finally:
        os.chdir(before)
    streams = [np.fromfile(path, WIDTHS[request.param], offset=1024).tolist() for path in paths]
    blocks = [stream[at : at + BLOCK] for stream in streams for at in range(0, len(stream) - BLOCK + 1, BLOCK)]
    return request.param, folder, blocks


def reader(folder: Path, cache: Path, ranks: int = 1, rank: int = 0) -> StreamingDataset:
    made = StreamingDataset(
        str(folder), item_loader=TokensLoader(BLOCK), shuffle=False, drop_last=False, cache_dir=str(cache)
    )
    made.distributed_env = _DistributedEnv(ranks, rank, ranks)
    return made


def test_litdata_reads_every_full_block_in_order(shards, tmp_path) -> None:
    _, folder, blocks = shards
    dataset = reader(folder, tmp_path / "cache")
    assert [block.tolist() for block in dataset] == blocks
    assert len(dataset) == len(blocks)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_litdata_ranks_together_read_every_full_block_once(shards, tmp_path, ranks) -> None:
    _, folder, blocks = shards
    parts = [[block.tolist() for block in reader(folder, tmp_path / str(rank), ranks, rank)] for rank in range(ranks)]
    assert [block for part in parts for block in part] == blocks
    assert all(parts)


def test_litdata_first_block_is_shown(shards, shown, tmp_path) -> None:
    name, folder, blocks = shards
    dataset = reader(folder, tmp_path / "cache")

    def every() -> Iterator[Any]:
        return iter(reader(folder, tmp_path / "cache"))

    export = {"olmo": "numpy, layout llmc", "automodel": "numpy, layout automodel"}[name]
    shown("litdata", "StreamingDataset", export, dataset[0], blocks[0], every, dataset=name)
