"""Reads lines of JSON without building anything but what is wanted: the text and the id of each, decoded.

The kernel accepts a line only if every byte of it is what RFC 8259 allows: strings whose escapes and UTF-8 are whole,
numbers by the grammar, nesting closed as it was opened. What it does not vouch for, it leaves to a slower parser: lines
that are no such object, and a few that are rare (keys with escapes, numbers from e100 or of more than 200 characters,
more than 60 levels). So what comes out does not depend on which of the two has read a line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipeline.documents.batch import SEPARATOR
from pipeline.documents.json_strings import QUOTE, check_string, copy_string, plain_end
from pipeline.words import load_byte, store_byte

_NEWLINE, _COLON, _COMMA = ord("\n"), ord(":"), ord(",")
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = ord("{"), ord("}"), ord("["), ord("]")
_DEEPEST = 60  # levels, a bit each
_LONGEST_NUMBER, _MOST_EXPONENT_DIGITS = 200, 2  # 200 digits and e99 are below 1.8e308; one digit more after e-


@njit(nogil=True, cache=True)
def scan_records(
    data: Any,
    text: Any,
    ids: Any,
    at: Any,
    end: Any,
    line: Any,
    text_key: Any,
    id_key: Any,
    documents: Any,
    bounds: Any,
    id_bounds: Any,
    line_numbers: Any,
) -> Any:
    """Read lines from position `at` on, the first of them number `line`, until the end or a line that is not vouched
    for. Gives the position there, the number of that line, and how many `documents` there are then.

    `data`, `text`, `ids`  addresses: of the lines, and of what is written as `DocumentBatch` has it; these two have
                           room for all of `data` and a word more
    `text_key`, `id_key`   uint8 arrays
    `bounds`, `id_bounds`, `line_numbers`  as in `DocumentBatch`, filled for `documents` documents before and after
    """
    while at < end:
        size, id_size = bounds[documents], id_bounds[documents]
        after, size, id_size = _scan_record(data, at, end, text_key, id_key, text, size, ids, id_size)
        if after < 0:
            return at, line, documents
        line_numbers[documents] = line
        documents += 1
        bounds[documents], id_bounds[documents] = size, id_size
        at = min(after, end)  # the last line need not end
        line += 1
    return at, line, documents


@njit(nogil=True, cache=True)
def _scan_record(
    data: Any, at: Any, end: Any, text_key: Any, id_key: Any, text: Any, first: Any, ids: Any, first_id: Any
) -> Any:
    """(the next line's beginning, end of the text, end of the id), or -1 first if the line is not vouched for."""
    size, id_size = np.int64(-1), first_id
    at = _skip_space(data, _after(data, _skip_space(data, at, end), end, _OPEN_OBJECT), end)
    more = True
    while more and at >= 0:
        key = at + 1
        value = _check_key(data, at, end)
        if _is_key(data, key, value, text_key):
            store_byte(text + first, SEPARATOR[0])
            at, size = copy_string(data, _after(data, value, end, QUOTE), end, text, first + 1)
        else:
            at = _check_value(data, value, end)
        if at >= 0 and _is_key(data, key, value, id_key):
            id_size = _copy_id(data, value, at, ids, first_id)
        at = _skip_space(data, at, end)
        more = _byte(data, at, end) == _COMMA
        if more:
            at = _skip_space(data, at + 1, end)
    at = _skip_space(data, _after(data, at, end, _CLOSE_OBJECT), end)
    if at < 0 or size < 0 or (at < end and load_byte(data + at) != _NEWLINE):
        return np.int64(-1), first, first_id
    return at + 1, size, id_size


@njit(nogil=True, cache=True)
def _copy_id(data: Any, value: Any, end: Any, ids: Any, size: Any) -> Any:
    """Copy the id whose value, checked before, is `data[value:end]`; the size with it."""
    byte = load_byte(data + value)
    if byte == QUOTE:
        _, size = copy_string(data, value + 1, end, ids, size)
    elif byte != ord("n"):
        for i in range(value, end):
            store_byte(ids + size, load_byte(data + i))
            size += 1
    return size


@njit(nogil=True, cache=True)
def _is_key(data: Any, key: Any, value: Any, wanted: Any) -> Any:
    """Whether `wanted`, uint8 (n,), is the key whose first character is at `key`, checked before if `value` is not -1.

    Such keys have no escapes, so one that holds a quote itself is equal to none of them.
    """
    if value < 0:
        return False
    for i in range(len(wanted)):
        if load_byte(data + key + i) != wanted[i] or wanted[i] == QUOTE:
            return False
    return load_byte(data + key + len(wanted)) == QUOTE


@njit(nogil=True, cache=True)
def _skip_space(data: Any, at: Any, end: Any) -> Any:
    """A newline ends the line, so it is no space here."""
    while 0 <= at < end and load_byte(data + at) in (32, 9, 13):
        at += 1
    return at


@njit(nogil=True, cache=True)
def _byte(data: Any, at: Any, end: Any) -> Any:
    return load_byte(data + at) if 0 <= at < end else np.int64(-1)


@njit(nogil=True, cache=True)
def _after(data: Any, at: Any, end: Any, byte: Any) -> Any:
    """The position after `byte`, which must stand at `at`; else -1."""
    return at + 1 if _byte(data, at, end) == byte else np.int64(-1)


@njit(nogil=True, cache=True)
def _check_key(data: Any, at: Any, end: Any) -> Any:
    """Where the value begins of the member whose key begins at `at`; -1 if it is no key, or has escapes."""
    key = _after(data, at, end, QUOTE)
    at = check_string(data, key, end)
    if at < 0 or plain_end(data, key, at) != at - 1:
        return np.int64(-1)
    return _skip_space(data, _after(data, _skip_space(data, at, end), end, _COLON), end)


@njit(nogil=True, cache=True)
def _check_value(data: Any, at: Any, end: Any) -> Any:
    """One past the value that begins at `at`, or -1."""
    depth, objects = 0, np.uint64(0)  # a bit for each level that is open: whether it is an object
    while at >= 0 and depth <= _DEEPEST:
        byte = _byte(data, at, end)
        if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            depth += 1
            objects = objects << np.uint64(1) | np.uint64(byte == _OPEN_OBJECT)
            at = _skip_space(data, at + 1, end)
            if _byte(data, at, end) != _closing(objects):
                at = _check_key(data, at, end) if byte == _OPEN_OBJECT else at
                continue
        elif byte == QUOTE:
            at = check_string(data, at + 1, end)
        else:
            at = _check_scalar(data, at, end, byte)
        at, depth, objects = _close(data, at, end, depth, objects)
        if depth == 0:
            return at
    return np.int64(-1)


@njit(nogil=True, cache=True)
def _close(data: Any, at: Any, end: Any, depth: Any, objects: Any) -> Any:
    """After a value: close the levels that end here, and go to the next value of the one that goes on."""
    while depth:
        at = _skip_space(data, at, end)
        if _byte(data, at, end) != _closing(objects):
            at = _skip_space(data, _after(data, at, end, _COMMA), end)
            return _check_key(data, at, end) if objects & np.uint64(1) else at, depth, objects
        at += 1
        depth -= 1
        objects >>= np.uint64(1)
    return at, depth, objects


@njit(nogil=True, cache=True)
def _closing(objects: Any) -> Any:
    return _CLOSE_OBJECT if objects & np.uint64(1) else _CLOSE_ARRAY


@njit(nogil=True, cache=True)
def _check_scalar(data: Any, at: Any, end: Any, byte: Any) -> Any:
    if byte == ord("t"):
        return _check_word(data, at, end, b"true")
    if byte == ord("f"):
        return _check_word(data, at, end, b"false")
    if byte == ord("n"):
        return _check_word(data, at, end, b"null")
    return _check_number(data, at, end)


@njit(nogil=True, cache=True)
def _check_word(data: Any, at: Any, end: Any, word: Any) -> Any:
    if at + len(word) > end:
        return np.int64(-1)
    for i in range(len(word)):
        if load_byte(data + at + i) != word[i]:
            return np.int64(-1)
    return at + len(word)


@njit(nogil=True, cache=True)
def _check_number(data: Any, at: Any, end: Any) -> Any:
    start = at
    if _byte(data, at, end) == ord("-"):
        at += 1
    leading_zero = _byte(data, at, end) == ord("0")
    digits, at = _skip_digits(data, at, end)
    right = digits == 1 or (digits > 1 and not leading_zero)
    if _byte(data, at, end) == ord("."):
        digits, at = _skip_digits(data, at + 1, end)
        right = right and digits > 0
    if _byte(data, at, end) in (ord("e"), ord("E")):
        sign = _byte(data, at + 1, end)
        digits, at = _skip_digits(data, at + 1 + (sign in (ord("+"), ord("-"))), end)
        right = right and 1 <= digits <= _MOST_EXPONENT_DIGITS + (sign == ord("-"))
    return at if right and at - start <= _LONGEST_NUMBER else np.int64(-1)


@njit(nogil=True, cache=True)
def _skip_digits(data: Any, at: Any, end: Any) -> Any:
    """(how many digits stand at `at`, the position after them)"""
    start = at
    while at < end and ord("0") <= load_byte(data + at) <= ord("9"):
        at += 1
    return at - start, at
