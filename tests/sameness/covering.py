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

    def together(one: Place, other: Place) -> bool:
        (key, at), (other_key, other_at) = one, other
        value, other_value = values[key][at], values[other_key][other_at]
        return not (excluded(key, value, other_key, other_value) or excluded(other_key, other_value, key, value))

    return {
        frozenset((one, other))
        for key, other_key in combinations(values, 2)
        for one in _places(values, key)
        for other in _places(values, other_key)
        if together(one, other)
    }


def covering_rows(values: Values, excluded: Excluded) -> list[Row]:
    """Rows such that each allowed pair stands in one of them; a row leaves out a key none of whose values fits in.

    A row begins with the value that lacks most pairs; every further key takes the value that adds most.
    """
    allowed = allowed_pairs(values, excluded)
    neighbours: dict[Place, set[Place]] = {place: set() for key in values for place in _places(values, key)}
    for one, other in map(tuple, allowed):
        neighbours[one].add(other)
        neighbours[other].add(one)
    missing = {place: set(others) for place, others in neighbours.items()}
    rows = []
    while any(missing.values()):
        row = _row(values, neighbours, missing)
        for one, other in combinations(row, 2):
            missing[one].discard(other)
            missing[other].discard(one)
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
