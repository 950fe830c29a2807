"""Histograms by powers of two against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.report import histograms
from corpusmill.report.facts import PowerHistogram
from corpusmill.report.histograms import merge_histograms, power_histogram
from tests.oracles.power_histogram import power_histogram_oracle

EDGES = [0, 1, *(2**power + shift for power in range(1, 63) for shift in (-1, 0, 1))]
lengths = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**40)), max_size=50)


def as_dict(histogram: PowerHistogram) -> dict[int, tuple[int, int]]:
    return {item.power: (item.count, item.total) for item in histogram.bins}


@given(values=lengths)
def test_power_histogram_any_lengths_equal_the_oracle(values: list[int]) -> None:
    expected = power_histogram_oracle(values)
    if sum(values) < 2**64:
        assert as_dict(power_histogram(np.array(values, dtype=np.uint64))) == expected
        assert as_dict(power_histogram(np.array(values, dtype=np.int64))) == expected


@pytest.mark.parametrize("value", [*EDGES, 2**63, 2**64 - 1])
def test_power_histogram_one_value_at_an_edge_falls_into_its_bin(value: int) -> None:
    histogram = power_histogram(np.array([value], dtype=np.uint64))
    assert as_dict(histogram) == power_histogram_oracle([value])


def test_power_histogram_many_blocks_equal_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "BLOCK_VALUES", 1000)
    values = (np.arange(4321, dtype=np.uint32) * np.uint32(2_654_435_761)) >> np.uint32(12)
    assert as_dict(power_histogram(values)) == power_histogram_oracle(values.tolist())


def test_power_histogram_bins_ascend_and_none_is_empty() -> None:
    histogram = power_histogram(np.array([1000, 0, 3, 0], dtype=np.int32))
    assert [item.power for item in histogram.bins] == [-1, 1, 9]
    assert histogram.count == 4
    assert histogram.total == 1003


def test_power_histogram_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="negative: -1"):
        power_histogram(np.array([3, -1]))


def test_power_histogram_no_values_has_no_bins() -> None:
    assert power_histogram(np.array([], dtype=np.uint64)) == PowerHistogram()


@given(parts=st.lists(lengths, max_size=4))
def test_merge_histograms_of_shards_equals_histogram_of_all(parts: list[list[int]]) -> None:
    merged = merge_histograms(power_histogram(np.array(part, dtype=np.uint64)) for part in parts if sum(part) < 2**64)
    everything = [value for part in parts if sum(part) < 2**64 for value in part]
    assert as_dict(merged) == power_histogram_oracle(everything)
    assert [item.power for item in merged.bins] == sorted(item.power for item in merged.bins)
