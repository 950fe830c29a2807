from __future__ import annotations

import tempfile
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.shuffle.cells import (
    cells_needed,
    draw_placements,
    gather_cell,
    gather_shard,
    open_scattered,
    scatter_records,
)
from corpusmill.tokens.records import context_records, document_records
from corpusmill.tokens.token_shard import TokenShard, open_record_shard
from tests.oracles.tokens import contexts_of
from tests.quick import examples

EOT = 9
SHARDS = st.lists(st.lists(st.lists(st.integers(0, 8), max_size=6), max_size=10), min_size=1, max_size=4)


def shard_of(documents: list[list[int]]) -> TokenShard:
    tokens = np.array([token for document in documents for token in document], "<u2")
    ends = np.cumsum([len(document) for document in documents], dtype=np.uint64)
    return TokenShard(tokens, ends, "test", "0" * 64, 10, EOT, pad_id=EOT)


def shuffled(
    shards: list[list[list[int]]], folder: Path, *, kind: str, seed: int, cells: int
) -> list[tuple[int, int, list[int]]]:
    """(shard, ordinal, tokens) of every record in the shuffled order."""
    scattered = []
    for number, documents in enumerate(shards):
        item = folder / f"scatter-{number}"
        item.mkdir()
        shard = shard_of(documents)
        records = document_records(shard) if kind == "documents" else context_records(shard, 4)
        scatter_records(records, seed=seed, kind=kind, shard=number, cells=cells, folder=item)
        scattered.append(item)
    actual = []
    for cell in range(cells):
        item = folder / f"cell-{cell}"
        item.mkdir()
        gather_cell([open_scattered(shard, cell) for shard in scattered], cell, item)
        gathered = open_record_shard(item)
        for record in range(gathered.records):
            tokens, _ = gathered.slice(record, record + 1)
            actual.append((int(gathered.shards[record]), int(gathered.ordinals[record]), tokens.tolist()))
    return actual


@examples(60)
@given(SHARDS, st.sampled_from(["documents", "contexts"]), st.integers(1, 7), st.integers(0, 2**64 - 1))
def test_shuffle_any_record_is_there_once_with_its_provenance(shards, kind: str, cells: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        actual = shuffled(shards, Path(folder), kind=kind, seed=seed, cells=cells)
    rows = [
        (number, ordinal, row)
        for number, shard in enumerate(shards)
        for ordinal, row in enumerate(shard if kind == "documents" else contexts_of(shard, 4, EOT, EOT))
    ]
    assert sorted(actual) == [record for record in rows if record[2]]


@examples(60)
@given(SHARDS, st.sampled_from(["documents", "contexts"]), st.integers(1, 9))
def test_source_order_every_shard_is_a_cell_and_keeps_its_records_and_their_digest(shards, kind, batch_tokens) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("corpusmill.shuffle.cells.BATCH_TOKENS", batch_tokens)
        for number, documents in enumerate(shards):
            item, cell = Path(folder) / f"scatter-{number}", Path(folder) / f"cell-{number}"
            item.mkdir()
            cell.mkdir()
            shard = shard_of(documents)
            records = document_records(shard) if kind == "documents" else context_records(shard, 4)
            before = scatter_records(records, seed=None, kind=kind, shard=number, cells=1, folder=item)
            after = gather_shard(open_scattered(item, 0), number, cell)
            assert (after.records, after.tokens, after.content) == (
                before.records,
                before.tokens,
                before.content.records,
            )
            gathered = open_record_shard(cell)
            whole = [document for document in documents if document]
            expected = whole if kind == "documents" else contexts_of(documents, 4, EOT, EOT)
            assert [gathered.slice(i, i + 1)[0].tolist() for i in range(gathered.records)] == expected
            assert set(gathered.shards.tolist()) <= {number}
            assert gathered.ordinals.tolist() == records.ordinals.tolist()


def test_shuffle_order_is_uniform_over_all_permutations(tmp_path) -> None:
    """Chi-square over the 24 orders of 4 documents in 2 shards; 44.18 is the 99.5 % quantile at 23 degrees."""
    times, documents = 2400, [[[1], [2]], [[3], [4]]]
    orders: Counter[tuple[int, ...]] = Counter()
    for seed in range(times):
        rows = []
        for number, shard in enumerate(documents):
            cells, keys = draw_placements(seed, "documents", number, len(shard), 3)
            rows += [(int(cell), int(key), item[0]) for cell, key, item in zip(cells, keys, shard, strict=True)]
        orders[tuple(token for _, _, token in sorted(rows))] += 1
    assert set(orders) == set(permutations([1, 2, 3, 4]))
    expected = times / 24
    assert sum((count - expected) ** 2 / expected for count in orders.values()) < 44.18


def test_placements_known_values_never_change() -> None:
    cells, keys = draw_placements(1234, "documents", 0, 3, 8)
    assert cells.tolist() == [4, 5, 4]
    assert keys.tolist() == [10100417164398415007, 13496948938284231652, 11025547269070702792]


@pytest.mark.parametrize("other", [(8, "contexts", 3), (7, "documents", 3), (7, "contexts", 4)])
def test_placements_seed_kind_and_shard_each_change_the_draw(other: tuple[int, str, int]) -> None:
    assert draw_placements(7, "contexts", 3, 50, 8)[1].tolist() != draw_placements(*other, 50, 8)[1].tolist()


def test_cells_needed_budget_divides_the_tokens() -> None:
    assert cells_needed(0, 0, 1 << 20) == 4
    assert cells_needed(4 << 30, 0, 256 << 20) == 118  # 4 GiB x 1.15 / 40 MiB
    assert cells_needed(0, 10**7, 256 << 20) == 44  # rows alone need memory, too
    assert cells_needed(1 << 40, 0, 1 << 30) == 1493  # however many: 1 TiB x 1.15 / (1 GiB - 216 MiB)


@pytest.mark.parametrize("kind", ["documents", "contexts"])
def test_shuffle_any_number_of_cells_gives_the_same_order(tmp_path, kind: str) -> None:
    shards = [[[token % 9] * (token % 5) for token in range(40)], [[1, 2, 3]] * 30]
    actual = []
    for cells in (1, 4, 16, 61):
        (tmp_path / str(cells)).mkdir()
        actual.append(shuffled(shards, tmp_path / str(cells), kind=kind, seed=5, cells=cells))
    assert len(actual[0]) > 40
    assert all(item == actual[0] for item in actual)


SEEDS = 1000
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
def test_shuffle_positions_over_1000_seeds_pass_chi_square(tmp_path, kind: str) -> None:
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
