"""Strings of raw JSON: their UTF-8 values.

A string is `data[start:end]`, quotes included, with valid escapes. Long strings are read in pieces, so memory is a few
times `PIECE_BYTES` beside the result: as Python's `str`, a text with one emoji takes four times its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

PIECE_BYTES = 1 << 16
QUOTE, BACKSLASH = ord('"'), ord("\\")
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
