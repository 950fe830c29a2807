"""Decompression that detects a truncated file, and other bytes behind the compressed ones.

python-zstandard's own stream readers take a cut-off last frame for the end of the file, and stop after the first frame
unless told otherwise; here every frame and every member must reach its end. Memory: up to 256 MiB for a decompression
bomb (normally below 2 MiB), plus the frame's window (at most 2 GiB, which `zstd --ultra --long=31` asks for; usually
2 to 8 MiB).
"""

from __future__ import annotations

import bz2
import io
import lzma
import sys
from collections.abc import Callable, Iterator
from functools import partial
from gzip import BadGzipFile
from typing import TYPE_CHECKING, Any, BinaryIO

import lz4.frame
import zstandard
from isal import igzip, isal_zlib

from corpusmill.errors import CorruptDataError
from corpusmill.kernels import advance

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

READ_BYTES = 1 << 20
ZSTD_LARGEST_WINDOW_BYTES = 1 << 31
# One call decompresses its whole input. The densest block is 4 bytes that occur for 128 KiB, so 8 KiB fed can become
# 2,048 x 128 KiB = 256 MiB; text becomes about 32 KiB. Larger feeds are not faster (measured: 880 MB/s from 8 KiB on).
ZSTD_FEED_BYTES = 8 << 10
MEMBER_FEED_BYTES = 64 << 10  # what a member leaves of it is copied for the next one, so it is small
XZ_MEMORY_BYTES = 1 << 31  # a dictionary of 1.5 GiB, as `xz -9e` needs 64 MiB

# A bomb of zeros packs 1,032 (gzip), 7,000 (xz), 32,768 (zstd) or a million (bzip2) to 1, lz4's at most 255; text does
# not reach a tenth of gzip's.
LARGEST_RATIO = 500
UNSUSPICIOUS_BYTES = 64 << 20

_GZIP = ("gzip member", "gzip -t")  # what a file consists of, and the command that tests one
_ZSTD = ("Zstandard frame", "zstd -t --long=31")
_XZ, _BZIP2, _LZ4 = ("xz stream", "xz -t"), ("bzip2 stream", "bzip2 -t"), ("lz4 frame", "lz4 -t")
_BEHIND = "other bytes behind the last"


def plain_pieces(raw: BinaryIO, _name: str, _first_byte: int = 0) -> Iterator[bytes]:
    """The bytes of `raw` as they are."""
    while piece := raw.read(READ_BYTES):
        yield piece
        advance.note_done(len(piece))


def gzip_pieces(raw: BinaryIO, name: str, first_byte: int = 0) -> Iterator[bytes]:
    """The decompressed bytes of every member. Raises CorruptDataError; `raw` begins at `first_byte` of its file."""
    counted = _CountedStream(raw)
    # IGzipFile parses member headers itself; the bare decompression objects of isal 1.9 fail on a header with optional
    # fields (bgzip writes those) that is cut by the end of a read.
    members = igzip.IGzipFile(fileobj=counted, mode="rb")  # type: ignore[no-untyped-call]
    decompressed_bytes = 0
    while True:
        try:
            piece = members.read(READ_BYTES)
        except EOFError as error:
            raise _truncated(_where(name, first_byte, counted.bytes_read, decompressed_bytes), *_GZIP) from error
        except (BadGzipFile, isal_zlib.error) as error:  # type: ignore[misc]
            got = error
            if str(error).startswith("Not a gzipped file"):  # and quotes the bytes
                got = f"{_BEHIND} {_GZIP[0]}" if counted.begins_with(b"\x1f\x8b") else "no gzip header"
            raise _corrupt(_where(name, first_byte, counted.bytes_read, decompressed_bytes), *_GZIP, got) from error
        if not piece:
            return
        decompressed_bytes += len(piece)
        require_plausible(name, counted.bytes_read, decompressed_bytes)
        yield piece


