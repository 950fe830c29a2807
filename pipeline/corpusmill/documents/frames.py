"""Finds where the frames of a compressed file begin: Zstandard frames (RFC 8878), and the blocks of bgzip (SAM
specification, 4.1), which are gzip members that state their own size.

Both can be walked without decompressing: from a frame's header to its blocks' headers (3 bytes every 128 KiB of text)
and so to its end. `frame_bounds` walks a whole file: two small reads a frame and one a block. Where every read is a
request, `find_frame` looks for the next frame behind a place instead: it reads on from there to the four bytes that a
frame begins with. They occur by chance, too (in compressed bytes once in 4 GiB), so a candidate must end where another
frame begins or the file ends, and must decompress. A file can be crafted to make every candidate expensive: a `Stretch`
reads no byte twice and ends the search after SEARCH_STEPS.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, cast

from corpusmill.documents.compression import Compression, open_decompressed
from corpusmill.errors import CorruptDataError
from corpusmill.storage import SeekableFile

FIND_BYTES = 16 << 20
"""How far `find_frame` searches. A frame of pzstd holds 8 MiB of text, at its highest levels 32; bgzip's hold 64 KiB.
"""

STRETCH_BYTES = 64 << 20
"""How much of a bucket's file is read behind a cut: a frame must begin and end in it, and a line end follow."""

SEARCH_STEPS = 1 << 21
"""Reads of a header and KiB read or decompressed, about a microsecond each, before a search is given up."""

SEARCH_BYTES = 1 << 20
LARGEST_BLOCK_BYTES = 128 << 10
SKIPPABLE_MAGIC, SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
CONTENT_SIZE_BYTES = (0, 2, 4, 8)
DICTIONARY_ID_BYTES = (0, 1, 2, 4)


class NoFrameError(Exception):
    """The bytes at an offset are not a frame, or a truncated one."""


class SearchedEnoughError(Exception):
    """A search took more than SEARCH_STEPS."""


class Stretch(SeekableFile):
    """The bytes [first, last) of a stream at their original offsets: each is read once and kept, up to STRETCH_BYTES.

    Every operation raises SearchedEnoughError once SEARCH_STEPS are spent.
    """

    def __init__(self, stream: BinaryIO, first: int, size_bytes: int) -> None:
        self.last = min(size_bytes, first + STRETCH_BYTES)
        super().__init__(self.last)
        self._stream, self._first = stream, first
        self._kept = bytearray()
        self._steps = 0

    def spend(self, size_bytes: int) -> None:
        """Count a step that reads or decompresses `size_bytes`."""
        self._steps += 1 + (size_bytes >> 10)
        if self._steps > SEARCH_STEPS:
            raise SearchedEnoughError

    def _next(self, wanted: int) -> bytes:
        self.spend(wanted)
        inside = self._at - self._first
        while (missing := inside + wanted - len(self._kept)) > 0:
            self._stream.seek(self._first + len(self._kept))
            data = self._stream.read(min(SEARCH_BYTES, missing))
            if not data:
                break
            self._kept += data
        return bytes(memoryview(self._kept)[inside : inside + wanted])


@dataclass(frozen=True)
class Framing:
    """How a compressed format is cut into frames.

    magic   the bytes that each frame begins with
    end     (stream, at) to one past the frame at `at` and the skippable frames behind it; NoFrameError
    """

    magic: bytes
    end: Callable[[BinaryIO, int], int]


def frame_bounds(stream: BinaryIO, size_bytes: int, framing: Framing) -> list[int]:
    """Where each frame begins, and the end of the file; only [0, size] for a file that is damaged or has no frames.

    The later read of a damaged file reports what is wrong with it.
    """
    bounds = [0]
    try:
        at = _behind_skippable(stream, 0)
        while at < size_bytes:
            at = framing.end(stream, at)
            bounds.append(at)
    except NoFrameError:
        return [0, size_bytes]
    return bounds if bounds[-1] == size_bytes else [0, size_bytes]


