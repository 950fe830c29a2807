"""Edits of a block of lines, against Python slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpusmill.dedup.annotations import with_edits


def _spans(*rows: tuple[int, int]) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1, 2)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], list[bytes]]:
    """(bytes, disjoint spans of them in any order, replacements for the first of these)."""
    data = draw(st.binary(max_size=60))
    at = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12, unique=True)))
    spans = draw(st.permutations([(start, end) for start, end in zip(at[::2], at[1::2], strict=False)]))
    return data, spans, draw(st.lists(st.binary(max_size=5), max_size=len(spans)))


@given(_cases())
def test_edits_of_any_spans_equal_slices(case: tuple[bytes, list[tuple[int, int]], list[bytes]]) -> None:
    data, spans, replacements = case
    expected = data
    for (start, end), replacement in sorted(
        zip(spans, replacements + [b""] * (len(spans) - len(replacements)), strict=True), reverse=True
    ):
        expected = expected[:start] + replacement + expected[end:]
    assert with_edits(data, _spans(*spans), replacements) == expected


@pytest.mark.parametrize(
    "spans", [((0, 4), (3, 5)), ((2, 3), (2, 4)), ((4, 11),), ((11, 12),), ((-1, 2),), ((5, 3),)], ids=str
)
def test_edits_that_overlap_or_lie_outside_are_refused(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        with_edits(bytes(10), _spans(*spans))


def test_edits_insert_where_a_span_is_empty() -> None:
    assert with_edits(b"{}", _spans((1, 1)), [b'"a": 1']) == b'{"a": 1}'
