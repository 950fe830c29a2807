"""Files that are complete or absent, arrays mapped from them, and the error that names a byte in a file.

A killed writer must leave nothing that a reader would accept, so every file is written under a temporary name and
renamed once it is complete. Nothing is synced to the device here: a process that dies loses nothing that the kernel
already has, and files count only once a receipt lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from corpusmill.errors import VerificationError, full_device_explained

TokenArray: TypeAlias = NDArray[np.integer[Any]]
"""A 1-D array of token ids: uint16, uint32, or Megatron's int32."""

BUFFER_BYTES = 1 << 20


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing and reading back; it appears under its name only when the block ends without an error.

    An older file of that name is removed first, so that no reader pairs it with newer neighbours. An empty file is not
    kept, because no reader of these formats can map zero bytes. Raises StorageFullError when the device or the quota is
    full; other operating system errors pass unchanged.
    """
    partial = path.with_name(path.name + ".partial")
    what, next_step = "no space left while writing an export", "free space on that device, then run the task again"
    try:
        with full_device_explained(what, where=path, next_step=next_step):
            path.unlink(missing_ok=True)
            with partial.open("w+b", buffering=BUFFER_BYTES) as file:
                yield file
            if partial.stat().st_size:
                partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def mapped(path: Path, dtype: DTypeLike, count: int, offset_bytes: int = 0) -> NDArray[Any]:
    """`count` items of `dtype` from `offset_bytes` on, memory-mapped read-only; an empty array for no items."""
    if count == 0:
        return np.empty(0, dtype)  # mmap refuses zero bytes
    return np.memmap(str(path), dtype=dtype, mode="r", offset=offset_bytes, shape=(count,))


def file_bytes(path: Path) -> int:
    """Size of `path`; VerificationError if it is missing."""
    if not path.is_file():
        raise VerificationError("a file of the export is missing", where=path, expected="a file", got="nothing")
    return path.stat().st_size


def fault(what: str, path: Path, offset_bytes: int, *, expected: object, got: object) -> VerificationError:
    """The error every verifier of this room raises: what is wrong, in which file, at which byte."""
    return VerificationError(
        what,
        where=f"{path}, byte {offset_bytes}",
        expected=expected,
        got=got,
        next_step="restore the file from another copy, or build it again; if the error persists, it is a bug",
    )
