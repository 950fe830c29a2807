"""Strings of raw JSON: what they stand for as UTF-8, and where a place in it stands in the JSON.

A string is `data[start:end]`, its quotes included, whose escapes have been checked. Long ones are read in pieces, so
memory is a few times `PIECE_BYTES` beside what comes out: as Python's `str`, a text with one emoji takes four times its
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import orjson
from numpy.typing import NDArray

PIECE_BYTES = 1 << 16
QUOTE, BACKSLASH = ord('"'), ord("\\")
INSIDE_A_CHARACTER = -1
Line = bytes | memoryview

_ESCAPE_BYTES = 6  # \u00e9; a surrogate pair is two such escapes
_LOW_SURROGATE = re.compile(rb"\\u[dD][c-fC-F]")


def decode(data: Line, start: int, end: int) -> bytes:
    """The string's UTF-8. ValueError for what is no UTF-8."""
    return b"".join(text.encode() for text in _texts(data, start, end))


def decoded_bytes(data: Line, start: int, end: int) -> int:
    """The size of the string's UTF-8. ValueError for what is no UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in _texts(data, start, end))


def find_places(data: Line, start: int, end: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where bytes of the string's UTF-8 stand in its JSON: int64 (m,), positions in `data`.

    `offsets`  int64 (m,): ascending, up to the size of that UTF-8, which stands for the closing quote

    INSIDE_A_CHARACTER where no character begins.
    """
    places = np.empty_like(offsets)
    first = decoded = 0
    for begin, stop in _pieces(data, start + 1, end - 1):
        escapes, saved = _escapes(data, begin, stop)
        size = stop - begin - int(saved[-1])
        last = len(offsets) if stop == end - 1 else int(np.searchsorted(offsets, decoded + size))
        wanted = offsets[first:last] - decoded
        before = np.searchsorted(escapes - saved[:-1], wanted)  # how many escapes begin before each
        found = begin + wanted + saved[before]
        places[first:last] = [
            INSIDE_A_CHARACTER if _is_inside(data, place, begin, escapes, count) else place
            for place, count in zip(found.tolist(), before.tolist(), strict=True)
        ]
        first, decoded = last, decoded + size
        if first == len(offsets):
            break
    return places


def _is_inside(data: Line, place: int, begin: int, escapes: NDArray[np.int64], before: int) -> bool:
    """Whether a character, or the last of `before` escapes, is still open at a place."""
    if data[place] & 0xC0 == 0x80:
        return True
    last = begin + int(escapes[before - 1]) if before else place
    return before > 0 and place < last + (_ESCAPE_BYTES if data[last + 1] == ord("u") else 2)


def _escapes(data: Line, begin: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(where escapes begin in a piece, int64 (k,); by how many bytes the first 0, 1, ..., k are longer than what they
    stand for, int64 (k + 1,)). Of a surrogate pair the second escape stands for all of the character.
    """
    view = np.frombuffer(memoryview(data)[begin:stop], np.uint8)
    (escapes,) = (view == BACKSLASH).nonzero()
    if (escapes[1:] - escapes[:-1] == 1).any():
        view = np.frombuffer(bytes(data[begin:stop]).replace(rb"\\", rb"\/"), np.uint8)
        (escapes,) = (view == BACKSLASH).nonzero()  # each of these begins an escape
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


def _texts(data: Line, start: int, end: int) -> Iterator[str]:
    if end - start <= PIECE_BYTES:
        yield orjson.loads(memoryview(data)[start:end])
    else:
        for begin, stop in _pieces(data, start + 1, end - 1):
            yield orjson.loads(b'"' + data[begin:stop] + b'"')


def _pieces(data: Line, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cuts what stands between the quotes where neither a character nor an escape nor a surrogate pair is open."""
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
