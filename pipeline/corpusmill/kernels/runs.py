"""Splits consecutive items into runs of about a given size: the batches in which this room streams."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def runs(ends: NDArray[np.uint64], size: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Split items [first, last) into consecutive runs [a, b) of at most `size`; a larger item is a run of its own.

    `ends` are the items' cumulative ends (uint64, exclusive) in the unit of `size`.
    """
    last = len(ends) if last is None else last
    while first < last:
        start = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, np.uint64(start + size), side="right"))
        stop = min(max(stop, first + 1), last)
        yield first, stop
        first = stop
