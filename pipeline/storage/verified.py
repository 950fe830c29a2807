"""Reading a file whose sha256 is known, and noticing when it is no longer that file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.errors import SourceError

READ_BYTES = 1 << 20


class _HashingFile(io.RawIOBase):
    """A raw file that digests what is read, in order; it cannot seek."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto(buffer) or 0
        self.digest.update(buffer[:count])
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def open_verified(path: Path, sha256: str, *, name: str) -> Iterator[BinaryIO]:
    """Open a file for one pass; on leaving, what is left is read and SourceError raised if the sha256 is another."""
    raw = _HashingFile(path)
    with io.BufferedReader(raw, READ_BYTES) as stream:
        yield cast(BinaryIO, stream)
        while stream.read(READ_BYTES):
            pass
        got = raw.digest.hexdigest()
    if got != sha256:
        raise SourceError(
            "a source file changed while the dataset was being built",
            where=name,
            expected=f"sha256 {sha256}, as downloaded",
            got=f"sha256 {got}",
            next_step="start the build again: it plans with the file as it is now",
        )
