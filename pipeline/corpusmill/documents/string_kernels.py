"""Strings of raw JSON in compiled code: where a member's string is, where a place of its value is in the JSON, and the
texts of edited lines.

A string is `data[start:end]`, quotes included. No byte outside of the given spans is read.

Price: 0.1 (places) to 0.7 ns a byte of plain text, up to 6 ns a byte of escapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.documents.byte_places import STEP, equal_bits, lower_bits, lowest_bit
from corpusmill.documents.json_strings import BACKSLASH, QUOTE
from corpusmill.kernels.compiled import equal_bytes, inlined, kernel, load_byte
from corpusmill.kernels.slices import copy_bytes

INSIDE_A_CHARACTER = -1
UNPROVEN = -1

_ESCAPE_BYTES = 6  # \u00e9; a surrogate pair is two such escapes
_U, _COLON, _SPACE = ord("u"), ord(":"), ord(" ")
_NO_HEX = -1
_SIMPLE = np.zeros(256, np.int64)  # what a backslash and each byte stand for; 0 for none
_SIMPLE[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_HEX = np.full(256, _NO_HEX, np.int64)
_HEX[list(b"0123456789")] = range(10)
_HEX[list(b"abcdef")] = _HEX[list(b"ABCDEF")] = range(10, 16)

Spans = NDArray[np.int64]


def find_strings(data: bytes, lines: Spans, key: str) -> Spans:
    """int64 (n, 2), [start, end) in `data`: the string that each line has as `key`, at its top level.

    `lines`  int64 (n, 2): [start, end) of objects that are valid JSON and have a string there. IndexError if one leaves
             `data`

    A span is (UNPROVEN, UNPROVEN) unless bytes alone show that any reader finds this string: outside of it is no
    backslash, and the key in quotes is there once, after an even number of quotes, with a colon behind it. Of a key
    with dots, which may lead into objects, nothing is proven.
    """
    name, text = np.frombuffer(orjson.dumps(key), np.uint8), _inside(data, lines)
    spans = np.full((len(lines), 2), UNPROVEN, np.int64)
    if "." not in key:
        _find_strings(text.ctypes.data, name.ctypes.data, len(name), lines, spans)
    return spans


def find_places(data: bytes, strings: Spans, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 (m,), positions in `data`: where in their JSON the bytes at some offsets of strings' UTF-8 are.

    `strings`  int64 (n, 2): [start, end) of each, with valid escapes; IndexError if one leaves `data`
    `offsets`  int64 (m,): ascending, in the UTF-8 of all strings back to back, with a closing quote behind each;
               IndexError for a negative or a smaller one

    The result is INSIDE_A_CHARACTER where no character begins.
    """
    if len(offsets) and (offsets[0] < 0 or bool((offsets[1:] < offsets[:-1]).any())):
        raise IndexError("offsets descend, or are negative")
    text = _inside(data, strings)
    places = np.full(len(offsets), INSIDE_A_CHARACTER, np.int64)
    _places(text.ctypes.data, strings, offsets, _HEX, places)
    return places


def read_edited(
    data: bytes, lines: Spans, original: bytes, original_lines: Spans, key: str
) -> tuple[NDArray[np.uint8], Spans]:
    """The texts of lines whose text alone was edited: (bytes back to back, spans int64 (n, 2) in them).

    `lines`, `original_lines`  int64 (n, 2): [start, end) of objects, in `data` and before the edit in `original`,
                               where they are valid JSON with a string as `key`. IndexError if one leaves its bytes

    A span is (UNPROVEN, UNPROVEN) unless bytes alone show that any reader reads this text: as for find_strings, and
    around the text's string are the original's bytes, between which it had one string, too. So the original, which is
    valid, has no other member of that name at any depth. Whether a text is UTF-8 is not checked.
    """
    if len(lines) != len(original_lines):
        raise IndexError(f"{len(lines):,} lines, {len(original_lines):,} originals")
    after, before = _inside(data, lines), _inside(original, original_lines)
    name = np.frombuffer(orjson.dumps(key), np.uint8)
    texts = np.empty(int((lines[:, 1] - lines[:, 0]).sum()), np.uint8)  # decoding makes nothing longer
    spans = np.full((len(lines), 2), UNPROVEN, np.int64)
    addresses = (after.ctypes.data, before.ctypes.data, name.ctypes.data)
    if "." not in key:
        _read_edited(*addresses, len(name), lines, original_lines, _SIMPLE, _HEX, texts.ctypes.data, texts, spans)
    return texts, spans


