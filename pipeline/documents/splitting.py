"""Cutting one big source file into parts that can be read on their own.

    uncompressed JSON lines   at line ends near the wanted sizes: one ranged read for every cut
    zstd of several frames    at frames: their borders come from the block headers, 3 bytes every 128 KiB (RFC 8878)
    bgzip                     at blocks: every gzip member states its own size in its header (SAM specification, 4.1)
    parquet                   at row groups: their borders stand in the footer
    anything else             cannot be cut, and `Uncut.why` says so, with how to write it anew

A line belongs to the frame or block in which the line end before it lies (the first line: to the first). So a part
reads past its last frame to the next line end, and drops what comes before its own first one; `pieces` covers that.

Price: two small reads a frame for local files. Frames of remote files are not looked for: that would take a request
each. 40 bytes of memory a frame.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Literal

from pipeline.documents.compression import Compression, compression_of, open_decompressed

SEARCH_BYTES = 1 << 20
ZSTD_MAGIC = 0xFD2FB528
SKIPPABLE_MAGIC, SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
BGZIP_MARK = b"\x1f\x8b\x08\x04"
CONTENT_SIZE_BYTES = (0, 2, 4, 8)
DICTIONARY_ID_BYTES = (0, 1, 2, 4)

Kind = Literal["lines", "frames", "rows"]
Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cut:
    """One part of a file.

    `pieces` are the stretches (offset, size) of the file that it takes. `own_bytes` (frames): how much of the first
    piece is its own frames; what follows is the tail. `row_groups` (rows): [first, last).
    """

    kind: Kind
    pieces: Pieces
    own_bytes: int = 0
    row_groups: tuple[int, int] = (0, 0)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.pieces)


@dataclass(frozen=True)
class Uncut:
    """Why a file stays whole, and what would change that."""

    why: str
    remedy: str


def cut_file(stream: BinaryIO, name: str, size_bytes: int, target_bytes: int, *, local: bool) -> list[Cut] | Uncut:
    """Parts of about `target_bytes` of a seekable file, in order; Uncut if it cannot be cut."""
    if name.endswith(".parquet"):
        from pipeline.documents.parquet import row_group_cuts

        return row_group_cuts(stream, name, size_bytes, target_bytes)
    compression = compression_of(name)
    if compression is Compression.NONE:
        return _line_cuts(stream, size_bytes, target_bytes)
    if not local:
        return Uncut(
            "one shard because the frames of a compressed file in a bucket are known only by reading it",
            "store it as several files, or as parquet",
        )
    frames = _zstd_frames(stream, size_bytes) if compression is Compression.ZSTD else _bgzip_blocks(stream, size_bytes)
    if len(frames) < 3:  # the bounds of one frame
        remedy = (
            f"zstd -dc {name} | pzstd -o NEW.jsonl.zst (frames), or write it as several files"
            if compression is Compression.ZSTD
            else f"gzip -dc {name} | bgzip > NEW.jsonl.gz (blocks), or write it as several files"
        )
        return Uncut("one shard because a single-frame file cannot be split", remedy)
    return _frame_cuts(stream, name, frames, target_bytes)


def _line_cuts(stream: BinaryIO, size_bytes: int, target_bytes: int) -> list[Cut]:
    bounds = [0]
    while size_bytes - bounds[-1] > target_bytes:
        at = _after_line_end(stream, bounds[-1] + target_bytes - 1)
        if at is None or at >= size_bytes:
            break
        bounds.append(at)
    bounds.append(size_bytes)
    return [Cut("lines", ((first, last - first),)) for first, last in pairwise(bounds)]


def _after_line_end(stream: BinaryIO, at: int) -> int | None:
    """One past the first line end at or after `at`; None if there is none."""
    stream.seek(at)
    while data := stream.read(SEARCH_BYTES):
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(data)
    return None


def _frame_cuts(stream: BinaryIO, name: str, bounds: tuple[int, ...], target_bytes: int) -> list[Cut]:
    """Groups of frames; a cut is left out if no line end comes behind it."""
    end = bounds[-1]
    cuts = []
    first = bounds[0]
    for bound, following in zip(bounds[1:], [*bounds[2:], end + target_bytes], strict=True):
        if bound != end and following - first <= target_bytes:
            continue
        tail = _tail_end(stream, name, bounds, bound)
        cuts.append(Cut("frames", ((first, tail - first),), own_bytes=bound - first))
        first = bound
    return cuts


def _tail_end(stream: BinaryIO, name: str, bounds: tuple[int, ...], bound: int) -> int:
    """Where the frame ends that holds the first line end behind `bound`; the end of the file if there is none."""
    for first, last in pairwise(bounds):
        if first < bound:
            continue
        stream.seek(first)
        with open_decompressed(io.BytesIO(stream.read(last - first)), name) as frame:
            while data := frame.read(SEARCH_BYTES):
                if b"\n" in data:
                    return last
    return bounds[-1]


def part_lines(own: BinaryIO, tail: BinaryIO, *, first: bool) -> Iterator[bytes]:
    """The lines of a part of frames, as pieces of bytes: see the module's rule."""
    inside = first
    while data := own.read(SEARCH_BYTES):
        if not inside:
            found = data.find(b"\n")
            if found < 0:
                continue
            inside, data = True, data[found + 1 :]
        if data:
            yield data
    while inside and (data := tail.read(SEARCH_BYTES)):
        found = data.find(b"\n")
        yield data[: found + 1] if found >= 0 else data
        if found >= 0:
            return


