"""Reading a file with a known checksum, and detecting when it has changed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from corpusmill.errors import SourceError, VerificationError
from corpusmill.kernels import advance
from corpusmill.storage.checksums import Checksum, Verifier
from corpusmill.storage.ranged import SeekableFile

READ_BYTES = 1 << 20

Pieces = Sequence[tuple[int, int]]
"""(offset, size) of pieces of a file, read one after another as if they were one file."""


class PiecesFile(SeekableFile):
    """Pieces of a stream, one after another; closing it leaves the stream open."""

    def __init__(self, stream: BinaryIO, pieces: Pieces) -> None:
        super().__init__(sum(size for _, size in pieces))
        self._stream = stream
        self._pieces = pieces

    def _next(self, wanted: int) -> bytes:
        before = 0
        for offset, size in self._pieces:
            inside = self._at - before
            if 0 <= inside < size:
                self._stream.seek(offset + inside)
                return self._stream.read(min(size - inside, wanted))
            before += size
        return b""


class HashingFile(io.RawIOBase):
    """A raw file that digests all bytes read, in order; it cannot seek."""

    def __init__(self, file: io.RawIOBase, verifier: Verifier) -> None:
        self._file = file
        self._verifier = verifier

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count: int = self._file.readinto(buffer) or 0
        self._verifier.update(buffer[:count])
        return count


@contextmanager
def open_verified(path: Path, expected: Checksum, *, name: str, pieces: Pieces | None = None) -> Iterator[BinaryIO]:
    """Open a file, or pieces of it, for one pass. On leaving, the rest is read, and SourceError raised if the checksum
    differs. SourceError for a missing file, too.
    """
    try:
        opened = path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise SourceError(
            "source.vanished: a source file disappeared during the build",
            where=name,
            expected=path,
            next_step="restore it, or start the build again: it plans with the current files",
        ) from error
    with opened as file:
        size_bytes = file.seek(0, io.SEEK_END) if pieces is None else sum(size for _, size in pieces)
        file.seek(0)
        verifier = Verifier((expected,), size_bytes)
        whole = file if pieces is None else PiecesFile(cast(BinaryIO, file), pieces)
        with io.BufferedReader(HashingFile(whole, verifier), READ_BYTES) as stream:
            yield cast(BinaryIO, stream)
            while stream.read(READ_BYTES):
                pass
    for was, got in verifier.contradicted():
        raise SourceError(
            "source.changed_during_build: a source file changed during the build",
            where=name,
            expected=f"{was.kind} {was.value}, as downloaded",
            got=f"{was.kind} {got}",
            next_step="start the build again: it plans with the current file; if the error recurs, only the bytes "
            "show the change: build with --verify, which digests sources again",
        )


def pieces_checksum(path: Path, pieces: Pieces) -> Checksum:
    """Our own checksum of pieces of a file, in order; equal to that of the whole file if one piece covers it."""
    verifier = Verifier((), sum(size for _, size in pieces))
    with path.open("rb", buffering=0) as file:
        stream = PiecesFile(cast(BinaryIO, file), pieces)
        while data := stream.read(READ_BYTES):
            verifier.update(data)
            advance.note(len(data))
    return verifier.own()


def matches_file(path: Path, stated: Iterable[Checksum]) -> bool:
    """Whether a local file has all of these checksums; one pass over it, none without checksums."""
    checksums = tuple(stated)
    if not checksums:
        return True
    verifier = Verifier(checksums, path.stat().st_size)
    verifier.read(path)
    return not verifier.contradicted()


def changed_before_upload(source: Path, sha256: str) -> VerificationError:
    """The error for a local file that no longer has its recorded sha256."""
    return VerificationError(
        "store.upload_differs_from_receipt: a file to upload differs from its receipt",
        where=source,
        expected=f"sha256 {sha256}",
        next_step="it changed after it was written: remove its folder and run again",
    )
