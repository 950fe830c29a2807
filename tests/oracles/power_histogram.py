"""Histogram by powers of two, one value at a time."""

from __future__ import annotations

from collections.abc import Iterable


def power_histogram_oracle(values: Iterable[int]) -> dict[int, tuple[int, int]]:
    """power -> (count, sum) of the values in [2**power, 2**(power + 1)); power -1 holds the zeros."""
    bins: dict[int, tuple[int, int]] = {}
    for value in values:
        power = -1
        while 2 ** (power + 1) <= value:
            power += 1
        count, total = bins.get(power, (0, 0))
        bins[power] = (count + 1, total + value)
    return bins
