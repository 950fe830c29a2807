"""Hypothesis strategies: JSON objects written in every style that is allowed, with the text that they hold."""

from __future__ import annotations

import json

from hypothesis import strategies as st

OTHER_VALUES = [
    *(b"1.50", b"1e5", b"-0", b"123456789012345678901234567890", b"null", b"true", b"[]", b"{ }", b'""'),
    *(b'[1, {"text": "}"}, [[]]]', b'{"text" :{"a": "\\"}"}}', rb'"\\"', rb'"text\": \"no\""', '"üé中😀"'.encode()),
]
OTHER_KEYS = [b'"id"', b'""', b'"texts"', rb'"\"text\""', rb'"t\u00e9xt"', '"tüxt"'.encode(), rb'"\ud83d\ude00"']
TEXT_KEYS = [b'"text"', rb'"te\u0078t"', rb'"\u0074\u0065\u0078\u0074"']
SPACES = [b"", b"", b" ", b"\t ", b"  "]


def _ascii(text: str) -> bytes:
    return json.dumps(text).encode()


def _raw(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()


def _all_escaped(text: str) -> bytes:
    units = text.encode("utf-16-be")
    return b'"' + b"".join(b"\\u%04X" % int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2)) + b'"'


def _slashes_escaped(text: str) -> bytes:
    return _raw(text).replace(b"/", b"\\/")


@st.composite
def members(draw: st.DrawFn) -> bytes:
    key, value = draw(st.sampled_from(OTHER_KEYS)), draw(st.sampled_from(OTHER_VALUES))
    before, after = draw(st.sampled_from(SPACES)), draw(st.sampled_from(SPACES))
    return before + key + after + b":" + before + value + after


@st.composite
def text_members(draw: st.DrawFn, text: str) -> bytes:
    write = draw(st.sampled_from([_ascii, _raw, _all_escaped, _slashes_escaped]))
    before, after = draw(st.sampled_from(SPACES)), draw(st.sampled_from(SPACES))
    return before + draw(st.sampled_from(TEXT_KEYS)) + after + b":" + before + write(text) + after


@st.composite
def objects(draw: st.DrawFn, texts: st.SearchStrategy[str] = st.text(max_size=40)) -> tuple[bytes, str]:  # noqa: B008
    """(an object in one line, its text): other members before and after, sometimes an earlier duplicate of the key."""
    text = draw(texts)
    before = draw(st.lists(members(), max_size=3))
    if draw(st.booleans()):
        before.append(draw(text_members(draw(texts))))
    parts = [*before, draw(text_members(text)), *draw(st.lists(members(), max_size=3))]
    around = draw(st.sampled_from(SPACES))
    return around + b"{" + b",".join(parts) + b"}" + draw(st.sampled_from([*SPACES, b"\r"])), text


BROKEN_LINES = [
    *(b"", b" \t", b"\r", b"{", b'{"text": NaN}', b'{"text": "a",}', b"[]", b'"text"', b"1", b"null", b"{}"),
    *(b'{"id": 1}', b'{"text": null}', b'{"text": 1.5}', b'{"text": ["a"]}', b'{"text": {"text": "a"}}'),
    *(b'{"text": "\xff"}', b'{"text": "\xed\xa0\x80"}', b'{"id": "\xc3", "text": "a"}', b'{"text": "a\x00b"}'),
    *(rb'{"text": "\ud800"}', rb'{"text": "\udc00 "}', rb'{"id": "\ud83d", "text": "a"}', b"\xef\xbb\xbf{}"),
    *(b'{"text": "a"} x', b"{'text': 'a'}", b'{"text": "a\tb"}', rb'{"text": "\x"}', b'{"Text": "a"}', b'{"text": 01}'),
]


SIGNIFICANT = st.sampled_from(
    [*b'{}[]",:\\/0123456789.eE+-tfnudD8cC \t\r\x00\x1f\x7f', 0x80, 0xBF, 0xC2, 0xE0, 0xED, 0xF4, 0xFF]
)


@st.composite
def changed_lines(draw: st.DrawFn) -> bytes:
    """A line that was an object, or none, with up to three bytes changed, put in or taken out."""
    line = bytearray(draw(st.one_of(objects().map(lambda pair: pair[0]), st.sampled_from(BROKEN_LINES))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(line)))
        line[place : place + draw(st.integers(0, 2))] = bytes(draw(st.lists(SIGNIFICANT, max_size=2)))
    return bytes(line).replace(b"\n", b" ")


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file of documents and of lines that are none, with or without a byte order mark and a last newline."""
    line = st.one_of(objects().map(lambda pair: pair[0]), st.sampled_from(BROKEN_LINES))
    mark = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    return mark + b"\n".join(draw(st.lists(line, max_size=8))) + draw(st.sampled_from([b"", b"\n"]))


CHARACTERS = ["a", " ", '"', "\\", "/", "\n", "\0", "\x7f", "é", "中", "😀", "\U0010ffff", "\ud7ff", "\ue000"]


def written(characters: list[tuple[str, int]]) -> tuple[bytes, list[tuple[int, int]]]:
    """(a JSON string of these, each written in one of three ways; [(place in its UTF-8, place in the JSON)])."""
    line, places, size = b'"', [], 0
    for character, way in characters:
        places.append((size, len(line)))
        short = json.dumps(character, ensure_ascii=False)[1:-1]
        units = character.encode("utf-16-be")
        escaped = "".join(f"\\u{int.from_bytes(units[i : i + 2]):04x}" for i in range(0, len(units), 2))
        line += [short, escaped, escaped.upper().replace("\\U", "\\u")][way].encode()
        size += len(character.encode())
    return line + b'"', [*places, (size, len(line))]
