"""Finds a key's value in a raw JSON object, and checks whether long lines are JSON, without building objects.

An editor of JSON lines that parses and dumps makes unintended changes: 1.50 becomes 1.5, 1e5 becomes
100000.0, duplicate keys and the space between tokens are lost. msgspec checks a line's grammar, skips other members and
returns a value as a view into the line, so the rest of the line can be copied. Keys are compared decoded
(``"te\\u0078t"`` is ``text``); of duplicate keys the last one counts, as in orjson.

A parsed line takes up to forty times its bytes (``[{},{},{}]``). So orjson, which defines validity, parses only short
lines; `is_json` tells whether orjson would accept a line of any length, by msgspec and by checks of what msgspec skips.
"""

from __future__ import annotations

import codecs
import math
import re
import sys
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import DecodeError, Raw, defstruct
from msgspec.json import Decoder

from corpusmill.documents.field_names import splits
from corpusmill.documents.json_strings import BACKSLASH, PIECE_BYTES, QUOTE, Line

OBJECT = ord("{")
JSON_WHITESPACE = b" \t\r\n"
MOST_LEVELS = 1024  # as orjson
LONGEST_PARSED_BYTES = 128 << 10  # of a line that orjson may parse whole, in up to 5 MB

_RAISING_THE_LIMIT = threading.Lock()
_NUMBER = re.compile(rb"[0-9][-+.0-9eE]{4,}")  # the shortest beyond float64 is 1e309
_STEPS = bytes(1 if byte in b"[{" else 255 if byte in b"]}" else 0 for byte in range(256))  # 255: -1 as int8


def find_value(data: Line, key: str, start: int = 0, end: int | None = None) -> tuple[int, int] | None:
    """(start, end) in `data` of the value of `key` of the object `data[start:end]` (space around it is allowed), at its
    top level or by dots in objects below (field_names.py); None if the object lacks the key. DecodeError if it is not
    an object.
    """
    return find_values(data, key, [(start, len(data) if end is None else end)])[0]


def find_values(data: Line, key: str, objects: Iterable[tuple[int, int]]) -> list[tuple[int, int] | None]:
    """The same of several objects `data[start:end]`."""
    begin = -1
    places: list[tuple[int, int] | None] = []
    for value in values_of(data, key, objects):
        if value is None:
            places.append(None)
        else:
            begin = _address(data) if begin < 0 else begin
            place = _address(value) - begin
            places.append((place, place + len(value)))
    return places


def values_of(data: Line, key: str, objects: Iterable[tuple[int, int]]) -> list[memoryview | None]:
    """The JSON, as a view, of `key` of each object `data[start:end]`; None where an object lacks it.
    DecodeError if one is not an object.
    """
    view, decoder = memoryview(data), _value_decoder(key)
    if "." in key:
        return [_value_in(view[start:end], key) for start, end in objects]
    values = [_decode(decoder, view[start:end]) for start, end in objects]
    return [None if value is None else memoryview(value) for value in values]


def _value_in(json: memoryview, name: str) -> memoryview | None:
    """The JSON of a field of an object, by a name with dots (field_names.py)."""
    if (value := _decode(_value_decoder(name), json)) is not None:
        return memoryview(value)
    for key, rest in splits(name):
        inner = _decode(_value_decoder(key), json)
        is_object = inner is not None and memoryview(inner)[0] == OBJECT
        if is_object and (value := _value_in(memoryview(inner), rest)) is not None:
            return value
    return None


def _address(data: Any) -> int:
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address


def insert_place(data: bytes, start: int, end: int) -> tuple[int, bytes]:
    """(where a last member can be put into the object `data[start:end]`, the separator before it)."""
    at = data.rindex(b"}", start, end)
    while data[at - 1] in JSON_WHITESPACE:
        at -= 1
    return at, b"" if data[at - 1] == ord("{") else b", "  # no member ends with a brace that opens


def is_json(line: Line) -> bool:
    """Whether orjson would parse the line."""
    try:
        _decode(_any_value, line)
    except DecodeError:
        return False
    return is_utf8(line) and is_within_limits(line)


def is_utf8(*stretches: Line) -> bool:
    """Whether each stretch is valid UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for stretch in stretches:
            for at in range(0, len(stretch), PIECE_BYTES):
                decoder.decode(stretch[at : at + PIECE_BYTES])
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_within_limits(*stretches: Line) -> bool:
    """Whether JSON whose grammar has been checked has no more levels than MOST_LEVELS and no number beyond float64.

    `stretches`: the JSON, possibly without some of its strings.
    """
    structure = bytearray()
    for stretch in stretches:
        _append_without_strings(structure, stretch)
    if any(math.isinf(float(number[0])) for number in _NUMBER.finditer(structure)):
        return False
    levels = 0
    for at in range(0, len(structure), PIECE_BYTES):
        steps = np.frombuffer(structure[at : at + PIECE_BYTES].translate(_STEPS), np.int8)
        after = levels + np.cumsum(steps, dtype=np.int64)
        if after.max() > MOST_LEVELS:
            return False
        levels = int(after[-1])
    return True


def _append_without_strings(structure: bytearray, json: Line) -> None:
    at, inside = 0, np.False_
    while at < len(json):
        piece = bytes(json[at : at + PIECE_BYTES]).replace(rb"\\", b"//")
        if piece[-1] == BACKSLASH:  # the character it escapes is in the next piece
            piece = piece[:-1]
        view = np.frombuffer(piece.replace(rb"\"", b"//"), np.uint8)
        strings = np.logical_xor.accumulate(view == QUOTE) ^ inside
        structure += view[~strings].data
        at, inside = at + len(piece), strings[-1]


@lru_cache
def _value_decoder(key: str) -> Callable[[Any], Any]:
    try:
        fields: Any = defstruct("Fields", [("value", Raw, None)], rename={"value": key}, gc=False)
    except ValueError:  # msgspec refuses field names with quotes, backslashes or control characters
        members = Decoder(dict[str, Raw]).decode
        return lambda line: members(line).get(key)
    read = Decoder(fields).decode
    return lambda line: read(line).value


_any_value = Decoder(Raw).decode


def _decode(decoder: Callable[[Any], Any], line: Any) -> Any:
    """Decode; where Python's recursion limit is too low, which depends on the caller, raise it; then DecodeError."""
    try:
        return decoder(line)
    except RecursionError:
        pass
    with _RAISING_THE_LIMIT:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(usual + MOST_LEVELS)
        try:
            return decoder(line)
        except RecursionError as error:
            raise DecodeError(f"more than {MOST_LEVELS:,} levels") from error
        finally:
            sys.setrecursionlimit(usual)
