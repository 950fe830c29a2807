"""Content sums (kernels/content.py) of what an export wrote: by cell, for the balance, and by file, for anyone.

A writer passes the token sums of its records, in order, computed from the arrays that it writes. They are weighted
twice:

* by cell and place in the cell, as gather weighted them: over all files of a format, a cell's slices must hold what was
gathered. An output that was reused at other offsets does not balance.
* by place in the file: `content` in dataset.json, which anyone can recompute from the file alone (docs/guarantees.md).

Special tokens around documents are left out of both, because they depend on framing. All slots of a context count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import Words, placed_sum


class WrittenContent:
    """Consumes the sums of consecutive records of some stretches (cell, first, last) of cells."""

    def __init__(self, stretches: Sequence[tuple[int, int, int]]) -> None:
        self._stretches = stretches
        self._ends = list(accumulate(last - first for _, first, last in stretches))  # in records
        self._records = 0
        self.file = NOTHING
        self.cells: dict[int, ContentSum] = {}

    def add(self, sums: Words) -> None:
        """The token sums uint64 (2, n) of the next n records. IndexError for more records than the stretches hold."""
        first, last = self._records, self._records + sums.shape[1]
        if last > max(self._ends, default=0):
            raise IndexError(f"{last:,} records were written of {max(self._ends, default=0):,}")
        self.file += placed_sum(sums, 0, np.arange(first, last, dtype=np.uint64))
        while self._records < last:
            number = bisect_right(self._ends, self._records)
            cell, _, behind = self._stretches[number]
            stop, offset = min(last, self._ends[number]), behind - self._ends[number]
            places = np.arange(self._records + offset, stop + offset, dtype=np.uint64)
            self.add_to_cell(cell, sums[:, self._records - first : stop - first], places)
            self._records = stop

    def add_to_cell(self, cell: int, sums: Words, places: NDArray[np.uint64]) -> None:
        """The token sums of records, or of pieces of them, by their places in one cell."""
        more = placed_sum(sums, cell, places)
        self.cells[cell] = self.cells.get(cell, NOTHING) + more

    def to_json(self) -> dict[str, object]:
        """`content` of the file, and `cells`: [cell, content] of each cell with records in it."""
        return {"content": str(self.file), "cells": [[cell, str(part)] for cell, part in sorted(self.cells.items())]}
