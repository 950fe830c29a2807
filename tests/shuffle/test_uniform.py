"""Whole shuffles of small inputs over thousands of seeds: every record is in every place equally often."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpusmill.shuffle.cells import gather_cell, open_scattered, scatter_records
from corpusmill.tokens.records import context_records, document_records
from corpusmill.tokens.token_shard import open_record_shard
from tests.shuffle.test_shuffle import shard_of

SEEDS = 2000
RECORDS = 12
QUANTILE = {11: 31.264, 121: 175.3}  # 99.9 % of chi-square at 11 and 121 degrees of freedom


def order_of(folder: Path, seed: int, kind: str, cells: int) -> list[int]:
    """Records of two shards, numbered in source order, in their final order."""
    scattered, actual = [], []
    for shard in range(2):
        item = folder / f"scatter-{shard}"
        item.mkdir(exist_ok=True)
        documents = [[1, 2, 3]] * (RECORDS // 2)
        tokens = shard_of(documents)
        records = document_records(tokens) if kind == "documents" else context_records(tokens, 4)
        scatter_records(records, seed=seed, kind=kind, shard=shard, cells=cells, folder=item)
        scattered.append(item)
    for cell in range(cells):
        item = folder / "cell"
        item.mkdir(exist_ok=True)
        gather_cell([open_scattered(shard, cell) for shard in scattered], cell, item)
        gathered = open_record_shard(item)
        actual += (gathered.shards * np.uint64(RECORDS // 2) + gathered.ordinals).astype(int).tolist()
    return actual


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["documents", "contexts"])
def test_shuffle_positions_over_2000_seeds_pass_chi_square(tmp_path, kind: str) -> None:
    """Records by places, 12 x 12, both margins fixed: (12 - 1)^2 degrees, and the statistic shrinks by 11 / 12."""
    places = np.zeros((RECORDS, RECORDS))
    for seed in range(SEEDS):
        order = order_of(tmp_path, seed, kind, cells=3)
        assert sorted(order) == list(range(RECORDS))
        places[order, np.arange(RECORDS)] += 1
    expected = SEEDS / RECORDS
    for row in (*places, *places.T):
        assert ((row - expected) ** 2 / expected).sum() < QUANTILE[11] * 1.35  # 24 rows and columns: 0.1 % in all
    assert ((places - expected) ** 2 / expected).sum() * (RECORDS - 1) / RECORDS < QUANTILE[121]
