"""The construction itself: no allowed pair is missing, no excluded pair is there."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.sameness.covering import Row, allowed_pairs, covering_rows

tables = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 4).map(range), min_size=2)
exclusions = st.sets(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 3), st.sampled_from("abcdefg")), max_size=9)


def pairs_in(row: Row) -> set[frozenset[tuple[str, int]]]:
    return {frozenset(pair) for pair in combinations(row.items(), 2)}


@given(tables, exclusions)
def test_covering_rows_of_any_table_hold_exactly_the_allowed_pairs(
    values: dict[str, range], excluded: set[tuple[str, int, str]]
) -> None:
    rows = covering_rows(values, lambda key, value, other, _: (key, value, other) in excluded)
    expected = {
        frozenset(((key, value), (other, other_value)))
        for key, other in combinations(values, 2)
        for value in values[key]
        for other_value in values[other]
        if (key, value, other) not in excluded and (other, other_value, key) not in excluded
    }
    assert set().union(*map(pairs_in, rows)) == expected
    assert allowed_pairs(values, lambda key, value, other, _: (key, value, other) in excluded) == expected


def test_covering_rows_of_ten_keys_of_three_values_are_few() -> None:
    """59,049 combinations; the least number of rows that is known is 14."""
    values = {f"key {number}": range(3) for number in range(10)}
    assert len(covering_rows(values, lambda *_: False)) <= 20