def _inside(data: bytes, spans: Spans) -> NDArray[np.uint8]:
    if len(spans) and not (spans.min() >= 0 and spans.max() <= len(data) and bool((spans[:, 0] <= spans[:, 1]).all())):
        raise IndexError(f"a span is outside of {len(data):,} bytes")
    return np.frombuffer(data, np.uint8)


@inlined
def _find(address: Any, at: Any, end: Any, byte: Any) -> Any:
    """The first place of a byte from `at` on; `end` if there is none before."""
    while at + STEP <= end:
        bits = equal_bits(address + at, byte)
        if bits:
            return at + lowest_bit(bits)
        at += STEP
    while at < end and load_byte(address + at) != byte:
        at += 1
    return at


@inlined
def _marks(address: Any) -> Any:
    """uint64 whose bit i tells whether byte i of the 32 at an address is a mark: what ends a run of plain bytes."""
    return equal_bits(address, QUOTE) | equal_bits(address, BACKSLASH) | lower_bits(address, _SPACE)


@inlined
def _is_mark(byte: Any) -> Any:
    return (byte == QUOTE) | (byte == BACKSLASH) | (byte < _SPACE)


@inlined
def _find_name(address: Any, at: Any, end: Any, name: Any, name_bytes: Any) -> Any:
    """The first place of a name, which begins with a quote, from `at` on; `end` if there is none before."""
    while at < end:
        at = _find(address, at, end, QUOTE)
        if at + name_bytes <= end and equal_bytes(address + at, name, name_bytes):
            return at
        at += 1
    return end


@inlined
def _quotes(address: Any, start: Any, end: Any) -> Any:
    count, at = 0, _find(address, start, end, QUOTE)
    while at < end:
        count += 1
        at = _find(address, at + 1, end, QUOTE)
    return count


@inlined
def _skip_blank(address: Any, at: Any, end: Any) -> Any:
    """Skips all control characters, too: of these, only blank ones are in the valid original."""
    while at < end and load_byte(address + at) <= _SPACE:
        at += 1
    return at


@inlined
def _unit(address: Any, at: Any, end: Any, hex_digits: Any) -> Any:
    r"""The number that the \u escape at `at` states in hex; -1 if there is no such escape before `end`."""
    if at + _ESCAPE_BYTES > end or load_byte(address + at) != BACKSLASH or load_byte(address + at + 1) != _U:
        return -1
    number = 0
    for k in range(2, _ESCAPE_BYTES):
        digit = hex_digits[load_byte(address + at + k)]
        if digit == _NO_HEX:
            return -1
        number = number << 4 | digit
    return number


@inlined
def _character(address: Any, at: Any, end: Any, hex_digits: Any) -> Any:
    r"""(number, bytes of JSON) of the \u escape or pair of escapes at `at`; number -1 for what stands for nothing."""
    number = _unit(address, at, end, hex_digits)
    if number < 0xD800 or number > 0xDFFF:
        return number, _ESCAPE_BYTES
    low = _unit(address, at + _ESCAPE_BYTES, end, hex_digits)
    if number >= 0xDC00 or low < 0xDC00 or low > 0xDFFF:
        return -1, _ESCAPE_BYTES
    return 0x10000 + ((number - 0xD800) << 10) + (low - 0xDC00), 2 * _ESCAPE_BYTES


@inlined
def _utf8_bytes(number: Any) -> Any:
    return 1 + (number >= 0x80) + (number >= 0x800) + (number >= 0x10000)


@kernel
def _places(address: Any, strings: Any, offsets: Any, hex_digits: Any, places: Any) -> None:
    wanted, offset = 0, 0  # the next offset; how much of the UTF-8 is before `at`
    for i in range(len(strings)):
        at, end = strings[i, 0] + 1, strings[i, 1]
        while at < end:
            stop = _find(address, at, end, BACKSLASH)
            while wanted < len(offsets) and offsets[wanted] < offset + stop - at:
                place = at + offsets[wanted] - offset
                if load_byte(address + place) & 0xC0 != 0x80:
                    places[wanted] = place
                wanted += 1
            offset += stop - at
            at = stop
            if at < end:
                number, escape_bytes = 0, 2
                if at + 1 < end and load_byte(address + at + 1) == _U:
                    number, escape_bytes = _character(address, at, end, hex_digits)
                size = _utf8_bytes(number)
                while wanted < len(offsets) and offsets[wanted] < offset + size:
                    if offsets[wanted] == offset:
                        places[wanted] = at
                    wanted += 1
                offset += size
                at += escape_bytes


