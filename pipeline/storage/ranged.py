"""A remote file as a stream: reads become ranged requests of one window each, which are retried by themselves."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, cast

WINDOW_BYTES = 8 << 20

ReadRange = Callable[[int, int], bytes]
"""(first, last) -> the bytes [first, last), whole or an error."""


class RangedStream(io.RawIOBase):
    """Bytes [first, last) of a file, seekable. Holds one window; a break in the middle costs that window again."""

    def __init__(self, read_range: ReadRange, first: int, last: int) -> None:
        self._read_range = read_range
        self._first, self._size = first, last - first
        self._at = 0
        self._window, self._window_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes, all of them unless the end comes first; -1 or None: all that is left."""
        wanted = max(0, self._size - self._at)
        wanted = wanted if size is None or size < 0 else min(wanted, size)
        pieces = []
        while wanted:
            piece = self._piece(wanted)
            pieces.append(piece)
            self._at += len(piece)
            wanted -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _piece(self, wanted: int) -> bytes:
        """Some of the next bytes, from the window or as a new one."""
        inside = self._at - self._window_at
        if not 0 <= inside < len(self._window):
            last = min(self._size, self._at + max(WINDOW_BYTES, wanted if wanted < 2 * WINDOW_BYTES else 0))
            self._window = self._read_range(self._first + self._at, self._first + last)
            self._window_at, inside = self._at, 0
        whole = inside == 0 and wanted >= len(self._window)
        return self._window if whole else self._window[inside : inside + wanted]


def open_ranged(read_range: ReadRange, first: int, last: int) -> BinaryIO:
    """Bytes [first, last) as a binary stream."""
    return cast(BinaryIO, RangedStream(read_range, first, last))
