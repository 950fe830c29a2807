"""Shared by the recounts of several stages: reading a step's files in blocks, and reporting contradictions.

A recount reads the step's own outputs and the plan, and nothing that was counted when they were written. Its price is
one pass over the files, which the digests have just brought into the page cache; memory is a block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import records_sum
from corpusmill.kernels.slices import runs

BLOCK = 1 << 22  # items or bytes read at a time


def records_content(
    tokens: NDArray[Any], ends: NDArray[np.uint64], units: Any, ordinals: NDArray[np.uint64]
) -> ContentSum:
    """The content of records laid back to back, block by block; `ends` must lie in `tokens`."""
    units = np.broadcast_to(np.asarray(units, np.uint64), ordinals.shape)
    content = NOTHING
    for first, last in runs(ends, BLOCK):
        start = ends[first - 1] if first else np.uint64(0)
        lengths = np.diff(ends[first:last], prepend=start)
        block = tokens[int(start) : int(ends[last - 1])]
        content += records_sum(block, lengths, units[first:last], ordinals[first:last])
    return content


def require_ascending(path: Path, *columns: NDArray[np.uint64]) -> None:
    """CorruptDataError if a column decreases: kernels trust ends, and a sum that wrapped around decreases somewhere."""
    for column in columns:
        falls = np.flatnonzero(column[1:] < column[:-1])
        if len(falls):
            at = int(falls[0])
            raise contradiction(path, "non-decreasing counts", f"{column[at]:,} then {column[at + 1]:,} at {at + 1:,}")


def section_rows(folder: Path, name: str, row_bytes: int) -> int:
    """Rows of a file of sections (engine/sections.py); CorruptDataError if its index does not match its size."""
    starts = np.fromfile(folder / f"{name}.index", "<u8")
    rows, rest = divmod((folder / name).stat().st_size, row_bytes)
    if rest or not len(starts) or int(starts[0]) or int(starts[-1]) != rows or bool((starts[1:] < starts[:-1]).any()):
        expected = f"ascending starts of sections, from 0 to {rows:,} rows of {row_bytes} bytes"
        raise contradiction(folder / f"{name}.index", expected, f"{starts[:1].tolist()} ... {starts[-3:].tolist()}")
    return rows


def contradiction(path: Path, expected: object, got: object) -> CorruptDataError:
    """The error for a file that contradicts those next to it."""
    return CorruptDataError(
        "step.files_disagree: a file contradicts those next to it", where=path, expected=expected, got=got
    )
