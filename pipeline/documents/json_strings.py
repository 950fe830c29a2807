"""Strings of raw JSON: their UTF-8 values, and the position in the JSON of a place in the value.

A string is `data[start:end]`, quotes included, with valid escapes. Long strings are read in pieces, so memory is a few
times `PIECES_BYTES` beside the result: as Python's `str`, a text with one emoji takes four times its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import orjson
from numpy.typing import NDArray

PIECE_BYTES, PIECES_BYTES = 1 << 16, 1 << 19
QUOTE, BACKSLASH = ord('"'), ord("\\")
INSIDE_A_CHARACTER = -1
Line = bytes | memoryview

_ESCAPE_BYTES = 6  # \u00e9; a surrogate pair is two such escapes
_LOW_SURROGATE = re.compile(rb"\\u[dD][c-fC-F]")


def decode(data: Line, start: int, end: int) -> bytes:
    """The string's UTF-8. ValueError for invalid UTF-8."""
    if end - start <= PIECE_BYTES:
        text: bytes = orjson.loads(memoryview(data)[start:end]).encode()
        return text
    pieces = (data[begin:stop] for begin, stop in _pieces(data, start + 1, end - 1))
    return b"".join([orjson.loads(b'"' + piece + b'"').encode() for piece in pieces])


def find_places(data: Line, strings: Iterable[tuple[int, int]], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 (m,), positions in `data`: where in their JSON the bytes at some offsets of strings' UTF-8 are.

    `strings`  (start, end) of each
    `offsets`  int64 (m,): ascending, in the UTF-8 of all strings back to back, with a closing quote behind each

    The result is INSIDE_A_CHARACTER where no character begins.
    """
    places = np.empty_like(offsets)
    first = decoded = 0
    for pieces in _some_at_a_time(data, strings):
        json = b"".join([data[begin:stop] for begin, stop in pieces])
        escapes, saved = _escapes(json)
        size = len(json) - int(saved[-1])
        last = int(np.searchsorted(offsets, decoded + size))
        wanted = offsets[first:last] - decoded
        before = np.searchsorted(escapes - saved[:-1], wanted)  # how many escapes begin before each
        count = wanted + saved[before]
        begins, stops = np.array(pieces).T
        behind = np.cumsum(stops - begins)  # where each piece ends in `json`
        moved = stops - behind
        places[first:last] = count + moved[np.searchsorted(behind, count, side="right")]
        places[first:last][_are_inside(json, count, escapes, before)] = INSIDE_A_CHARACTER
        first, decoded = last, decoded + size
    return places


def _some_at_a_time(data: Line, strings: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The strings without their opening quotes in pieces (see _pieces), about PIECES_BYTES of them at a time."""
    pieces: list[tuple[int, int]] = []
    size = 0
    for start, end in strings:
        for begin, stop in _pieces(data, start + 1, end):
            pieces.append((begin, stop))
            size += stop - begin
            if size >= PIECES_BYTES:
                yield pieces
                pieces, size = [], 0
    if pieces:
        yield pieces


def _are_inside(
    json: bytes, places: NDArray[np.int64], escapes: NDArray[np.int64], before: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether a character, or the last of `before` escapes, is still open at each place: bool (m,)."""
    view = np.frombuffer(json, np.uint8)
    inside: NDArray[np.bool_] = (view[places] & 0xC0) == 0x80
    (escaped,) = before.nonzero()
    last = escapes[before[escaped] - 1]
    inside[escaped] |= places[escaped] < last + np.where(view[last + 1] == ord("u"), _ESCAPE_BYTES, 2)
    return inside


def _escapes(json: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(where escapes begin, int64 (k,); by how many bytes the first 0, 1, ..., k are longer than their UTF-8, int64 (k
    + 1,)). In a surrogate pair the second escape counts for the whole character.
    """
    from corpusmill.documents.byte_places import find_bytes  # numba; whoever reads strings alone needs none of it

    view = np.frombuffer(json, np.uint8)
    escapes = find_bytes(view, BACKSLASH)
    later = np.flatnonzero(np.diff(escapes) == 1) + 1  # the second, third, ... of backslashes in a row
    seconds = np.maximum.accumulate(np.where(np.diff(later, prepend=-1) == 1, 0, later))
    escapes = np.delete(escapes, later[(later - seconds) % 2 == 0])  # the second, fourth, ... are escaped
    (unicode,) = (view[escapes + 1] == ord("u")).nonzero()
    if not len(unicode):
        return escapes, np.arange(len(escapes) + 1)
    saved = np.ones(len(escapes) + 1, np.int64)
    saved[0] = 0
    digits = view[escapes[unicode, None] + np.arange(2, _ESCAPE_BYTES)].astype(np.int64)
    units = ((digits & 15) + 9 * (digits >> 6)) @ [1 << 12, 1 << 8, 1 << 4, 1]  # letters have bit 6, and A, a end in 1
    utf8_bytes = 1 + (units >= 0x80) + (units >= 0x800)
    utf8_bytes[units >> 10 == 0xD800 >> 10] = 0
    utf8_bytes[units >> 10 == 0xDC00 >> 10] = 4
    saved[1 + unicode] = _ESCAPE_BYTES - utf8_bytes
    return escapes, np.cumsum(saved)


def _pieces(data: Line, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cuts the bytes between the quotes at places outside of characters, escapes and surrogate pairs."""
    while end - start > PIECE_BYTES:
        cut = start + PIECE_BYTES
        escape = bytes(data[start:cut]).replace(rb"\\", b"//").rfind(b"\\", PIECE_BYTES - 2 * _ESCAPE_BYTES + 1)
        if escape >= 0:
            cut = start + escape
            cut -= _ESCAPE_BYTES if _LOW_SURROGATE.match(data, cut) else 0
        else:
            cut -= next((back for back in range(4) if data[cut - back] & 0xC0 != 0x80), 0)
        yield start, cut
        start = cut
    yield start, end
