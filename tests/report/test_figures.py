"""Numbers as text: right at the edges, never misleading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.report.figures import (
    BYTE_UNITS,
    COUNT_UNITS,
    bytes_text,
    count_text,
    counted,
    largest_first,
    rate_text,
    seconds_text,
    share_text,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10_240, "10.0 KiB"),
        (1024 * 1023, "1,023 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (5 * 2**30, "5.00 GiB"),
        (123 * 2**40, "123 TiB"),
        (5000 * 2**60, "5,000 EiB"),
    ],
)
def test_bytes_text_at_edges_reads_well(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (10_000, "10.0 K"),
        (99_949, "99.9 K"),
        (99_951, "100 K"),
        (999_499, "999 K"),
        (999_500, "1.00 M"),
        (1_021_443_876, "1.02 B"),
        (15 * 10**12, "15.0 T"),
    ],
)
def test_count_text_at_edges_reads_well(count: int, text: str) -> None:
    assert count_text(count) == text


@given(count=st.integers(0, 2**63))
def test_scaled_texts_are_within_half_a_percent(count: int) -> None:
    for text, base, units in ((bytes_text(count), 1024, BYTE_UNITS), (count_text(count), 1000, COUNT_UNITS)):
        figure, _, unit = text.partition(" ")
        read = float(figure.replace(",", "")) * base ** units.index(unit)
        assert abs(read - count) <= 0.0051 * count


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.424, "0.42 s"),
        (12.34, "12.3 s"),
        (59.96, "1 m 00 s"),
        (192, "3 m 12 s"),
        (3599.6, "1 h 00 m"),
        (7500, "2 h 05 m"),
        (86_399, "1 d 00 h"),
        (273_600, "3 d 04 h"),
    ],
)
def test_seconds_text_at_edges_reads_well(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 5, "0 %"),
        (0, 0, "0 %"),
        (5, 0, "0 %"),
        (1, 10**9, "< 0.01 %"),
        (1, 300, "0.33 %"),
        (133, 1000, "13.3 %"),
        (9963, 10_000, "99.63 %"),
        (10**9 - 1, 10**9, "> 99.99 %"),
        (7, 7, "100.0 %"),
        (10**9 + 1, 10**9, "> 100 %"),
        (3, 2, "150.0 %"),
    ],
)
def test_share_text_never_rounds_something_to_nothing_or_all(part: int, whole: int, text: str) -> None:
    assert share_text(part, whole) == text


def test_rate_text_is_in_millions_and_a_dash_when_unknown() -> None:
    assert rate_text(1_234_500_000) == "1,234.5"
    assert rate_text(None) == "\N{EN DASH}"


def test_counted_only_one_is_singular() -> None:
    assert [counted(number, "file") for number in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]


def test_largest_first_drops_zeros_and_breaks_ties_by_name() -> None:
    assert largest_first({"b": 2, "none": 0, "a": 2, "c": 9}) == [("c", 9), ("a", 2), ("b", 2)]
