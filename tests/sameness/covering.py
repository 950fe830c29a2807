"""Rows that cover every allowed pair of values: the greedy construction of a covering array of strength two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

Values = Mapping[str, Sequence[Any]]
Place = tuple[str, int]
"""A key, and the position of one of its values."""
Excluded = Callable[[str, Any, str, Any], bool]
"""Whether two keys may not have these values together; asked with each pair in both orders."""
Row = dict[str, Any]


def allowed_pairs(values: Values, excluded: Excluded) -> set[frozenset[Place]]:
    """Every pair of values of two keys that may stand together."""

    def together(first: Place, second: Place) -> bool:
        (key, at), (second_key, second_at) = first, second
        value, second_value = values[key][at], values[second_key][second_at]
        return not (excluded(key, value, second_key, second_value) or excluded(second_key, second_value, key, value))

    return {
        frozenset((first, second))
        for key, second_key in combinations(values, 2)
        for first in _places(values, key)
        for second in _places(values, second_key)
        if together(first, second)
    }


def covering_rows(values: Values, excluded: Excluded) -> list[Row]:
    """Rows such that each allowed pair stands in some row. A row leaves out a key if none of its values fits in.

    A row begins with the value that lacks most pairs; every further key takes the value that adds most.
    """
    allowed = allowed_pairs(values, excluded)
    neighbours: dict[Place, set[Place]] = {place: set() for key in values for place in _places(values, key)}
    for first, second in map(tuple, allowed):
        neighbours[first].add(second)
        neighbours[second].add(first)
    missing = {place: set(others) for place, others in neighbours.items()}
    rows = []
    while any(missing.values()):
        row = _row(values, neighbours, missing)
        for first, second in combinations(row, 2):
            missing[first].discard(second)
            missing[second].discard(first)
        rows.append({key: values[key][at] for key, at in row})
    return rows


def _row(values: Values, neighbours: dict[Place, set[Place]], missing: dict[Place, set[Place]]) -> list[Place]:
    start = max(missing, key=lambda place: len(missing[place]))
    second = max(sorted(missing[start]), key=lambda place: len(missing[place]))
    row = [start, second]
    fitting = neighbours[start] & neighbours[second]
    for key in values:
        candidates = [place for place in _places(values, key) if place in fitting]
        if candidates:
            best = max(candidates, key=lambda place: _gain(place, row, fitting, missing))
            row.append(best)
            fitting &= neighbours[best]
    return row


def _gain(place: Place, row: list[Place], fitting: set[Place], missing: dict[Place, set[Place]]) -> tuple[int, int]:
    """Pairs that a place adds to a row, and those that it may add when the rest of the row is chosen."""
    return len(missing[place].intersection(row)), len(missing[place] & fitting)


def _places(values: Values, key: str) -> list[Place]:
    return [(key, at) for at in range(len(values[key]))]
