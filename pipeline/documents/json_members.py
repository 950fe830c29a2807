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

from pipeline.documents.json_strings import BACKSLASH, QUOTE, plain_end, skip_escape, unescape, utf8_byte, utf8_bytes
from pipeline.words import address_of, load_byte

ABSENT = -1
MALFORMED = -2
NOT_A_STRING = -1
INSIDE_A_CHARACTER = -1

_COLON, _COMMA = ord(":"), ord(",")
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = ord("{"), ord("}"), ord("["), ord("]")


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
    _find_members(address_of(data), starts, ends, np.frombuffer(key.encode(), np.uint8), found)
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
    _find_text_places(address_of(data), len(data), starts, first_place, places, found)
    return found


def measure_texts(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """UTF-8 bytes, int64 (k,), that stretches `data[starts[i] : ends[i]]` of JSON strings stand for, decoded."""
    measured = np.empty(len(starts), np.int64)
    _measure_texts(address_of(data), starts, ends, measured)
    return measured


@njit(nogil=True, cache=True)
def _find_text_places(data, end, starts, first_place, places, found):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        at, decoded = starts[i] + 1, 0
        for j in range(first_place[i], first_place[i + 1]):
            while at >= 0 and decoded < places[j]:
                run_end = plain_end(data, at, min(end, at + places[j] - decoded))
                decoded += run_end - at
                at = run_end
                if decoded < places[j]:
                    length, at = skip_escape(data, at, end)
                    decoded += length
            if not 0 <= at < end:
                found[j] = MALFORMED
            elif decoded > places[j] or load_byte(data + at) & 0xC0 == 0x80:
                found[j] = INSIDE_A_CHARACTER
            else:
                found[j] = at


@njit(nogil=True, cache=True)
def _measure_texts(data, starts, ends, measured):  # type: ignore[no-untyped-def]
    for i in range(len(starts)):
        at, decoded = starts[i], 0
        while 0 <= at < ends[i]:
            run_end = plain_end(data, at, ends[i])
            decoded += run_end - at
            at = run_end
            if at < ends[i]:
                length, at = skip_escape(data, at, ends[i])
                decoded += length
        measured[i] = decoded


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
    while 0 <= at < end and load_byte(data + at) in (32, 9, 10, 13):
        at += 1
    return at


@njit(nogil=True, cache=True)
def _next_byte(data, at, end):  # type: ignore[no-untyped-def]
    """The byte after any space, or -1 at the end."""
    at = _skip_space(data, at, end)
    return load_byte(data + at) if 0 <= at < end else np.int64(-1)


@njit(nogil=True, cache=True)
def _after(data, at, end, byte):  # type: ignore[no-untyped-def]
    """The position after `byte`, which must come next, space before it allowed; else -1."""
    at = _skip_space(data, at, end)
    return at + 1 if 0 <= at < end and load_byte(data + at) == byte else np.int64(-1)


@njit(nogil=True, cache=True)
def _skip_value(data, at, end):  # type: ignore[no-untyped-def]
    """(one past the value at `at` or -1, its decoded bytes if it is a string or NOT_A_STRING)"""
    if not 0 <= at < end:
        return -1, NOT_A_STRING
    if load_byte(data + at) == QUOTE:
        return _skip_string(data, at, end)
    if load_byte(data + at) in (_OPEN_OBJECT, _OPEN_ARRAY):
        return _skip_nested(data, at, end), NOT_A_STRING
    start = at
    while at < end and not _ends_scalar(load_byte(data + at)):
        at += 1
    return (at if at > start else -1), NOT_A_STRING


@njit(nogil=True, cache=True)
def _ends_scalar(byte):  # type: ignore[no-untyped-def]
    return byte <= 32 or byte in (_COMMA, _CLOSE_OBJECT, _CLOSE_ARRAY)


@njit(nogil=True, cache=True)
def _skip_nested(data, at, end):  # type: ignore[no-untyped-def]
    depth = 0
    while 0 <= at < end:
        byte = load_byte(data + at)
        if byte == QUOTE:
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
    if not 0 <= at < end or load_byte(data + at) != QUOTE:
        return -1, NOT_A_STRING
    at += 1
    decoded_bytes = 0
    while 0 <= at < end:
        run_end = plain_end(data, at, end)
        decoded_bytes += run_end - at
        at = run_end
        if at < end and load_byte(data + at) == QUOTE:
            return at + 1, decoded_bytes
        code_point, at = unescape(data, at, end)
        decoded_bytes += utf8_bytes(code_point)
    return -1, NOT_A_STRING


@njit(nogil=True, cache=True)
def _same_key(data, at, end, key):  # type: ignore[no-untyped-def]
    """Whether the raw string contents `data[at:end]` decode to `key`."""
    matched = 0
    while at < end:
        if load_byte(data + at) != BACKSLASH:
            if matched >= len(key) or key[matched] != load_byte(data + at):
                return False
            at += 1
            matched += 1
            continue
        code_point, at = unescape(data, at, end)
        length = utf8_bytes(code_point)
        if matched + length > len(key):
            return False
        for i in range(length):
            if key[matched + i] != utf8_byte(code_point, length, i):
                return False
        matched += length
    return matched == len(key)
