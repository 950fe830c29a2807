"""Fuzzy removal: whole spans that repeats mostly cover, as OLMo 3 does after exact deduplication.

A span grows from the left over the next range of its document while the covered bytes are at least `share` of the
span's length; the same from the right; both together are removed. (Published datamap-rs configuration: share 0.95; the
OLMo 3 report: 0.8.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.ranges import Ranges, union_ranges
from corpusmill.kernels.compiled import kernel


def join_spans(ranges: Ranges, offsets: NDArray[np.uint64], share: float) -> Ranges:
    """The spans uint64 (m, 2) that hold `ranges` uint64 (r, 2), ascending and disjoint; `offsets`: the text shard's."""
    document = np.searchsorted(offsets, ranges[:, 0], side="left")
    rows = ranges.astype(np.int64)
    rightward = _joined(rows, document, share)
    leftward = _joined(-rows[::-1, ::-1], document[::-1], share)
    return union_ranges(np.concatenate([rightward, -leftward[::-1, ::-1]]).astype(np.uint64))


@kernel
def _joined(rows: Any, document: Any, share: Any) -> Any:
    """Join from the first row on: int64 (r, 2) and int64 (r,) to int64 (m, 2)."""
    spans = np.empty((len(rows), 2), np.int64)
    filled = 0
    covered = 0
    for row in range(len(rows)):
        start, end = rows[row, 0], rows[row, 1]
        joins = filled > 0 and document[row] == document[row - 1]
        if joins and covered + end - start >= share * (end - spans[filled - 1, 0]):
            spans[filled - 1, 1] = end
            covered += end - start
        else:
            spans[filled, 0], spans[filled, 1] = start, end
            covered = end - start
            filled += 1
    return spans[:filled]
