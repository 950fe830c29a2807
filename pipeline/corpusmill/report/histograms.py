"""Lengths -> histogram by powers of two. Exact: 64-bit integers throughout, no floating logarithm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from corpusmill.report.facts import PowerBin, PowerHistogram

# Bin b = 0 holds zeros, bin b > 0 holds [2**(b - 1), 2**b): the number of boundaries at or below the value.
BOUNDARIES = np.uint64(1) << np.arange(64, dtype=np.uint64)

BLOCK_VALUES = 1 << 20


def power_histogram(values: npt.NDArray[np.unsignedinteger | np.signedinteger]) -> PowerHistogram:
    """Count and sum of `values` (any integer dtype, none negative, in any order) in each power of two.

    Works on one block of 1 M values at a time: 24 MB beyond the input. Raises ValueError on a negative value.
    Sums wrap at 2**64, far above the bytes of any dataset.
    """
    counts = np.zeros(65, dtype=np.int64)
    totals = np.zeros(65, dtype=np.uint64)
    for start in range(0, len(values), BLOCK_VALUES):
        block = values[start : start + BLOCK_VALUES]
        if block.min() < 0:
            raise ValueError(f"a length cannot be negative: {block.min()}")
        block = block.astype(np.uint64)
        bins = np.searchsorted(BOUNDARIES, block, side="right")
        counts += np.bincount(bins, minlength=65)
        np.add.at(totals, bins, block)
    return PowerHistogram(
        bins=tuple(
            PowerBin(power=number - 1, count=int(counts[number]), total=int(totals[number]))
            for number in np.flatnonzero(counts).tolist()
        )
    )


def merge_histograms(histograms: Iterable[PowerHistogram]) -> PowerHistogram:
    """The histogram of all values together, for instance of all shards."""
    counts: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for histogram in histograms:
        for bin_ in histogram.bins:
            counts[bin_.power] += bin_.count
            totals[bin_.power] += bin_.total
    return PowerHistogram(
        bins=tuple(PowerBin(power=p, count=counts[p], total=totals[p]) for p in sorted(counts) if counts[p])
    )
