"""Which units share a task."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.engine.parts import PART_BYTES, UNIT_BYTES, WHOLE, Part, number_of_parts, read_part
from tests.raising import raises


@given(st.lists(st.integers(0, 2 * PART_BYTES), max_size=300), st.integers(1, 250))
def test_parts_of_any_sizes_are_all_units_once_in_order(sizes: list[int], of: int) -> None:
    names = [f"{number:05d}" for number in range(len(sizes))]
    parts = [Part(number, of).of_units(names, sizes) for number in range(1, of + 1)]
    assert [name for part in parts for name in part] == names
    assert WHOLE.of_units(names, sizes) == names


@given(st.lists(st.integers(1, PART_BYTES), min_size=17, max_size=300))
def test_parts_of_any_sizes_are_of_about_one_size(sizes: list[int]) -> None:
    names = [f"{number:05d}" for number in range(len(sizes))]
    weights = [max(UNIT_BYTES, size) for size in sizes]
    work = [sum(weights[int(name)] for name in Part(number, 16).of_units(names, sizes)) for number in range(1, 17)]
    assert max(work) <= sum(weights) / 16 + max(weights)


@pytest.mark.parametrize(
    ("source_bytes", "shards", "most", "expected"),
    [
        (0, 0, 200, 1),
        (1, 1, 200, 1),
        (2 * PART_BYTES - 1, 16, 200, 1),
        (5 * PART_BYTES, 16, 200, 5),
        (5 * PART_BYTES, 3, 200, 3),
        (5 * PART_BYTES, 16, 2, 2),
        (10_000 * PART_BYTES, 10_000, 200, 200),
    ],
)
def test_number_of_parts_follows_the_bytes_within_shards_and_most(
    source_bytes: int, shards: int, most: int, expected: int
) -> None:
    assert number_of_parts(source_bytes, shards, most) == expected


@given(st.integers(1, 999), st.integers(1, 999))
def test_part_that_is_written_is_read_again(number: int, of: int) -> None:
    part = Part(min(number, of), max(number, of))
    assert read_part(str(part)) == part


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "1/0", "-1/3", "1/3 ", "a/b", "1/2/3", "٣/٤"])
def test_part_that_is_none_is_refused(text: str) -> None:
    with raises("part.unknown"):
        read_part(text)
