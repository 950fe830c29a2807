"""Sources as a dataset reads them: names in natural order, files cut into parts, parts grouped into shards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.zstd", ".parquet")


@dataclass(frozen=True)
class File:
    """`frames`: (bytes in the file, bytes of text) of every frame where a file can be cut between them; none: plain
    lines, which can be cut at their ends, or a file that stays whole (`whole`)."""

    name: str
    size_bytes: int
    text: bytes
    frames: tuple[tuple[int, int], ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class Part:
    """A file, or a part of one, under the name that it is delivered by; its lines are [first, last) of the file's."""

    name: str
    file: File
    size_bytes: int
    first_line: int
    last_line: int


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Digits count as numbers, behind letters; equal ones by the plain name."""
    pieces = [piece for piece in re.split(r"(\d+)", name) if piece]
    return [(1, int(piece), "") if piece.isdigit() else (0, 0, piece) for piece in pieces], name


def shards_of(files: list[File], shard_bytes: int, smallest_part: int) -> list[list[Part]]:
    """Greedy groups of files and parts in natural order."""
    ordered = sorted(files, key=lambda file: natural(file.name))
    shards: list[list[Part]] = []
    for part in (part for file in ordered for part in parts_of(file, max(shard_bytes, smallest_part))):
        if not shards or sum(shard.size_bytes for shard in shards[-1]) + part.size_bytes > shard_bytes:
            shards.append([])
        shards[-1].append(part)
    return shards


def parts_of(file: File, target: int) -> list[Part]:
    """A line belongs to the part in which the line end before it lies; the first line to the first part."""
    starts = [0, *(place + 1 for place, byte in enumerate(file.text) if byte == 10 and place + 1 < len(file.text))]
    starts = starts if file.text else []
    bounds = _frame_bounds(file, target) if file.frames else _line_bounds(file, target)
    if len(bounds) == 1:
        return [Part(file.name, file, file.size_bytes, 0, len(starts))]
    parts = []
    line = 0
    for number, (end, size_bytes) in enumerate(bounds):
        last = sum(1 for start in starts if start == 0 or start - 1 < end)
        parts.append(Part(_part_name(file.name, number), file, size_bytes, line, last))
        line = last
    return parts


def _part_name(name: str, number: int) -> str:
    ending = max((item for item in ENDINGS if name.endswith(item)), key=len)
    return f"{name.removesuffix(ending)}.part{number:05d}{ending}"


def _wanted(left: int, target: int) -> int:
    """A whole part while two or more are left; else both of the last two take half."""
    return (left + 1) // 2 if left < 2 * target else target


def _line_bounds(file: File, target: int) -> list[tuple[int, int]]:
    """(line end before which its lines begin, bytes taken) of every part of a plain file: each ends with a line end."""
    ends = [0]
    while not file.whole and file.size_bytes - ends[-1] > target:
        actual = file.text.find(b"\n", ends[-1] + _wanted(file.size_bytes - ends[-1], target) - 1)
        if actual < 0 or actual + 1 >= file.size_bytes:
            break
        ends.append(actual + 1)
    ends.append(file.size_bytes)
    return [(last - 1, last - first) for first, last in pairwise(ends)]


def _frame_bounds(file: File, target: int) -> list[tuple[int, int]]:
    """(end of its own frames in the text, bytes taken): own frames, and more up to the one with the next line end."""
    places = [0, *accumulate(size for size, _ in file.frames)]
    texts = [0, *accumulate(size for _, size in file.frames)]
    bounds = []
    first = 0
    while file.size_bytes - first > target:
        frame = next(
            number for number, place in enumerate(places) if place >= first + _wanted(file.size_bytes - first, target)
        )
        if places[frame] == file.size_bytes:
            break
        line_end = file.text.find(b"\n", texts[frame])
        tail = (
            places[-1]
            if line_end < 0
            else next(place for place, end in zip(places, texts, strict=True) if end > line_end)
        )
        bounds.append((texts[frame], tail - first))
        first = places[frame]
    return [*bounds, (len(file.text), file.size_bytes - first)]
