"""Seekable files over other sources (a range of a remote file, pieces of a local one), and files that are digested as
they are read, so that a change is noticed.

Reads of a remote file become ranged requests of one window each, which are retried individually.
"""

from __future__ import annotations

import io
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from corpusmill.errors import SourceError, StoreUnavailableError, VerificationError
from corpusmill.kernels import advance
from corpusmill.storage.checksums import READ_BYTES, Checksum, Verifier
from corpusmill.storage.locations import StoredFile, natural_order
from corpusmill.storage.retries import ReadRange, Traffic, listed_twice, read_twice, retried

T = TypeVar("T")
Token = TypeVar("Token")

WINDOW_BYTES = 8 << 20
LEAST_BYTES_PER_SECOND, PATIENCE_SECONDS = 64 << 10, 30.0  # of one connection of several

log = logging.getLogger(__name__)


class SeekableFile(io.RawIOBase):
    """A readable file of `size_bytes`; subclasses provide the bytes."""

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._at = 0

    @abstractmethod
    def _next(self, wanted: int) -> bytes:
        """The bytes at `_at`: 1 to `wanted` of them, all before the end; none if the source is truncated."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes, all of them unless the end comes first; -1 or None: the rest."""
        wanted = max(0, self._size - self._at)
        wanted = wanted if size is None or size < 0 else min(wanted, size)
        pieces = []
        while wanted and (piece := self._next(wanted)):
            pieces.append(piece)
            self._at += len(piece)
            wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class RangedFile(SeekableFile):
    """Bytes [first, last) of a file. Holds one window; after a failure only that window is requested again."""

    def __init__(self, read_range: ReadRange, first: int, last: int) -> None:
        super().__init__(last - first)
        self._read_range = read_range
        self._first = first
        self._window, self._window_at = b"", 0

    def _next(self, wanted: int) -> bytes:
        """From the window, or from a new one."""
        inside = self._at - self._window_at
        if not 0 <= inside < len(self._window):
            last = min(self._size, self._at + max(WINDOW_BYTES, wanted if wanted < 2 * WINDOW_BYTES else 0))
            self._window = self._read_range(self._first + self._at, self._first + last)
            self._window_at, inside = self._at, 0
        whole = inside == 0 and wanted >= len(self._window)
        return self._window if whole else self._window[inside : inside + wanted]


class RemoteStore:
    """What stores behind a network share: requests under the retry policy, listings page by page, streams."""

    def __init__(self, folder: str, traffic: Traffic | None, *, anonymous: bool = False) -> None:
        self.folder = folder.rstrip("/")
        self.traffic = traffic or Traffic()
        self.anonymous = anonymous

    @staticmethod
    @abstractmethod
    def explained(verb: str, where: str, *, anonymous: bool = False) -> AbstractContextManager[None]:
        """A context that translates the SDK's errors (sdk_errors.py)."""

    @abstractmethod
    def stat(self, name: str) -> StoredFile | None:
        """See Store."""

    @abstractmethod
    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """See Store."""

    @abstractmethod
    def _page(self, token: str | None) -> tuple[list[StoredFile], str | None]:
        """(files of a page of the listing, token of the next one). KeyError or ValueError if it is malformed."""

    def call(self, verb: str, where: str, request: Callable[[], T]) -> T:
        """Make a request under the retry policy, its errors translated."""
        explained = partial(self.explained, verb, where, anonymous=self.anonymous)
        return retried(request, where=where, traffic=self.traffic, explained=explained)

    def iter_files(self) -> Iterator[StoredFile]:
        """See Store; zero-byte folder placeholders (names that end in /) are left out."""
        return listed_twice(self._listed, self.folder)

    def _listed(self) -> Iterator[StoredFile]:
        return self.rows("list", self.folder, self._page)

    def rows(self, verb: str, where: str, page: Callable[[Token | None], tuple[list[T], Token | None]]) -> Iterator[T]:
        """The rows of a listing. `page` gives those of the page of a token, of the first without one, and the token of
        the next.
        """
        token: Token | None = None
        while True:
            rows, token = self.call(verb, where, partial(page, token))
            yield from rows
            if token is None:
                return

    def list_files(self) -> list[StoredFile]:
        """See Store."""
        return sorted(self.iter_files(), key=lambda file: natural_order(file.name))

    def open(self, name: str) -> BinaryIO:
        """See Store; every byte is requested twice."""
        where, there = f"{self.folder}/{name}", self.stat(name)
        if there is None:
            raise SourceError("store.no_such_object: there is no such object", where=where)
        read = partial(self.read_range, name, identity=there.identity)
        return cast(BinaryIO, RangedFile(read_twice(read, where=where, traffic=self.traffic), 0, there.size_bytes))


@contextmanager
def arriving(end: Callable[[], object], *, where: str, size_bytes: int = WINDOW_BYTES) -> Iterator[None]:
    """Limit the time for reading a body in this block; StoreUnavailableError if it arrives too slowly.

    A server may send a byte at a time, each before a read times out, and the SDKs have no deadline for a whole
    body. `end` is called from another thread and shuts the connection, which ends the waiting read.
    """
    seconds = PATIENCE_SECONDS + size_bytes / LEAST_BYTES_PER_SECOND
    late = threading.Event()

    def give_up() -> None:
        late.set()
        log.warning("%s arrives too slowly: %s bytes had not arrived after %.0f s", where, f"{size_bytes:,}", seconds)
        with suppress(RuntimeError, OSError):  # it arrived just now
            end()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise StoreUnavailableError(
            "store.too_slow: a body arrives too slowly",
            where=where,
            expected=f"{size_bytes:,} bytes in {seconds:.0f} s: {LEAST_BYTES_PER_SECOND:,} bytes a second",
            got="less",
        )


def range_body(data: bytes, content_range: str | None, first: int, last: int, *, size_bytes: int, where: str) -> bytes:
    """The bytes [first, last) of a file of `size_bytes`, from the body and the Content-Range of an answer.

    StoreUnavailableError, which is retried, for another or an incomplete range. Without Content-Range the body
    is the whole file: a server may ignore a requested range (RFC 9110, 14.2).
    """
    asked = f"bytes {first}-{last - 1}/{size_bytes}"
    if content_range is not None and content_range not in {asked, f"{asked.partition('/')[0]}/*"}:
        raise StoreUnavailableError(
            "store.other_range: a store answered with another range than requested",
            where=where,
            expected=asked,
            got=content_range,
        )
    expected_bytes = size_bytes if content_range is None else last - first
    if len(data) != expected_bytes:
        raise StoreUnavailableError(
            "store.broke_off: a body broke off", where=where, expected=expected_bytes, got=len(data)
        )
    return data[first:last] if content_range is None else data


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
