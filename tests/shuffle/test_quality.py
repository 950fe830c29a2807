from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.shuffle.cells import draw_placements
from corpusmill.shuffle.quality import (
    OrderMeter,
    OrderQuality,
    correlation_band,
    grouped_table,
    poisson_limit,
    qualities_bands,
    split_pieces,
    table_band,
)
from corpusmill.tokens.records import ContextPlan, Packing, plan_contexts
from tests.oracles.quality import correlation, documents_in_contexts, neighbours_and_pairs
from tests.quick import examples

CONTEXT = 4


def ends_of(lengths: list[int]) -> np.ndarray:
    return np.cumsum(lengths, dtype=np.uint64)


def contents(plan: ContextPlan) -> list[frozenset[int]]:
    return [frozenset(plan.documents[first:last].tolist()) for first, last in pairwise(plan.bounds.tolist())]


def measured(
    order: list[tuple[int, int]], positions: list[int], ends: dict[str, list[int]], cut: int = 3, pieces=None
) -> OrderQuality:
    """The quality of an order of (shard, ordinal), handed over in pieces of `cut` records."""
    meter = OrderMeter(positions, len(order), ends)
    rows = np.array(order, np.uint64).reshape(-1, 2)
    for first in range(0, len(rows), cut):
        piece = rows[first : first + cut]
        meter.add(piece[:, 0], piece[:, 1], {})
    return meter.finish(pieces)


@examples(150)
@given(
    st.lists(st.lists(st.integers(0, 14), max_size=6), min_size=1, max_size=3),
    st.randoms(),
    st.integers(1, 5),
    st.sampled_from([{}, {"fit": "best_fit"}, {"overlap_tokens": 1}, {"tail": "always_pad", "eot": "around"}]),
)
def test_quality_neighbours_and_correlation_equal_the_oracles(shards, rng, cut: int, options) -> None:
    plans = [plan_contexts(ends_of(lengths), CONTEXT, Packing(**options)) for lengths in shards]
    held = [documents_in_contexts(lengths, CONTEXT) for lengths in shards] if not options else [*map(contents, plans)]
    order = [(shard, ordinal) for shard, contexts in enumerate(held) for ordinal in range(len(contexts))]
    rng.shuffle(order)
    counts = [len(contexts) for contexts in held]
    if not order:
        return
    actual = measured(order, counts, {}, cut, lambda shard: split_pieces(plans[shard]))
    expected = neighbours_and_pairs([(shard, ordinal, held[shard][ordinal]) for shard, ordinal in order])
    assert (actual.neighbours, actual.pairs) == expected
    if len(order) > 2:
        source = [sum(counts[:shard]) + ordinal for shard, ordinal in order]
        assert actual.correlation == pytest.approx(correlation(source), abs=1e-5)


def shuffled_order(seed: int, shards: int, records: int) -> list[tuple[int, int]]:
    keyed = []
    for shard in range(shards):
        _, keys = draw_placements(seed, "documents", shard, records, 1)
        keyed += [(int(key), shard, ordinal) for ordinal, key in enumerate(keys)]
    return [(shard, ordinal) for _, shard, ordinal in sorted(keyed)]


def bands(order: list[tuple[int, int]], shards: int, records: int, significance: float) -> list[bool]:
    ends = {"webdataset": [*range(500, len(order), 500), len(order)]}
    item = measured(order, [records] * shards, ends, 1000, lambda _: (np.arange(records), np.arange(records) // 2))
    actual = qualities_bands([("contexts", item)], significance)
    assert len(actual) == 3
    return [abs(band.measured - band.ideal) <= band.tolerance for _, band in actual]


def test_quality_shuffled_orders_stay_in_their_bands_as_often_as_promised() -> None:
    # 60 orders at 1 %: 0.6 outside are expected, more than 4 come with probability 1e-4.
    outside = sum(not all(bands(shuffled_order(seed, 3, 1000), 3, 1000, 0.01)) for seed in range(60))
    assert outside <= 4


def test_quality_source_order_is_outside_every_band() -> None:
    assert bands([(shard, record) for shard in range(3) for record in range(1000)], 3, 1000, 0.001) == [False] * 3


def test_quality_order_shuffled_only_within_shards_is_found() -> None:
    order = [
        item for shard in range(3) for item in sorted(shuffled_order(7, 3, 1000), key=lambda pair: pair[0] != shard)
    ]
    within = [item for place, item in enumerate(order) if place % 3000 < 1000]
    assert bands(within, 3, 1000, 0.001)[::2] == [False, False]


@pytest.mark.parametrize("records", [0, 1, 2, 3])
def test_quality_few_records_are_measured_without_a_fault(records: int) -> None:
    order = [(0, ordinal) for ordinal in range(records)]
    pieces = (np.arange(records), np.arange(records))
    item = measured(order, [records], {"webdataset": [records]}, pieces=lambda _: pieces)
    assert item.tables == {"webdataset": None}
    assert (correlation_band(item, 0.001) is None) == (records < 3)


def test_quality_files_are_merged_until_chi_square_holds() -> None:
    table = np.full((4, 10), 3)
    grouped = grouped_table(table)
    assert grouped is not None
    assert np.sum(grouped) == 120
    assert min(np.sum(grouped, axis=0)) >= 20
    assert grouped_table(np.full((4, 1), 100)) is None
    assert grouped_table(np.full((1, 10), 100)) is None


def test_quality_chi_square_limit_is_the_tables_quantile() -> None:
    # The two-sided 0.2 % band's upper end at 9 degrees of freedom is the 99.9 % quantile, 27.877 in the tables.
    band = table_band([[9, 9, 9, 9]] * 4, 0.002)
    assert (band.ideal + band.tolerance) * 9 == pytest.approx(27.877, rel=0.01)


@pytest.mark.parametrize(("mean", "limit"), [(0.0, 0), (1.0, 3), (5.0, 10)])
def test_quality_poisson_limit_is_the_least_with_a_tail_below(mean: float, limit: int) -> None:
    assert poisson_limit(mean, 0.05) == limit