def zstd_pieces(raw: BinaryIO, name: str, first_byte: int = 0) -> Iterator[bytes]:
    """The decompressed bytes of every frame. Raises CorruptDataError; `raw` begins at `first_byte` of its file."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW_BYTES)
    frame = decompressor.decompressobj()
    inside_frame = False
    compressed_bytes = decompressed_bytes = 0
    while block := raw.read(READ_BYTES):
        advance.note_done(len(block))
        unread = memoryview(block)
        while unread:
            feed = unread[:ZSTD_FEED_BYTES]
            try:
                piece = frame.decompress(feed)
            except zstandard.ZstdError as error:
                where = _where(name, first_byte, compressed_bytes + len(feed), decompressed_bytes)
                raise _corrupt(where, *_ZSTD, error) from error
            used_bytes = len(feed) - len(frame.unused_data)
            inside_frame = not frame.eof
            if frame.eof:
                frame = decompressor.decompressobj()
            unread = unread[used_bytes:]
            compressed_bytes += used_bytes
            decompressed_bytes += len(piece)
            require_plausible(name, compressed_bytes, decompressed_bytes)
            if piece:
                yield piece
    if inside_frame:
        raise _truncated(_where(name, first_byte, compressed_bytes, decompressed_bytes), *_ZSTD)


def _member_pieces(
    raw: BinaryIO,
    name: str,
    first_byte: int = 0,
    *,
    member: Callable[[], Any],
    magic: bytes,
    unit: tuple[str, str],
    errors: tuple[type[Exception], ...],
    padding: bool = False,
    feed_bytes: int = MEMBER_FEED_BYTES,
) -> Iterator[bytes]:
    """The decompressed bytes of every member; `member` makes a decompressor of the interface of bz2's.

    Zero bytes behind a member are allowed if there is `padding`. Raises CorruptDataError.
    """
    decompressor = None
    behind_member = first_byte > 0
    compressed_bytes = decompressed_bytes = 0
    unread = b""
    while True:
        feed = b""
        if decompressor is None or decompressor.needs_input:
            feed, unread = unread or _read_counted(raw, feed_bytes), b""
            if not feed:
                break
        if decompressor is None:
            start = feed.lstrip(b"\0") if padding and behind_member else feed
            compressed_bytes += len(feed) - len(start)
            feed = start
            if not feed:
                continue
            if not feed.startswith(magic[: len(feed)]):
                where = _where(name, first_byte, compressed_bytes, decompressed_bytes)
                raise _corrupt(where, *unit, f"{_BEHIND} {unit[0]}" if compressed_bytes else f"no {unit[0]}")
            decompressor = member()
        try:
            piece = decompressor.decompress(feed, READ_BYTES)
        except errors as error:
            where = _where(name, first_byte, compressed_bytes + len(feed), decompressed_bytes)
            raise _corrupt(where, *unit, error) from error
        compressed_bytes += len(feed)
        if decompressor.eof:
            unread, decompressor, behind_member = decompressor.unused_data or b"", None, True
            compressed_bytes -= len(unread)
        decompressed_bytes += len(piece)
        require_plausible(name, compressed_bytes, decompressed_bytes)
        if piece:
            yield piece
    if decompressor is not None:
        raise _truncated(_where(name, first_byte, compressed_bytes, decompressed_bytes), *unit)


def _read_counted(raw: BinaryIO, size: int) -> bytes:
    block = raw.read(size)
    advance.note_done(len(block))
    return block


xz_pieces = partial(
    _member_pieces,
    member=partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, XZ_MEMORY_BYTES),
    magic=b"\xfd7zXZ\0",
    unit=_XZ,
    errors=(lzma.LZMAError,),
    padding=True,
)
bzip2_pieces = partial(
    _member_pieces, member=bz2.BZ2Decompressor, magic=b"BZh", unit=_BZIP2, errors=(OSError, ValueError)
)
lz4_pieces = partial(
    _member_pieces,
    member=lz4.frame.LZ4FrameDecompressor,
    magic=b"\x04\x22\x4d\x18",
    unit=_LZ4,
    feed_bytes=4 * MEMBER_FEED_BYTES,  # at 2 GB/s the calls count
    errors=(RuntimeError, ValueError),
)


def require_plausible(name: str, compressed_bytes: int, decompressed_bytes: int) -> None:
    """CorruptDataError if text does not compress this well: the file is a decompression bomb."""
    if decompressed_bytes > max(UNSUSPICIOUS_BYTES, LARGEST_RATIO * compressed_bytes):
        raise CorruptDataError(
            "source.decompression_bomb: a compressed source file is a decompression bomb",
            where=name,
            expected=f"at most {LARGEST_RATIO:,} bytes of text from every compressed byte",
            got=f"{decompressed_bytes:,} bytes from {compressed_bytes:,}",
            next_step="inspect its beginning with zcat, zstdcat, xzcat, bzcat or lz4cat; if it is valid text, store it"
            " uncompressed",
        )


def _truncated(where: str, unit: str, test: str) -> CorruptDataError:
    return CorruptDataError(
        "source.truncated: a compressed source file ends too early",
        where=where,
        expected=f"the end of its last {unit} before the end of the file",
        next_step=_next_step(test),
    )


def _corrupt(where: str, unit: str, test: str, got: object) -> CorruptDataError:
    return CorruptDataError(
        "source.not_decompressable: a compressed source file does not decompress",
        where=where,
        expected=f"whole {unit}s and nothing else",
        got=got,
        next_step=_next_step(test),
    )


def _where(name: str, first_byte: int, compressed_bytes: int, decompressed_bytes: int) -> str:
    start = f" from byte {first_byte:,} on" if first_byte else ""
    at = first_byte + compressed_bytes
    return f"{name}, at or before byte {at:,}, after {decompressed_bytes:,} decompressed bytes{start}"


def _next_step(test: str) -> str:
    return f"run `{test}` on the original: if it passes, download the file again, else fetch it from its origin again"


class PieceStream(io.BufferedIOBase):
    """An iterator of bytes as a stream, read forwards only. `read1` returns pieces without copying them.

    Iterating gives lines.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._at = 0  # where in the piece the unread bytes begin

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        left = sys.maxsize if size is None or size < 0 else size
        taken = []
        while left and (piece := self.read1(left)):
            taken.append(piece)
            left -= len(piece)
        return b"".join(taken)

    def read1(self, size: int = -1) -> bytes:
        """Unread bytes, at most `size`, of one piece; empty only at the end."""
        if self.closed:
            raise ValueError("read from a closed stream")
        while self._at == len(self._piece):
            self._piece, self._at = next(self._pieces, b""), 0
            if not self._piece:
                return b""
        unread = self._piece[self._at :] if size < 0 else self._piece[self._at : self._at + size]
        self._at += len(unread)
        return unread

    def __iter__(self) -> Iterator[bytes]:
        begun: list[bytes] = []
        while piece := self.read1():
            *lines, rest = piece.split(b"\n")
            for line in lines:
                yield b"".join([*begun, line, b"\n"])
                begun = []
            begun.append(rest)
        if last := b"".join(begun):
            yield last


class _CountedStream(io.RawIOBase):
    """Forwards reads and counts their bytes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._beginning = b""
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def begins_with(self, mark: bytes) -> bool:
        return self._beginning.startswith(mark)

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        piece = self._raw.read(len(target))
        target[: len(piece)] = piece
        self._beginning = self._beginning or piece[:2]
        self.bytes_read += len(piece)
        advance.note_done(len(piece))
        return len(piece)
