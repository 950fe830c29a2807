"""Seekable raw files over other sources, such as a remote file.

Reads of a remote file become ranged requests of one window each, which are retried individually.
"""

from __future__ import annotations

import io
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from corpusmill.errors import SourceError, StoreUnavailableError
from corpusmill.storage.twice import ReadRange, read_twice

if TYPE_CHECKING:
    from corpusmill.storage.stores import Store

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


def open_remote(store: Store, name: str) -> BinaryIO:
    """A file of a store as one seekable stream; every byte is requested twice. SourceError without the file."""
    there = store.stat(name)
    if there is None:
        raise SourceError("store.no_such_object: there is no such object", where=f"{store.folder}/{name}")
    where, identity = f"{store.folder}/{name}", there.identity
    read = partial(store.read_range, name, identity=identity)
    twice = read_twice(read, where=where, traffic=store.traffic)
    return cast(BinaryIO, RangedFile(twice, 0, there.size_bytes))


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