def _bgzip_blocks(stream: BinaryIO, size_bytes: int) -> tuple[int, ...]:
    """Bounds of the gzip members of a bgzip file; only (0, size) if one of them does not state its size."""
    bounds = [0]
    while bounds[-1] < size_bytes:
        stream.seek(bounds[-1])
        block = _bgzip_block_bytes(stream.read(12 + 256))
        if block is None:
            return 0, size_bytes
        bounds.append(bounds[-1] + block)
    return tuple(bounds) if bounds[-1] == size_bytes else (0, size_bytes)


def _bgzip_block_bytes(head: bytes) -> int | None:
    """Size of a whole member from the subfield BC of its header."""
    if len(head) < 18 or not head.startswith(BGZIP_MARK):
        return None
    extra = head[12 : 12 + int.from_bytes(head[10:12], "little")]
    while len(extra) >= 4:
        length = int.from_bytes(extra[2:4], "little")
        if extra[:2] == b"BC" and length == 2:
            return int.from_bytes(extra[4:6], "little") + 1
        extra = extra[4 + length :]
    return None


def _zstd_frames(stream: BinaryIO, size_bytes: int) -> tuple[int, ...]:
    """Bounds of the frames of a zstd file, skippable ones joined to the frame before them.

    Only (0, size) for a damaged file, which whoever reads it will explain.
    """
    bounds, at = [0], 0
    while at < size_bytes:
        stream.seek(at)
        head = stream.read(18)
        try:
            magic = int.from_bytes(head[:4], "little")
            if magic & SKIPPABLE_MASK == SKIPPABLE_MAGIC:
                at += 8 + struct.unpack("<I", head[4:8])[0]
                bounds[-1] = at if len(bounds) > 1 else 0
                continue
            at = _zstd_frame_end(stream, at, head)
        except (struct.error, IndexError):
            return 0, size_bytes
        bounds.append(at)
    return tuple(bounds) if at == size_bytes else (0, size_bytes)


def _zstd_frame_end(stream: BinaryIO, at: int, head: bytes) -> int:
    """One past a frame whose first 18 bytes are `head`. IndexError for a header that is none or is cut off."""
    if int.from_bytes(head[:4], "little") != ZSTD_MAGIC:
        raise IndexError("no magic number")
    descriptor = head[4]
    single_segment, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    size_code = descriptor >> 6
    content_size = CONTENT_SIZE_BYTES[size_code] or single_segment
    at += 5 + (not single_segment) + DICTIONARY_ID_BYTES[descriptor & 3] + content_size
    while True:
        stream.seek(at)
        block = stream.read(3)
        if len(block) < 3:
            raise IndexError("no block header")
        header = int.from_bytes(block, "little")
        kind, size = header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)  # kind 1: one byte that is repeated
        if header & 1:
            return at + 4 * checksum
