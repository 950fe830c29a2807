"""Drawing without replacement: every unit as often as it should be, and what a sample says of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.sampling import FILES, READ_FACTOR, DrawnFile, draw_files, total_of
from corpusmill.engine.plan import SourceFile


def files_of(sizes: list[int]) -> list[SourceFile]:
    return [SourceFile(f"{number}.jsonl", f"/{number}.jsonl", size, "") for number, size in enumerate(sizes)]


def numbers_of(drawn: list[DrawnFile]) -> list[int]:
    return [int(document.file.name.partition(".")[0]) for document in drawn]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 10**12), st.integers(0, 99))
def test_draw_of_files_takes_nobody_twice_and_as_many_as_it_should(sizes, sample_bytes, seed) -> None:
    drawn, share = draw_files(files_of(sizes), sample_bytes, seed)
    numbers = numbers_of(drawn)
    assert numbers == sorted(set(numbers))
    assert all(share <= document.chance <= 1 for document in drawn)
    assert len(drawn) == len(sizes) or share < 1
    again, _ = draw_files(files_of(sizes), sample_bytes, seed)
    assert numbers_of(again) == numbers


def test_draw_of_files_takes_every_one_as_often_as_its_chance_says() -> None:
    sizes = [number**2 for number in range(1, 60)]
    rounds, times, chances = 4000, np.zeros(len(sizes)), np.zeros(len(sizes))
    for seed in range(rounds):
        for document in draw_files(files_of(sizes), 100, seed)[0]:
            (number,) = numbers_of([document])
            times[number] += 1
            chances[number] = document.chance
    assert (np.abs(times / rounds - chances) <= 4.5 * np.sqrt(chances * (1 - chances) / rounds)).all()
    assert chances.sum() == pytest.approx(FILES, abs=1)


def test_draw_of_many_equal_files_reads_no_more_than_needed() -> None:
    drawn, share = draw_files(files_of([10**6] * 10_000), 10**8, 7)
    assert share == 0.01
    assert len(drawn) == READ_FACTOR * 0.01 * 10_000


def sampled(chance: float, line_bytes: int, sizes: list[int]) -> DrawnFile:
    return DrawnFile(files_of([1])[0], chance, line_bytes, np.arange(len(sizes)), np.array(sizes, np.int64))


def test_total_of_everything_is_exact() -> None:
    drawn = [sampled(1, 50, [20, 30]), sampled(1, 40, [40])]
    total = total_of([np.array([5, 7]), np.array([11])], drawn, 1.0)
    assert (total.estimate, total.low, total.high, total.scale) == (23, 23, 23, 1)


def test_total_of_lines_with_as_many_tokens_a_byte_has_no_width() -> None:
    """However long the lines are, and however many of them were drawn."""
    drawn = [sampled(0.5, 200, [10, 30]), *(sampled(0.5, 200, [20]) for _ in range(15))]
    total = total_of([np.array([5, 15]), *([np.array([10])] * 15)], drawn, 0.125)
    assert total.low == pytest.approx(total.high)
    assert total.estimate == pytest.approx(16 * 200 / 0.5 / 2)


def test_total_of_files_that_differ_admits_that_others_may() -> None:
    drawn = [sampled(0.5, 100 * (1 + number % 2), [50]) for number in range(16)]
    total = total_of([np.array([25])] * 16, drawn, 0.125)
    assert total.high - total.low > 0.2 * total.estimate
