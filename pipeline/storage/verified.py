"""Reading a file whose sha256 is known, and noticing when it is no longer that file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.errors import SourceError
from pipeline.storage.checksums import Checksum, Verifier

READ_BYTES = 1 << 20

Pieces = Sequence[tuple[int, int]]
"""(offset, size) of stretches of a file, read one after another as if they were one file."""


class PiecesFile(io.RawIOBase):
    """Stretches of a stream as one seekable raw file; closing it leaves the stream open."""

    def __init__(self, stream: BinaryIO, pieces: Pieces) -> None:
        self._stream = stream
        self._pieces = pieces
        self._size = sum(size for _, size in pieces)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        before = 0
        for offset, size in self._pieces:
            inside = self._at - before
            if 0 <= inside < size:
                self._stream.seek(offset + inside)
                data = self._stream.read(min(size - inside, len(buffer)))
                buffer[: len(data)] = data
                self._at += len(data)
                return len(data)
            before += size
        return 0


class _HashingFile(io.RawIOBase):
    """A raw file that digests what is read, in order; it cannot seek."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count: int = self._file.readinto(buffer) or 0
        self.digest.update(buffer[:count])
        return count


@contextmanager
def open_verified(path: Path, sha256: str, *, name: str, pieces: Pieces | None = None) -> Iterator[BinaryIO]:
    """Open a file, or pieces of it, for one pass; on leaving, what is left is read and SourceError raised if the sha256
    of all of it is another.
    """
    with path.open("rb", buffering=0) as file:
        whole = file if pieces is None else PiecesFile(cast(BinaryIO, file), pieces)
        with open_hashed(cast(BinaryIO, whole), sha256, name=name) as stream:
            yield stream


@contextmanager
def open_hashed(file: BinaryIO, sha256: str, *, name: str) -> Iterator[BinaryIO]:
    """The same over a raw stream that is open already and stays open."""
    raw = _HashingFile(cast(io.RawIOBase, file))
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


def pieces_digest(path: Path, pieces: Pieces) -> str:
    """sha256 of stretches of a file, one after another; of the whole file if there is one that covers it."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        stream = io.BufferedReader(PiecesFile(cast(BinaryIO, file), pieces), READ_BYTES)
        while data := stream.read(READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def matches_file(path: Path, stated: Iterable[Checksum]) -> bool:
    """Whether a local file has every one of these checksums; one pass over it, none if there are none."""
    checksums = tuple(stated)
    if not checksums:
        return True
    verifier = Verifier(checksums, path.stat().st_size)
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            verifier.update(data)
    return not verifier.contradicted()
