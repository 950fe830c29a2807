"""Cuts one big source file into parts that can be read independently.

    uncompressed JSON lines   at line ends near the target sizes: one ranged read for every cut
    zstd of several frames    at frames
    bgzip                     at its blocks (frames.py: how the borders of both are found)
    parquet                   at row groups: the footer has their borders
    anything else             cannot be cut: Uncut has the reason, and how to rewrite it

A line belongs to the frame or block that holds the line end before it (the first line to the first). So a part
reads past its last frame to the next line end, and drops what comes before its own first one; `pieces` covers that.

Price: in a local file one small read for every 128 KiB of a zstd file's text, two for every block of bgzip; 40 bytes of
memory a frame. In a bucket the frame at every cut and the one behind it are read, and at most STRETCH_BYTES per cut,
which are held in memory; if that is not enough at some cut, the rest of the file stays one part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import BinaryIO, cast

from corpusmill.documents.compression import Compression, compression_of, is_parquet, is_table, require_compression
from corpusmill.documents.cuts import Cut, Uncut, next_part_bytes
from corpusmill.documents.frames import (
    FIND_BYTES,
    FRAMINGS,
    STRETCH_BYTES,
    Framing,
    NoFrameError,
    SearchedEnoughError,
    Stretch,
    find_frame,
    frame_bounds,
    open_stretch,
)
from corpusmill.documents.kinds import read_head
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.documents import parquet


SEARCH_BYTES = 1 << 20


def cut_file(stream: BinaryIO, name: str, size_bytes: int, target_bytes: int, *, local: bool) -> list[Cut] | Uncut:
    """Parts of about `target_bytes` of a seekable file, in order, the last two of half as much or more.

    Uncut if it cannot be cut. SourceError for a file of another kind than its name says.
    """
    if is_parquet(name):
        return parquet.row_group_cuts(stream, name, size_bytes, target_bytes)
    if is_table(name):
        return Uncut("one shard because an Arrow file is not split", "save it as several files")
    return _cut_lines(stream, name, size_bytes, target_bytes, local=local)


def _cut_lines(stream: BinaryIO, name: str, size_bytes: int, target_bytes: int, *, local: bool) -> list[Cut] | Uncut:
    head = read_head(stream)
    compression = compression_of(name, head)
    require_compression(head, name, compression)
    if compression is Compression.NONE:
        return _line_cuts(stream, size_bytes, target_bytes)
    if compression not in FRAMINGS:
        return Uncut(
            f"one shard because a file of {compression.value} is not split",
            "compress it with pzstd or bgzip instead, or write it as several files",
        )
    cuts = _frame_cuts(stream, name, size_bytes, target_bytes, FRAMINGS[compression], local=local)
    if len(cuts) > 1:
        return cuts
    remedy = (
        f"zstd -dc {name} | pzstd -o NEW.jsonl.zst (frames), or write it as several files"
        if compression is Compression.ZSTD
        else f"gzip -dc {name} | bgzip > NEW.jsonl.gz (blocks), or write it as several files"
    )
    if local:
        return Uncut("one shard because a single-frame file cannot be split", remedy)
    at = next_part_bytes(size_bytes, target_bytes)
    return Uncut(
        f"one shard because no frame begins within {FIND_BYTES >> 20} MiB behind byte {at:,}: a single-frame file"
        f" cannot be split, and in a bucket at most {STRETCH_BYTES >> 20} MiB behind a cut are searched",
        remedy,
    )


def _line_cuts(stream: BinaryIO, size_bytes: int, target_bytes: int) -> list[Cut]:
    bounds = [0]
    while (left_bytes := size_bytes - bounds[-1]) > target_bytes:
        at = _after_line_end(stream, bounds[-1] + next_part_bytes(left_bytes, target_bytes) - 1)
        if at is None or at >= size_bytes:
            break
        bounds.append(at)
    bounds.append(size_bytes)
    return [Cut("lines", ((first, last - first),)) for first, last in pairwise(bounds)]


def _after_line_end(stream: BinaryIO, at: int) -> int | None:
    """One past the first line end at or after `at`; None if there is none."""
    stream.seek(at)
    while data := stream.read(SEARCH_BYTES):
        line_end = data.find(b"\n")
        if line_end >= 0:
            return at + line_end + 1
        at += len(data)
    return None


def _frame_cuts(
    stream: BinaryIO, name: str, size_bytes: int, target_bytes: int, framing: Framing, *, local: bool
) -> list[Cut]:
    """A cut at the first frame from each wanted place on, as lines are cut, too."""
    bounds = frame_bounds(stream, size_bytes, framing) if local else []
    cuts = []
    first = 0
    line: tuple[int, int] | None = None
    while (left_bytes := size_bytes - first) > target_bytes:
        at = first + next_part_bytes(left_bytes, target_bytes)
        if local:
            bound = bounds[bisect_left(bounds, at)]
            if bound == size_bytes:
                break
            line = line if line and bound <= line[0] else _line_frame(stream, name, bound, size_bytes, framing)
        else:
            place = _search(Stretch(stream, at, size_bytes), name, at, size_bytes, framing)
            if place is None:
                break
            bound, line = place
        cuts.append(Cut("frames", ((first, line[1] - first),), own_bytes=bound - first))
        first = bound
    return [*cuts, Cut("frames", ((first, size_bytes - first),), own_bytes=size_bytes - first)]


def _search(
    stretch: Stretch, name: str, at: int, size_bytes: int, framing: Framing
) -> tuple[int, tuple[int, int]] | None:
    """The first frame from `at` on, and _line_frame from there; None if either is not in the stretch."""
    try:
        bound = find_frame(stretch, name, at, size_bytes, framing)
        if bound is None or bound == size_bytes:
            return None
        line = _line_frame(cast("BinaryIO", stretch), name, bound, stretch.last, framing, stretch.spend)
    except SearchedEnoughError:
        return None
    return (bound, line) if line[0] < stretch.last or stretch.last == size_bytes else None


def _line_frame(
    stream: BinaryIO, name: str, at: int, last: int, framing: Framing, spend: Callable[[int], object] = int
) -> tuple[int, int]:
    """[first, end) of the frame that holds the first line end of the frames from `at` on; (last, last) if none does.

    The same for a damaged file: the later read of that part reports the damage. `spend` is called with the number of
    bytes decompressed.
    """
    while at < last:
        try:
            end = framing.end(stream, at)
        except NoFrameError:
            break
        if end > last:
            break
        with open_stretch(stream, name, at, end) as frame:
            while data := frame.read(SEARCH_BYTES):
                spend(len(data))
                if b"\n" in data:
                    return at, end
        at = end
    return last, last


def part_lines(own: BinaryIO, tail: BinaryIO, *, first: bool) -> Iterator[bytes]:
    """The lines of a part of frames, as pieces of bytes: see the module's rule."""
    inside = first
    while data := own.read(SEARCH_BYTES):
        if not inside:
            line_end = data.find(b"\n")
            if line_end < 0:
                continue
            inside, data = True, data[line_end + 1 :]
        if data:
            yield data
    while inside and (data := tail.read(SEARCH_BYTES)):
        line_end = data.find(b"\n")
        yield data[: line_end + 1] if line_end >= 0 else data
        if line_end >= 0:
            return
