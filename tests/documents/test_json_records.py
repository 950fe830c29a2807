"""The kernel that reads JSON lines: what it vouches for is what orjson reads, ordinary lines are vouched for, and
nothing outside the lines is read.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.documents.json_records import scan_records
from pipeline.words import WORD_BYTES, address_of
from tests.documents.json_lines import BROKEN_LINES, OTHER_VALUES, objects

SIGNIFICANT = st.sampled_from(
    [*b'{}[]",:\\/0123456789.eE+-tfnu \t\r\x00\x1f\x7f', 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xF4, 0xFF]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e90, 1e90, allow_subnormal=True) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def scan(data: bytes | np.ndarray, text_key: str = "text", id_key: str = "id") -> tuple[int, list[tuple[bytes, bytes]]]:
    """(position where the kernel stopped, [(text, id)] of the lines before it)."""
    lines = bytes(data).count(b"\n") + 1
    text, ids = (np.zeros(len(data) + WORD_BYTES, np.uint8) for _ in range(2))
    bounds, id_bounds = (np.zeros(lines + 1, np.int64) for _ in range(2))
    numbers = np.zeros(lines, np.uint64)
    keys = [np.frombuffer(key.encode(), np.uint8) for key in (text_key, id_key)]
    addresses = [address_of(one) for one in (data, text, ids)]
    at, line, documents = scan_records(*addresses, 0, len(data), 0, *keys, 0, bounds, id_bounds, numbers)  # type: ignore[call-arg]
    assert line == documents
    assert numbers[:documents].tolist() == list(range(documents))
    found = [
        (text[bounds[i] : bounds[i + 1]].tobytes(), ids[id_bounds[i] : id_bounds[i + 1]].tobytes())
        for i in range(documents)
    ]
    assert all(one.startswith(b"\xff") for one, _ in found)
    return at, [(one[1:], identity) for one, identity in found]


@st.composite
def nearly_json(draw: st.DrawFn) -> bytes:
    """A line that was an object, or none, with up to three bytes changed, put in or taken out."""
    line = bytearray(draw(st.one_of(objects().map(lambda pair: pair[0]), st.sampled_from(BROKEN_LINES))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(line)))
        line[place : place + draw(st.integers(0, 2))] = bytes(draw(st.lists(SIGNIFICANT, max_size=2)))
    return bytes(line).replace(b"\n", b" ")


@given(line=nearly_json())
def test_scan_records_whatever_it_vouches_for_is_what_orjson_reads(line: bytes) -> None:
    _, found = scan(line)
    if found:
        assert found[0][0] == orjson.loads(line)["text"].encode()


@given(text=st.text(max_size=60), identity=VALUES, other=VALUES, raw=st.booleans(), spaced=st.booleans())
def test_scan_records_ordinary_lines_are_vouched_for(
    text: str, identity: Any, other: Any, raw: bool, spaced: bool
) -> None:
    record = {"other": other, "text": text, "more": [other], "id": identity}
    line = json.dumps(record, ensure_ascii=not raw, separators=None if spaced else (",", ":")).encode()
    written = json.dumps(identity, ensure_ascii=not raw, separators=None if spaced else (",", ":"))
    wanted = identity if isinstance(identity, str) else "" if identity is None else written
    assert scan(line + b"\n" + line) == (2 * len(line) + 1, [(text.encode(), wanted.encode())] * 2)


@pytest.mark.parametrize("value", [one for one in OTHER_VALUES if b"\\" not in one or one.startswith(b'"')])
def test_scan_records_every_kind_of_value_is_vouched_for(value: bytes) -> None:
    line = b'{"a":' + value + b', "text" : "x" ,"b":[' + value + b"," + value + b"]}\r"
    assert scan(line) == (len(line), [(b"x", b"")])


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "n": 1e999}',
        b'{"text": "a", "n": ' + b"9" * 201 + b"}",
        b'{"text": "a", "n": ' + b"[" * 62 + b"]" * 62 + b"}",
        rb'{"te\u0078t": "a"}',
        b'{"text": "a", "n": -}',
        b'{"text": "a", "n": 1.}',
        b'{"text": "a", "n": .5}',
        b'{"text": "a", "n": 1e}',
        b'{"text": "a", "n": 007}',
        b'{"text": "a", "n": truE}',
        b'{"text": "a", "n": nul',
        b'{"text": "a" "n": 1}',
        b'{"text": "a", "n": [1 2]}',
        b'{"text": "a", "n": [1, ]}',
        b'{"text": "a", "n": {"a" 1}}',
        b'{"text": "a", "n": {"a": 1, }}',
        b'{"text": "a", "n": [1}}',
        b'{"text": "\xc0\xaf"}',
        b'{"text": "\xe0\x80\xaf"}',
        b'{"text": "\xf0\x80\x80\xaf"}',
        b'{"text": "\xed\xbf\xbf"}',
        b'{"text": "\xf4\x90\x80\x80"}',
        b'{"text": "\xf8\x88\x80\x80\x80"}',
        b'{"text": "\xe4\xb8"}',
        b'{"text": "aaaaaaa\x1f"}',
    ],
)
def test_scan_records_what_it_does_not_vouch_for_stops_it_there(line: bytes) -> None:
    before = b'{"text": "before"}\n'
    assert scan(before + line + b"\n" + before) == (len(before), [(b"before", b"")])


@pytest.mark.parametrize("key", ["", "a.b", "tüxt", '"', "text: ", "a\\b"])
def test_scan_records_keys_are_taken_literally(key: str) -> None:
    line = json.dumps({"text": "no", key: "yes"}, ensure_ascii=False).encode()
    at, found = scan(line, text_key=key)
    assert (at, found) == ((len(line), [(b"yes", b"")]) if key not in ('"', "a\\b") else (0, []))


def test_scan_records_one_key_for_text_and_id_gives_both() -> None:
    assert scan(b'{"text": "a\\n"}', id_key="text")[1] == [(b"a\n", b"a\n")]


def test_scan_records_string_that_is_cut_anywhere_reads_nothing_behind(page: np.ndarray) -> None:
    """Of any length, so that it also ends where a word does."""
    for key, size in [(key, size) for key in (b"text", b"other") for size in range(40)]:
        data = b'{"%s": "' % key + b"a" * size
        lines = page[len(page) - len(data) :]
        lines[:] = np.frombuffer(data, np.uint8)
        assert scan(lines) == (0, [])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # a page keeps nothing that matters
@given(line=nearly_json(), cut=st.integers(0, 60))
def test_scan_records_any_beginning_of_a_line_at_the_end_of_its_page_reads_nothing_behind(
    page: np.ndarray, line: bytes, cut: int
) -> None:
    data = (line[:cut] if cut < len(line) else line)[: len(page)]
    if data:
        lines = page[len(page) - len(data) :]
        lines[:] = np.frombuffer(data, np.uint8)
        assert scan(lines) == scan(data)
