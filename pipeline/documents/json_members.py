"""Finds where the value of a key stands in raw JSON objects, without parsing anything else.

An editor of JSON lines that parses and dumps changes what it does not mean to change: 1.50 becomes 1.5, 1e5 becomes
100000.0, duplicate keys and the space between tokens are lost. Knowing the byte span of one value, the rest of the
line can be copied. The kernel tells strings from structure, so braces, quotes and the key itself may stand inside
strings; keys are compared decoded (``"te\\u0078t"`` is ``text``); of duplicate keys the last one counts, as in orjson.

It checks the structure it walks over and no more: what is accepted here and was not accepted by orjson before may still
be broken JSON. Nothing is read outside the given spans, whatever the bytes are.

Price: every byte of the line is looked at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

ABSENT = -1
MALFORMED = -2
NOT_A_STRING = -1
INSIDE_A_CHARACTER = -1

_QUOTE, _BACKSLASH, _COLON, _COMMA = ord('"'), ord("\\"), ord(":"), ord(",")
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = ord("{"), ord("}"), ord("["), ord("]")
_U = ord("u")
_SHORT_ESCAPES = tuple(b'"\\/bfnrt')


class Members(NamedTuple):
    """int64 (objects,) each; positions are indexes into the scanned bytes.

    `value_start`  first byte of the key's value; ABSENT if the object lacks the key, MALFORMED if it is not an object
    `value_end`    one past the last byte of that value
    `text_bytes`   UTF-8 bytes of that value decoded, if it is a string, else NOT_A_STRING
    `insert_at`    one past the last member's value, or one past the brace of an empty object
    `members`      how many members the object has, duplicates counted
    """

    value_start: NDArray[np.int64]
    value_end: NDArray[np.int64]
    text_bytes: NDArray[np.int64]
    insert_at: NDArray[np.int64]
    members: NDArray[np.int64]


def find_members(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], key: str) -> Members:
    """Looks for `key` at the top level of each object `data[starts[i] : ends[i]]` (space around it is allowed)."""
    found = np.empty((5, len(starts)), np.int64)
    _find_members(data, starts, ends, np.frombuffer(key.encode(), np.uint8), found)
    return Members(*found)


def find_text_places(
    data: NDArray[np.uint8], starts: NDArray[np.int64], first_place: NDArray[np.int64], places: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where bytes of decoded strings stand in their JSON: int64 (m,), positions in `data`.

    `starts`       int64 (k,): the opening quotes of strings that find_members has measured
    `first_place`  int64 (k + 1,): places of string i are `places[first_place[i] : first_place[i + 1]]`
    `places`       int64 (m,): offsets into each string's UTF-8, ascending; its length stands for the closing quote

    INSIDE_A_CHARACTER where no character begins; MALFORMED for a string with an escape that JSON lacks, or too short.
    """
    found = np.empty(len(places), np.int64)
    _find_text_places(data, starts, first_place, places, found)
    return found


