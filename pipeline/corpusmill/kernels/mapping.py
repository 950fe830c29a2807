"""Files as arrays, memory-mapped; without numba, whose import takes half a second."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def mapped(path: Path, dtype: DTypeLike, count: int | None = None, offset_bytes: int = 0) -> NDArray[Any]:
    """A file's items of `dtype` from `offset_bytes` on, all or `count` of them, memory-mapped read-only: an array (n,).

    ValueError if the rest of the file is no whole number of items. No items are read-only bytes, since mmap refuses
    them. A plain array: every slice of a numpy.memmap takes 5 microseconds.
    """
    if count == 0 or (count is None and path.stat().st_size == offset_bytes):
        return np.frombuffer(b"", dtype)
    shape = None if count is None else (count,)
    return np.memmap(str(path), dtype, "r", offset_bytes, shape).view(
        np.ndarray
    )  # numpy resolves a Path, which is slow


def release_pages(mapped: NDArray[Any]) -> None:
    """Release the pages of a mapped file that this process has touched; the page cache still has them.

    Without this, a process that reads a file from end to end ends up holding all of it. Arrays in memory are
    unaffected.
    """
    owner: Any = mapped
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)