@inlined
def _store(out: Any, to: Any, number: Any) -> Any:
    """Write a character as UTF-8; returns the place behind it."""
    if number < 0x80:
        out[to] = number
        return to + 1
    size = _utf8_bytes(number)
    lead = 0xF00 >> size & 0xFF  # 110..., 1110..., 11110...
    out[to] = lead | number >> 6 * (size - 1)
    for k in range(1, size):
        out[to + k] = 0x80 | number >> 6 * (size - 1 - k) & 0x3F
    return to + size


@inlined
def _decode(
    address: Any, at: Any, end: Any, simple: Any, hex_digits: Any, out_address: Any, out: Any, to: Any
) -> Any:  # fmt: skip
    """(place of the closing quote of a string whose first byte is at `at`, or -1 if it is none; the end in `out`)."""
    while True:
        marked = False
        while not marked and at + STEP <= end:
            copy_bytes(out_address + to, address + at, STEP)  # of these, what is behind a mark is overwritten later
            bits = _marks(address + at)
            marked = bits != 0
            run = lowest_bit(bits) if marked else STEP
            at += run
            to += run
        while at < end and not _is_mark(load_byte(address + at)):
            out[to] = load_byte(address + at)
            at += 1
            to += 1
        if at < end and load_byte(address + at) == QUOTE:
            return at, to
        if at + 2 > end or load_byte(address + at) != BACKSLASH:
            return -1, to
        escaped = load_byte(address + at + 1)
        number, escape_bytes = simple[escaped], 2
        if escaped == _U:
            number, escape_bytes = _character(address, at, end, hex_digits)
            if number < 0:
                return -1, to
        elif number == 0:
            return -1, to
        to = _store(out, to, number)
        at += escape_bytes


@inlined
def _closing_quote(address: Any, start: Any, end: Any) -> Any:
    """The place of the closing quote of a string whose first byte is at `start`; `end` if there is none."""
    at = _find(address, start, end, QUOTE)
    while at < end:
        before = at - 1
        while before >= start and load_byte(address + before) == BACKSLASH:
            before -= 1
        if (at - before) % 2:
            return at
        at = _find(address, at + 1, end, QUOTE)
    return end


@inlined
def _string_begin(address: Any, start: Any, end: Any, name: Any, name_bytes: Any) -> Any:
    """The place behind the opening quote of a name's string; -1 unless the bytes before it prove it."""
    place = _find_name(address, start, end, name, name_bytes)
    at = _skip_blank(address, place + name_bytes, end)
    if at >= end or load_byte(address + at) != _COLON or _quotes(address, start, place) % 2:
        return -1
    at = _skip_blank(address, at + 1, end)
    if at >= end or load_byte(address + at) != QUOTE or _find(address, start, at, BACKSLASH) < at:
        return -1
    return at + 1


@inlined
def _is_last(address: Any, closing: Any, end: Any, name: Any, name_bytes: Any) -> Any:
    """Whether neither the name nor a backslash is behind a closing quote."""
    again = _find_name(address, closing + 1, end, name, name_bytes)
    return (again >= end) & (_find(address, closing, end, BACKSLASH) >= end)


@kernel
def _find_strings(address: Any, name: Any, name_bytes: Any, lines: Any, spans: Any) -> None:
    for i in range(len(lines)):
        end = lines[i, 1]
        first = _string_begin(address, lines[i, 0], end, name, name_bytes)
        if first >= 0:
            closing = _closing_quote(address, first, end)
            if closing < end and _is_last(address, closing, end, name, name_bytes):
                spans[i, 0], spans[i, 1] = first - 1, closing + 1


@kernel
def _read_edited(
    address: Any, original: Any, name: Any, name_bytes: Any, lines: Any, original_lines: Any, simple: Any,
    hex_digits: Any, out_address: Any, out: Any, spans: Any,
) -> None:  # fmt: skip
    to = 0
    for i in range(len(lines)):
        start, end, first, last = lines[i, 0], lines[i, 1], original_lines[i, 0], original_lines[i, 1]
        begin = _string_begin(address, start, end, name, name_bytes)
        if begin < 0:
            continue
        before_bytes = begin - start
        closing, stop = _decode(address, begin, end, simple, hex_digits, out_address, out, to)
        behind_bytes = end - closing
        closed = last - behind_bytes  # in the original
        if closing < 0 or closed < first + before_bytes:
            continue
        if (
            _is_last(address, closing, end, name, name_bytes)
            and equal_bytes(address + start, original + first, before_bytes)
            and equal_bytes(address + closing, original + closed, behind_bytes)
            and _closing_quote(original, first + before_bytes, last) == closed
        ):
            spans[i, 0], spans[i, 1] = to, stop
            to = stop
