"""Orders against the reference's published example, and against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.training.mixture.order import blend_draws, blend_order, nanoset_counts, nanoset_epoch
from corpusmill.training.mixture.sources import by_size, normalised
from tests.oracles.mixture import greedy_order

# huggingface/nanotron docs/nanoset.md: four datasets, their windows and weights, and the two arrays of one epoch.
WINDOWS = np.array([8, 2, 5, 5], np.int64)
WEIGHTS = np.array([0.1, 0.5, 0.3, 0.1])
INDEX = [1, 2, 0, 1, 3, 1, 2, 1, 2, 1, 0, 1, 2, 1, 3, 1, 2, 1, 2, 1]
SAMPLE_INDEX = [0, 0, 0, 1, 0, 0, 1, 1, 2, 0, 1, 1, 3, 0, 1, 1, 4, 0, 0, 1]
SHUFFLED_INDEX = [1, 1, 0, 2, 3, 1, 3, 1, 2, 2, 1, 1, 0, 1, 1, 2, 1, 2, 2, 1]
SHUFFLED_SAMPLE_INDEX = [1, 0, 0, 4, 1, 0, 0, 0, 2, 0, 0, 1, 1, 0, 1, 0, 1, 3, 1, 1]

weight_lists = st.lists(st.floats(0.001, 10), min_size=1, max_size=6)


def test_blend_order_of_nanotrons_example_is_its_dataset_index() -> None:
    sources, ordinals = blend_order(WEIGHTS, 20)
    assert sources.tolist() == INDEX
    assert (ordinals % WINDOWS[sources]).tolist() == SAMPLE_INDEX


def test_nanoset_epoch_of_nanotrons_example_shuffles_as_seed_1234() -> None:
    sources, windows = nanoset_epoch(WINDOWS, WEIGHTS, 1234)
    assert sources.tolist() == SHUFFLED_INDEX
    assert windows.tolist() == SHUFFLED_SAMPLE_INDEX


@pytest.mark.parametrize("samples", [1, 19, 20, 21, 60, 70])
def test_nanoset_counts_are_those_of_the_same_epoch_repeated_and_cut(samples: int) -> None:
    drawn, seen, reachable = (counts.tolist() for counts in nanoset_counts(WINDOWS, WEIGHTS, samples, 1234))
    pairs = list(zip(SHUFFLED_INDEX, SHUFFLED_SAMPLE_INDEX, strict=True))
    assert drawn == [(SHUFFLED_INDEX * 4)[:samples].count(source) for source in range(4)]
    assert seen == [sum(item == source for item, _ in set((pairs * 4)[:samples])) for source in range(4)]
    assert reachable == [sum(item == source for item, _ in set(pairs)) for source in range(4)]


@given(weight_lists, st.integers(0, 200))
def test_blend_order_any_weights_equal_the_oracle(weights: list[float], samples: int) -> None:
    shares = normalised(weights)
    sources, ordinals = blend_order(shares, samples)
    expected = greedy_order(shares.tolist(), samples)
    assert list(zip(sources.tolist(), ordinals.tolist(), strict=True)) == expected
    assert blend_draws(shares, samples).tolist() == [
        sum(source == number for source, _ in expected) for number in range(len(weights))
    ]


@given(weight_lists, st.integers(0, 3000))
def test_blend_draws_too_many_to_count_are_the_shares_within_two_draws(weights: list[float], samples: int) -> None:
    shares = normalised(weights)
    exact = blend_draws(shares, samples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpusmill.training.mixture.order.MOST_STEPS", 0)
        rounded = blend_draws(shares, samples)
    assert rounded.sum() == exact.sum() == samples
    assert np.abs(rounded - exact).max() <= 2


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_nanoset_epoch_by_size_shows_every_window_once(windows: list[int], seed: int) -> None:
    there = np.array(windows, np.int64)
    sources, ordinals = nanoset_epoch(there, by_size(windows, 1.0), seed)
    shown = sorted(zip(sources.tolist(), ordinals.tolist(), strict=True))
    assert shown == [(source, window) for source, count in enumerate(windows) for window in range(count)]
