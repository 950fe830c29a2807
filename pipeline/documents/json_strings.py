"""Kernels over the strings of raw JSON: where they end, what their escapes stand for.

`data` is the address of the first byte (`pipeline.words`); positions are int64, relative to it. No function reads at or
beyond the `end` it is given. A position of -1 means "not what JSON has here", and every function that takes a position
hands -1 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipeline.words import (
    WORD_BYTES,
    bytes_below,
    bytes_equal,
    bytes_not_ascii,
    load_byte,
    load_word,
    store_byte,
    store_word,
    zero_low_bytes,
)

QUOTE, BACKSLASH = ord('"'), ord("\\")
_FIRST_PRINTABLE = 0x20
_NONE = np.uint64(0)


@njit(nogil=True, cache=True)
def plain_end(data: Any, at: Any, end: Any) -> Any:
    """The first quote or backslash from `at` on, or `end`."""
    while at + WORD_BYTES <= end:
        word = load_word(data + at)
        found = bytes_equal(word, QUOTE) | bytes_equal(word, BACKSLASH)
        if found != _NONE:
            return at + zero_low_bytes(found)
        at += WORD_BYTES
    while at < end and load_byte(data + at) != QUOTE and load_byte(data + at) != BACKSLASH:
        at += 1
    return at


@njit(nogil=True, cache=True)
def copy_string(data: Any, at: Any, end: Any, decoded: Any, size: Any) -> Any:
    """Decode the string whose first character is at `at` to UTF-8 at the address `decoded` + size.

    Gives (one past its closing quote, size with it). The position is -1 if it is not what RFC 8259 allows.

    Up to 7 bytes behind what it decodes are written, too.
    """
    while 0 <= at < end:
        while at + WORD_BYTES <= end:
            word = load_word(data + at)
            store_word(decoded + size, word)
            found = _not_plain(word)
            if found != _NONE:
                plain = zero_low_bytes(found)
                at += plain
                size += plain
                break
            at += WORD_BYTES
            size += WORD_BYTES
        if at < end and load_byte(data + at) == QUOTE:
            return at + 1, size
        code_point, at = _character(data, at, end)
        if code_point < 0x80:
            store_byte(decoded + size, code_point)
            size += 1
        else:
            size = _put_utf8(code_point, decoded, size)
    return np.int64(-1), size


@njit(nogil=True, cache=True)
def check_string(data: Any, at: Any, end: Any) -> Any:
    """One past the closing quote of the string whose first character is at `at`; -1 as `copy_string`."""
    while 0 <= at < end:
        while at + WORD_BYTES <= end:
            found = _not_plain(load_word(data + at))
            if found != _NONE:
                at += zero_low_bytes(found)
                break
            at += WORD_BYTES
        if at < end and load_byte(data + at) == QUOTE:
            return at + 1
        _, at = _character(data, at, end)
    return np.int64(-1)


@njit(nogil=True, cache=True)
def _not_plain(word: Any) -> Any:
    """uint64 whose lowest set byte is where the word's first byte stands that is a quote, a backslash, a control
    character or not ASCII; 0 if none is.
    """
    ends = bytes_equal(word, QUOTE) | bytes_equal(word, BACKSLASH)
    return ends | bytes_below(word, _FIRST_PRINTABLE) | bytes_not_ascii(word)


@njit(nogil=True, cache=True)
def _character(data: Any, at: Any, end: Any) -> Any:
    """(code point, one past) of the character or escape at `at`; the position is -1 for control characters and for what
    is no UTF-8 and no escape that JSON has.
    """
    byte = load_byte(data + at) if at < end else np.int64(0)
    if byte == BACKSLASH:
        return unescape(data, at, end)
    if byte < 0x80:
        return byte, at + 1 if byte >= _FIRST_PRINTABLE else np.int64(-1)
    length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
    code_point = byte & (0x7F >> length)
    if at + length > end:
        return byte, np.int64(-1)
    for i in range(1, length):
        following = load_byte(data + at + i)
        if following & 0xC0 != 0x80:
            return byte, np.int64(-1)
        code_point = code_point << 6 | following & 0x3F
    # Longer than need be (C0, C1 begin such), half a surrogate pair, beyond Unicode (F5 and above).
    wrong = utf8_bytes(code_point) != length or 0xD800 <= code_point < 0xE000 or code_point > 0x10FFFF or byte > 0xF4
    return code_point, np.int64(-1) if wrong else at + length


@njit(nogil=True, cache=True)
def skip_escape(data: Any, at: Any, end: Any) -> Any:
    """(decoded bytes, one past) of the escape at `at`; the position is -1 if there is none that JSON has."""
    if at >= end or load_byte(data + at) != BACKSLASH:
        return np.int64(0), np.int64(-1)
    code_point, at = unescape(data, at, end)
    return utf8_bytes(code_point), at


@njit(nogil=True, cache=True)
def unescape(data: Any, at: Any, end: Any) -> Any:
    """(code point, one past the escape) of the escape whose backslash is at `at`; the position is -1 if it is none.

    The two escapes of a surrogate pair are one code point; a surrogate without its partner is none.
    """
    letter = load_byte(data + at + 1) if at + 1 < end else np.int64(-1)
    if letter != ord("u"):
        code_point = _short_escape(letter)
        return code_point, at + 2 if code_point >= 0 else np.int64(-1)
    code_point = _hex4(data, at + 2, end)
    at += 6
    opens_pair = 0xD800 <= code_point < 0xDC00 and at + 1 < end
    if opens_pair and load_byte(data + at) == BACKSLASH and load_byte(data + at + 1) == ord("u"):
        low = _hex4(data, at + 2, end)
        at += 6
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + low - 0xDC00 if 0xDC00 <= low < 0xE000 else -1
    if code_point < 0 or 0xD800 <= code_point < 0xE000:
        return np.int64(0), np.int64(-1)
    return code_point, at


@njit(nogil=True, cache=True)
def _short_escape(letter: Any) -> Any:
    """What the letter after a backslash stands for, or -1."""
    code_point = np.int64(-1)
    if letter == ord("n"):
        code_point = np.int64(10)
    elif letter in (QUOTE, BACKSLASH, ord("/")):
        code_point = letter
    elif letter == ord("t"):
        code_point = np.int64(9)
    elif letter == ord("r"):
        code_point = np.int64(13)
    elif letter == ord("b"):
        code_point = np.int64(8)
    elif letter == ord("f"):
        code_point = np.int64(12)
    return code_point


@njit(nogil=True, cache=True)
def _hex4(data: Any, at: Any, end: Any) -> Any:
    """The value of four hexadecimal digits, or -1."""
    if at + 4 > end:
        return -1
    value = 0
    for i in range(at, at + 4):
        byte = load_byte(data + i)
        letter = byte | 32
        if 48 <= byte <= 57:
            value = value << 4 | byte - 48
        elif 97 <= letter <= 102:
            value = value << 4 | letter - 87
        else:
            return -1
    return value


@njit(nogil=True, cache=True)
def utf8_bytes(code_point: Any) -> Any:
    """How many bytes a code point takes."""
    return 1 + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000)


@njit(nogil=True, cache=True)
def utf8_byte(code_point: Any, length: Any, i: Any) -> Any:
    """Byte i of a code point's UTF-8."""
    if length == 1:
        return code_point
    six_bits = code_point >> (6 * (length - 1 - i))
    # The leading byte starts with as many ones as there are bytes: C0, E0, F0 is F00 shifted by 2, 3, 4.
    return six_bits | (0xF00 >> length & 0xFF) if i == 0 else six_bits & 0x3F | 0x80


@njit(nogil=True, cache=True)
def _put_utf8(code_point: Any, decoded: Any, size: Any) -> Any:
    """Write a code point at the address `decoded` + size; the size with it."""
    length = utf8_bytes(code_point)
    for i in range(length):
        store_byte(decoded + size + i, utf8_byte(code_point, length, i))
    return size + length