def measure_texts(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """UTF-8 bytes, int64 (k,), that stretches `data[starts[i] : ends[i]]` of JSON strings stand for, decoded."""
    measured = np.empty(len(starts), np.int64)
    _measure_texts(data, starts, ends, measured)
    return measured


@njit(nogil=True, cache=True)
def _find_text_places(data, starts, first_place, places, found):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        at, decoded = starts[i] + 1, 0
        for j in range(first_place[i], first_place[i + 1]):
            while at >= 0 and decoded < places[j]:
                run_end = _plain_end(data, at, min(len(data), at + places[j] - decoded))
                decoded += run_end - at
                at = run_end
                if decoded < places[j]:
                    length, at = _skip_escape(data, at)
                    decoded += length
            if at < 0:
                found[j] = MALFORMED
            elif decoded > places[j] or data[at] & 0xC0 == 0x80:
                found[j] = INSIDE_A_CHARACTER
            else:
                found[j] = at


@njit(nogil=True, cache=True)
def _measure_texts(data, starts, ends, measured):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        at, decoded = starts[i], 0
        while 0 <= at < ends[i]:
            run_end = _plain_end(data, at, ends[i])
            decoded += run_end - at
            at = run_end
            if at < ends[i]:
                length, at = _skip_escape(data, at)
                decoded += length
        measured[i] = decoded


@njit(nogil=True, cache=True)
def _plain_end(data, at, end):  # type: ignore[no-untyped-def]
    """The first quote or backslash in `data[at:end]`, or `end`."""
    while at < end and data[at] != _QUOTE and data[at] != _BACKSLASH:
        at += 1
    return at


@njit(nogil=True, cache=True)
def _skip_escape(data, at):  # type: ignore[no-untyped-def]
    """(decoded bytes, one past) of the escape at `at`; the position is -1 if there is none that JSON has."""
    if at >= len(data) or data[at] != _BACKSLASH:
        return 0, -1
    if at + 1 < len(data) and data[at + 1] != _U and data[at + 1] not in _SHORT_ESCAPES:
        return 0, -1
    code_point, at = _unescape(data, at, len(data))
    return _utf8_length(code_point), at


@njit(nogil=True, cache=True)
def _find_members(data, starts, ends, key, found):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        found[0, i], found[1, i], found[2, i], found[3, i], found[4, i] = _scan_object(data, starts[i], ends[i], key)


# Below, a position of -1 means "not what JSON has here"; every function that takes a position hands -1 on.


@njit(nogil=True, cache=True)
def _scan_object(data, start, end, key):  # type: ignore[no-untyped-def]
    value_start, value_end, text_bytes, members = ABSENT, ABSENT, NOT_A_STRING, 0
    at = _after(data, start, end, _OPEN_OBJECT)
    insert_at = at
    more = _next_byte(data, at, end) != _CLOSE_OBJECT
    while more and at >= 0:
        key_start = _skip_space(data, at, end)
        key_end, _ = _skip_string(data, key_start, end)
        at = _skip_space(data, _after(data, key_end, end, _COLON), end)
        member_start = at
        at, member_bytes = _skip_value(data, at, end)
        if at >= 0 and _same_key(data, key_start + 1, key_end - 1, key):
            value_start, value_end, text_bytes = member_start, at, member_bytes
        members += 1
        insert_at = at
        more = _next_byte(data, at, end) == _COMMA
        if more:
            at = _after(data, at, end, _COMMA)
    at = _skip_space(data, _after(data, at, end, _CLOSE_OBJECT), end)
    if at != end:
        return MALFORMED, MALFORMED, NOT_A_STRING, MALFORMED, members
    return value_start, value_end, text_bytes, insert_at, members


@njit(nogil=True, cache=True)
def _skip_space(data, at, end):  # type: ignore[no-untyped-def]
    while 0 <= at < end and data[at] in (32, 9, 10, 13):
        at += 1
    return at


@njit(nogil=True, cache=True)
def _next_byte(data, at, end):  # type: ignore[no-untyped-def]
    """The byte after any space, or -1 at the end."""
    at = _skip_space(data, at, end)
    return np.int64(data[at]) if 0 <= at < end else np.int64(-1)


@njit(nogil=True, cache=True)
def _after(data, at, end, byte):  # type: ignore[no-untyped-def]
    """The position after `byte`, which must come next, space before it allowed; else -1."""
    at = _skip_space(data, at, end)
    return at + 1 if 0 <= at < end and data[at] == byte else np.int64(-1)


@njit(nogil=True, cache=True)
def _skip_value(data, at, end):  # type: ignore[no-untyped-def]
    """(one past the value at `at` or -1, its decoded bytes if it is a string or NOT_A_STRING)"""
    if not 0 <= at < end:
        return -1, NOT_A_STRING
    if data[at] == _QUOTE:
        return _skip_string(data, at, end)
    if data[at] in (_OPEN_OBJECT, _OPEN_ARRAY):
        return _skip_nested(data, at, end), NOT_A_STRING
    start = at
    while at < end and not _ends_scalar(data[at]):
        at += 1
    return (at if at > start else -1), NOT_A_STRING


@njit(nogil=True, cache=True)
def _ends_scalar(byte):  # type: ignore[no-untyped-def]
    return byte <= 32 or byte in (_COMMA, _CLOSE_OBJECT, _CLOSE_ARRAY)


@njit(nogil=True, cache=True)
def _skip_nested(data, at, end):  # type: ignore[no-untyped-def]
    depth = 0
    while 0 <= at < end:
        byte = data[at]
        if byte == _QUOTE:
            at, _ = _skip_string(data, at, end)
            continue
        at += 1
        if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            depth += 1
        elif byte in (_CLOSE_OBJECT, _CLOSE_ARRAY):
            depth -= 1
            if depth == 0:
                return at
    return -1


@njit(nogil=True, cache=True)
def _skip_string(data, at, end):  # type: ignore[no-untyped-def]
    """(one past the closing quote, decoded UTF-8 bytes) of the string that opens at `at`, or (-1, NOT_A_STRING)."""
    if not 0 <= at < end or data[at] != _QUOTE:
        return -1, NOT_A_STRING
    at += 1
    decoded_bytes = 0
    while 0 <= at < end:
        run_end = _plain_end(data, at, end)
        decoded_bytes += run_end - at
        at = run_end
        if at < end and data[at] == _QUOTE:
            return at + 1, decoded_bytes
        code_point, at = _unescape(data, at, end)
        decoded_bytes += _utf8_length(code_point)
    return -1, NOT_A_STRING


@njit(nogil=True, cache=True)
def _unescape(data, at, end):  # type: ignore[no-untyped-def]
    """(code point, one past the escape) of the escape whose backslash is at `at`; the position is -1 if it is none.

    The two escapes of a surrogate pair are one code point; a surrogate without its partner is none.
    """
    if at + 1 >= end:
        return 0, -1
    letter = data[at + 1]
    if letter != _U:
        return _short_escape(letter), at + 2
    code_point = _hex4(data, at + 2, end)
    at += 6
    if 0xD800 <= code_point < 0xDC00 and at + 1 < end and data[at] == _BACKSLASH and data[at + 1] == _U:
        low = _hex4(data, at + 2, end)
        at += 6
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + low - 0xDC00 if 0xDC00 <= low < 0xE000 else -1
    if code_point < 0 or 0xD800 <= code_point < 0xE000:
        return 0, -1
    return code_point, at


@njit(nogil=True, cache=True)
def _short_escape(letter):  # type: ignore[no-untyped-def]
    if letter == 110:  # n
        return 10
    if letter == 116:  # t
        return 9
    if letter == 114:  # r
        return 13
    if letter == 98:  # b
        return 8
    if letter == 102:  # f
        return 12
    return np.int64(letter)  # quote, backslash, slash


@njit(nogil=True, cache=True)
def _hex4(data, at, end):  # type: ignore[no-untyped-def]
    """The value of four hexadecimal digits, or -1."""
    if at + 4 > end:
        return -1
    value = 0
    for i in range(at, at + 4):
        byte = int(data[i])
        letter = byte | 32
        if 48 <= byte <= 57:
            value = value << 4 | byte - 48
        elif 97 <= letter <= 102:
            value = value << 4 | letter - 87
        else:
            return -1
    return value


@njit(nogil=True, cache=True)
def _utf8_length(code_point):  # type: ignore[no-untyped-def]
    return 1 + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000)


@njit(nogil=True, cache=True)
def _utf8_byte(code_point, length, i):  # type: ignore[no-untyped-def]
    """Byte i of a code point's UTF-8."""
    if length == 1:
        return code_point
    six_bits = code_point >> (6 * (length - 1 - i))
    # The leading byte starts with as many ones as there are bytes: C0, E0, F0 is F00 shifted by 2, 3, 4.
    return six_bits | (0xF00 >> length & 0xFF) if i == 0 else six_bits & 0x3F | 0x80


@njit(nogil=True, cache=True)
def _same_key(data, at, end, key):  # type: ignore[no-untyped-def]
    """Whether the raw string contents `data[at:end]` decode to `key`."""
    matched = 0
    while at < end:
        if data[at] != _BACKSLASH:
            if matched >= len(key) or key[matched] != data[at]:
                return False
            at += 1
            matched += 1
            continue
        code_point, at = _unescape(data, at, end)
        length = _utf8_length(code_point)
        if matched + length > len(key):
            return False
        for i in range(length):
            if key[matched + i] != _utf8_byte(code_point, length, i):
                return False
        matched += length
    return matched == len(key)
