"""Drawing without replacement: every unit exactly as often as it should be, and what a sample says of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.sampling import (
    FILES,
    READ_FACTOR,
    PivotalDraw,
    file_chances,
    student_quantile,
    total_of,
)


def drawn(chances: list[float], seed: int, pieces: int = 1) -> list[int]:
    """Numbers of the units that one draw takes, handed to it in so many pieces."""
    draw = PivotalDraw[int]({"test": seed})
    taken = []
    for piece in np.array_split(np.arange(len(chances)), pieces):
        taken += draw.take(piece.tolist(), [chances[number] for number in piece])
    return taken + draw.rest()


@given(st.lists(st.floats(1e-6, 1), max_size=60), st.integers(0, 1000), st.integers(1, 9))
def test_pivotal_draw_takes_nobody_twice_and_as_many_as_the_chances_sum_to(chances, seed, pieces) -> None:
    taken = drawn(chances, seed, pieces)
    assert len(set(taken)) == len(taken)
    assert sum(chances) - 1 - 1e-9 < len(taken) < sum(chances) + 1 + 1e-9
    assert {number for number, chance in enumerate(chances) if chance == 1} <= set(taken)
    assert sorted(taken) == sorted(drawn(chances, seed))


def test_pivotal_draw_takes_every_unit_as_often_as_its_chance_says() -> None:
    chances = [0.5, 0.1, 0.9, 0.3, 0.3, 1.0, 0.05, 0.7, 0.02, 0.4]
    rounds = 4000
    times = np.zeros(len(chances))
    for seed in range(rounds):
        times[drawn(chances, seed)] += 1
    expected = np.array(chances)
    assert (np.abs(times / rounds - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / rounds)).all()


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 10**12))
def test_file_chances_read_enough_files_and_bytes_or_everything(sizes, sample_bytes) -> None:
    array = np.array(sizes, np.float64)
    share = min(1.0, sample_bytes / max(1.0, array.sum()))
    chances = file_chances(array, share)
    assert ((share <= chances) & (chances <= 1)).all()
    partial = chances[(chances < 1) & (array > 0)]
    if partial.size:
        assert partial.sum() >= FILES
        assert (chances * array).sum() >= READ_FACTOR * share * array.sum()


def test_file_chances_of_many_equal_files_are_no_more_than_needed() -> None:
    chances = file_chances(np.full(10_000, 1e6), share=0.01)
    assert chances.tolist() == pytest.approx([READ_FACTOR * 0.01] * 10_000)


def test_total_of_everything_is_exact() -> None:
    total = total_of([np.array([5, 7]), np.array([11])], [1.0, 1.0], 1.0)
    assert (total.estimate, total.low, total.high) == (23, 23, 23)


def test_total_of_equal_documents_in_equal_files_has_no_width() -> None:
    total = total_of([np.array([7, 7])] * 16, [0.5] * 16, 0.125)
    assert total.low == total.estimate == total.high == 16 * 2 * 7 * 8


def test_total_of_one_document_admits_that_it_knows_little() -> None:
    total = total_of([np.array([100])], [1.0], 0.1)
    assert total.estimate == 1000
    assert total.low == 0
    assert total.high > 4000


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(3, 3.1824), (5, 2.5706), (10, 2.2281), (15, 2.1314), (60, 2.0003), (1e9, 1.9600)]
)
def test_student_quantile_is_that_of_the_tables(freedom: float, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, rel=0.01)