def find_frame(stretch: Stretch, name: str, at: int, size_bytes: int, framing: Framing) -> int | None:
    """The first frame that begins at `at` or behind it, within FIND_BYTES; None if none does.

    The frame and the head of the next one are within the stretch. Raises SearchedEnoughError.
    """
    last = min(size_bytes, at + FIND_BYTES)
    while at < last:
        stretch.seek(at)
        place = stretch.read(SEARCH_BYTES).find(framing.magic)
        if place < 0:
            at += SEARCH_BYTES - len(framing.magic) + 1  # a magic may lie across two reads
        elif _is_frame(stretch, name, at + place, size_bytes, framing):
            return at + place
        else:
            at += place + 1
    return None


def _is_frame(stretch: Stretch, name: str, at: int, size_bytes: int, framing: Framing) -> bool:
    stream = cast("BinaryIO", stretch)
    try:
        end = framing.end(stream, at)
        if end != size_bytes and _read(stream, end, len(framing.magic)) != framing.magic:
            return False
        with open_stretch(stream, name, at, end) as frame:
            while text := frame.read(SEARCH_BYTES):
                stretch.spend(len(text))
    except (NoFrameError, CorruptDataError):
        return False
    return True


def open_stretch(stream: BinaryIO, name: str, first: int, last: int) -> BinaryIO:
    """The decompressed bytes of the frames in [first, last); `name` ends as the file does. Raises CorruptDataError."""
    stream.seek(first)
    return open_decompressed(cast("BinaryIO", Beginning(stream, last - first)), name, from_start=False)


class Beginning(io.RawIOBase):
    """The next bytes of a stream, as a stream that ends after them."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream = stream
        self._left = size_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        data = self._stream.read(wanted)
        self._left -= len(data)
        return data


def _zstd_end(stream: BinaryIO, at: int) -> int:
    head = _read(stream, at, 5)
    if not head.startswith(ZSTD.magic):
        raise NoFrameError
    descriptor = head[4]
    single_segment, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    content_size = CONTENT_SIZE_BYTES[descriptor >> 6] or single_segment
    at += 5 + (not single_segment) + DICTIONARY_ID_BYTES[descriptor & 3] + content_size
    while True:
        header = int.from_bytes(_read(stream, at, 3), "little")
        kind, size = header >> 1 & 3, header >> 3
        if kind == 3 or size > LARGEST_BLOCK_BYTES:  # 3 is reserved
            raise NoFrameError
        at += 3 + (1 if kind == 1 else size)  # kind 1: one byte that is repeated
        if header & 1:
            return _behind_skippable(stream, at + 4 * checksum)


def _behind_skippable(stream: BinaryIO, at: int) -> int:
    """One past the skippable frames (pzstd writes one before each frame) that begin at `at`, if any do."""
    while True:
        stream.seek(at)
        head = stream.read(8)
        if len(head) < 8 or int.from_bytes(head[:4], "little") & SKIPPABLE_MASK != SKIPPABLE_MAGIC:
            return at
        at += 8 + int(struct.unpack("<I", head[4:])[0])


def _bgzip_end(stream: BinaryIO, at: int) -> int:
    """The end of a member, whose size is in the subfield BC of its header."""
    head = _read(stream, at, 12)
    if not head.startswith(BGZIP.magic):
        raise NoFrameError
    extra = _read(stream, at + 12, int.from_bytes(head[10:12], "little"))
    while len(extra) >= 4:
        length = int.from_bytes(extra[2:4], "little")
        if extra[:2] == b"BC" and length == 2:
            return at + int.from_bytes(extra[4:6], "little") + 1
        extra = extra[4 + length :]
    raise NoFrameError


def _read(stream: BinaryIO, at: int, size_bytes: int) -> bytes:
    stream.seek(at)
    data = stream.read(size_bytes)
    if len(data) < size_bytes:
        raise NoFrameError
    return data


ZSTD = Framing(b"\x28\xb5\x2f\xfd", _zstd_end)
BGZIP = Framing(b"\x1f\x8b\x08\x04", _bgzip_end)
FRAMINGS = {Compression.ZSTD: ZSTD, Compression.GZIP: BGZIP}
