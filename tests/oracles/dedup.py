"""Exact-substring dedup, the obvious way: remember every window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

SEPARATOR = 0xFF


def text_of(documents: Iterable[bytes]) -> tuple[bytes, list[int]]:
    """The text shard of some documents: `tokenized` and `offset`."""
    text, offsets = b"", []
    for document in documents:
        offsets.append(len(text))
        text += bytes([SEPARATOR]) + document
    return text, offsets


def remove_pointers(texts: Sequence[bytes], minimum_bytes: int) -> list[list[int]]:
    """Per shard: starts of windows without separator whose content began earlier, in order of (shard, position)."""
    seen: set[bytes] = set()
    actual: list[list[int]] = []
    for text in texts:
        actual.append([])
        for start in range(len(text) - minimum_bytes + 1):
            window = text[start : start + minimum_bytes]
            if SEPARATOR not in window:
                if window in seen:
                    actual[-1].append(start)
                seen.add(window)
    return actual


def referred_bytes(texts: Sequence[bytes], minimum_bytes: int, references: Sequence[int]) -> list[dict[int, int]]:
    """Per shard: byte -> the least number of a reference whose shards hold the first place of a window around it.

    `references`: the number of each shard's; a window belongs to one only if that is less than its own shard's.
    """
    first: dict[bytes, int] = {}
    actual: list[dict[int, int]] = []
    for text, own in zip(texts, references, strict=True):
        actual.append({})
        for start in range(len(text) - minimum_bytes + 1):
            window = text[start : start + minimum_bytes]
            number = first.setdefault(window, own)
            if SEPARATOR not in window and number < own:
                for at in range(start, start + minimum_bytes):
                    actual[-1][at] = min(number, actual[-1].get(at, number))
    return actual


def merge(rows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Union of ranges; touching ones merge."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(rows):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def remove_ranges(texts: Sequence[bytes], minimum_bytes: int) -> list[list[tuple[int, int]]]:
    """Per shard: the ranges that the duplicate windows cover."""
    pointers = remove_pointers(texts, minimum_bytes)
    return [merge((pointer, pointer + minimum_bytes) for pointer in shard) for shard in pointers]


def kept_whole_ranges(texts: Sequence[bytes], minimum_bytes: int) -> list[list[tuple[int, int]]]:
    """Per shard: bytes of windows that occurred earlier, but for the bytes of windows that are the first of several."""
    places: dict[bytes, list[tuple[int, int]]] = {}
    for shard, text in enumerate(texts):
        for start in range(len(text) - minimum_bytes + 1):
            places.setdefault(text[start : start + minimum_bytes], []).append((shard, start))
    gone: set[tuple[int, int]] = set()
    stays: set[tuple[int, int]] = set()
    for window, (first, *others) in places.items():
        if others and SEPARATOR not in window:
            stays |= {(first[0], first[1] + i) for i in range(minimum_bytes)}
            gone |= {(shard, start + i) for shard, start in others for i in range(minimum_bytes)}
    return [merge((at, at + 1) for item, at in gone - stays if item == shard) for shard in range(len(texts))]


def suffix_array(text: bytes) -> list[int]:
    """Starts of all suffixes, in order of their bytes."""
    return sorted(range(len(text)), key=lambda start: text[start:])


def pointers(table: bytes, width: int) -> list[int]:
    """The numbers of `width` bytes, little-endian, of a table."""
    return [int.from_bytes(table[at : at + width], "little") for at in range(0, len(table), width)]


def join_spans(ranges: Sequence[tuple[int, int]], share: float) -> list[tuple[int, int]]:
    """Fuzzy removal in one document: joined from the left while enough is covered, the same from the right, united."""

    def joined(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        spans: list[list[int]] = []
        for start, end in rows:
            if spans and spans[-1][2] + end - start >= share * (end - spans[-1][0]):
                spans[-1][1:] = [end, spans[-1][2] + end - start]
            else:
                spans.append([start, end, end - start])
        return [(start, end) for start, end, _ in spans]

    mirrored = joined([(-end, -start) for start, end in reversed(ranges)])
    return merge([*joined(list(ranges)), *((-end, -start) for start, end in mirrored)])


def align(document: bytes, start: int, end: int) -> tuple[int, int] | None:
    """A range of one document's bytes shortened to whole characters; None if nothing is left."""
    while start < len(document) and 0x80 <= document[start] <= 0xBF:
        start += 1
    while end < len(document) and 0x80 <= document[end] <= 0xBF:
        end -= 1
    return (start, end) if start < end else None


def cut(text: bytes, offsets: Sequence[int], ranges: Iterable[tuple[int, int]]) -> list[bytes]:
    """Documents without the bytes that lie in a range."""
    gone = {position for start, end in ranges for position in range(start, end)}
    bounds = pairwise([*offsets, len(text)])
    return [bytes(text[i] for i in range(start + 1, end) if i not in gone) for start, end in bounds]


def anchor(window: bytes, kgram_bytes: int) -> int:
    """Offset of a window's anchor: its highest-ranking k-gram, the leftmost on ties."""
    ranks = [rank(window[start : start + kgram_bytes]) for start in range(len(window) - kgram_bytes + 1)]
    return ranks.index(max(ranks))


def rank(kgram: bytes) -> int:
    """Last eight bytes less the eight before (the first eight if k < 16), times a constant, all mod 2**64."""
    last, before = kgram[-8:], kgram[max(0, len(kgram) - 16) :][:8]
    difference = int.from_bytes(last, "little") - int.from_bytes(before, "little")
    return difference * 0x9E3779B97F4A7C15 % 2**64
