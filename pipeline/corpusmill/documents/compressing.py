"""Compression whose bytes depend on the content only: not on time, names, threads, or the sizes of writes."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# ISA-L would be three times as fast, but two processes on one machine got unequal bytes from it for equal input (1.9.1,
# levels 1 and 2, about one context in 3,000); zlib's bytes are the same, and level 1 runs three times as fast as 6.
GZIP_LEVEL = 1
GZIP_WINDOW = 31  # zlib's code for a 32 KiB window with gzip header and trailer
FEED_BYTES = 1 << 20


class Compressor(Protocol):
    """The interface of zlib's and zstandard's compression objects, and of Verbatim."""

    def compress(self, data: bytes | memoryview[int], /) -> bytes | memoryview[int]: ...

    def flush(self) -> bytes: ...


class Verbatim:
    """No compression."""

    def compress(self, data: bytes | memoryview[int], /) -> bytes | memoryview[int]:
        return data

    def flush(self) -> bytes:
        return b""


class FramedCompressor:
    """lz4's compressor, which gives its header apart, as one of the others' interface."""

    def __init__(self, header: bytes, frame: Compressor) -> None:
        self._header, self._frame = header, frame

    def compress(self, data: bytes | memoryview[int], /) -> bytes:
        return self._begun(self._frame.compress(data))

    def flush(self) -> bytes:
        return self._begun(self._frame.flush())

    def _begun(self, data: bytes | memoryview[int]) -> bytes:
        header, self._header = self._header, b""
        return header + bytes(data)


def gzip_member() -> Compressor:
    """One gzip member (RFC 1952) by zlib, whose header holds no name and time 0."""
    return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW)


class CompressingStream(io.RawIOBase):
    """Feeds a compressor in pieces of exactly `FEED_BYTES`, because its output may depend on the sizes of its input."""

    def __init__(self, raw: BinaryIO, compressor: Compressor) -> None:
        self._raw = raw
        self._compressor = compressor
        self._unfed = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        if self.closed:
            raise ValueError("write to a closed stream")
        unfed = memoryview(data).cast("B")
        size = len(unfed)
        while len(self._unfed) + len(unfed) >= FEED_BYTES:
            missing = FEED_BYTES - len(self._unfed)
            feed = b"".join((self._unfed, unfed[:missing])) if self._unfed else unfed[:missing]
            self._raw.write(self._compressor.compress(feed))
            self._unfed.clear()
            unfed = unfed[missing:]
        self._unfed += unfed
        return size

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._raw.write(self._compressor.compress(bytes(self._unfed)))
            self._raw.write(self._compressor.flush())
        finally:
            super().close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            super().close()
        self.close()
