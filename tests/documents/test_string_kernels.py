from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.documents.json_members import find_values, is_utf8
from corpusmill.documents.string_kernels import INSIDE_A_CHARACTER, UNPROVEN, find_places, find_strings, read_edited
from tests.documents.json_lines import CHARACTERS, changed_lines, objects, written

STRINGS = st.lists(st.tuples(st.sampled_from(CHARACTERS), st.integers(0, 2)), max_size=60)


@given(
    strings=st.lists(STRINGS, min_size=1, max_size=9),
    around=st.sampled_from([b"", b"\\\\", b'"\\', b"\xe4", b"a" * 40]),
)
def test_find_places_of_strings_of_any_style_are_where_each_character_was_written(
    strings: list[list[tuple[str, int]]], around: bytes
) -> None:
    data, spans, places, size = around, [], [], 0
    for characters in strings:
        line, own = written(characters)
        spans.append((len(data), len(data) + len(line)))
        places += [(size + decoded, len(data) + place) for decoded, place in own]
        data, size = data + line + around, places[-1][0] + 1
    where = dict(places)
    expected = [where.get(place, INSIDE_A_CHARACTER) for place in range(size)]
    assert find_places(data, np.array(spans), np.arange(size)).tolist() == expected
    assert find_places(data, np.array(spans), np.array(list(where))).tolist() == list(where.values())


def strings_in(lines: list[bytes], key: str) -> list[tuple[list[int], tuple[int, int] | None]]:
    """Of each line, what find_strings and the JSON parser say of where its string is. Between lines is a bracket."""
    ends = np.cumsum([len(line) + 1 for line in lines]) - 1
    objects = np.column_stack([ends - [len(line) for line in lines], ends])
    data = b"]".join(lines)
    found = find_strings(data, objects, key).tolist()
    return list(zip(found, find_values(data, key, objects.tolist()), strict=True))


@given(
    texts=st.lists(STRINGS, min_size=1, max_size=6),
    before=st.sampled_from([b"{", b' { "id": 7, ', b'{"meta": {"kind": "a"}, ', '{"téxt" : [1], '.encode()]),
    behind=st.sampled_from([b"}", b" \r}", b', "x": "y"}', b', "list": [{"texts": "a"}, null]} ']),
    colon=st.sampled_from([b":", b" : ", b"\t:\r"]),
)
def test_find_strings_of_plain_lines_are_where_the_parser_finds_them(
    texts: list[Any], before: bytes, behind: bytes, colon: bytes
) -> None:
    lines = [before + b'"text"' + colon + written(text)[0] + behind for text in texts]
    for found, expected in strings_in(lines, "text"):
        assert tuple(found) == expected


@given(lines=st.lists(objects().map(lambda pair: pair[0]), min_size=1, max_size=6))
def test_find_strings_of_objects_of_any_style_are_unproven_or_where_the_parser_finds_them(lines: list[bytes]) -> None:
    for found, expected in strings_in(lines, "text"):
        assert tuple(found) in {(UNPROVEN, UNPROVEN), expected}


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "text": "b"}',
        b'{"meta": {"text": "a"}, "text": "b"}',
        b'{"text": "b", "meta": {"text": "a"}}',
        rb'{"te\u0078t": "a", "text": "b"}',
        rb'{"text": "a", "te\u0078t": "b"}',
        rb'{"meta": {"text": "a"}, "te\u0078t": "b"}',
        rb'{"note": "\"text\": \"x\"", "text": "a"}',
        rb'{"text": "a", "note": "\\"}',
        b'{"kind": "text", "text": "a"}',
        b'{"text": ["a"]}',
        b'{"texts": "a"}',
    ],
)
def test_find_strings_in_a_line_whose_bytes_alone_do_not_prove_it_is_unproven(line: bytes) -> None:
    assert strings_in([line], "text")[0][0] == [UNPROVEN, UNPROVEN]


def texts_of(lines: list[bytes], originals: list[bytes], key: str) -> list[bytes | None]:
    """What read_edited says of each line; None where nothing is proven. Other bytes are between the lines."""

    def joined(parts: list[bytes]) -> tuple[bytes, Any]:
        ends = np.cumsum([len(part) + 2 for part in parts])
        lengths = [len(part) for part in parts]
        return b"".join(part + b'"}' for part in parts), np.column_stack([ends - 2 - lengths, ends - 2])

    texts, spans = read_edited(*joined(lines), *joined(originals), key)
    return [None if start == UNPROVEN else texts[start:end].tobytes() for start, end in spans.tolist()]


def as_json_reads(line: bytes, key: str) -> bytes | None:
    try:
        record = json.loads(line)
        return str(record[key]).encode() if isinstance(record[key], str) else None
    except (ValueError, KeyError, TypeError):
        return None


def is_right(text: bytes | None, line: bytes, key: str) -> bool:
    """Whether a text is what JSON reads; bytes that are no UTF-8 equal no document's."""
    return text is None or text == as_json_reads(line, key) or not is_utf8(text)


def test_key_with_dots_is_unproven_even_where_a_member_has_that_name() -> None:
    line = b'{"x": {"meta.text": "inner"}, "meta": {"text": "abc"}}'
    assert texts_of([line], [line], "meta.text") == [None]
    assert find_strings(line, np.array([[0, len(line)]]), "meta.text").tolist() == [[UNPROVEN, UNPROVEN]]


def around_text(line: bytes, key: str) -> tuple[bytes, bytes]:
    """A plain line's bytes up to the text's opening quote, and from its closing quote on."""
    at = line.index(json.dumps(key, ensure_ascii=False).encode()) + len(key.encode()) + 2
    first = line.index(b'"', at) + 1
    stop = first
    while line[stop] != ord('"'):
        stop += 2 if line[stop] == ord("\\") else 1
    return line[:first], line[stop:]


@given(
    records=st.lists(st.tuples(STRINGS, STRINGS), min_size=1, max_size=6),
    before=st.sampled_from([b"{", b' { "id": 7, ', b'{"meta": {"kind": "a"}, ', '{"téxt" : [1], '.encode()]),
    behind=st.sampled_from([b"}", b" \r}", b', "x": "y"}', b', "list": [{"texts": "a"}, null]} ']),
    colon=st.sampled_from([b":", b" : ", b"\t:\r"]),
)
def test_read_edited_line_whose_text_alone_is_another_gives_what_json_reads(
    records: list[tuple[Any, Any]], before: bytes, behind: bytes, colon: bytes
) -> None:
    lines, originals = (
        [before + b'"text"' + colon + written(pair[which])[0] + behind for pair in records] for which in (0, 1)
    )
    assert texts_of(lines, originals, "text") == [as_json_reads(line, "text") for line in lines]


@given(
    pairs=st.lists(st.tuples(objects(), objects()), min_size=1, max_size=4),
    key=st.sampled_from(["text", "a\\b", ""]),
)
def test_read_edited_objects_of_any_style_give_nothing_or_what_json_reads(pairs: list[Any], key: str) -> None:
    lines, originals = [first[0] for first, _ in pairs], [second[0] for _, second in pairs]
    for edited in (lines, originals):
        for line, text in zip(edited, texts_of(edited, originals, key), strict=True):
            assert is_right(text, line, key)


@given(line=changed_lines(), original=STRINGS)
@example(line=b'{"id": "a", "text": "b\tc", "more": [1, {"x": null}]}', original=[("b", 0)])
def test_read_edited_damaged_line_gives_nothing_or_what_json_reads(line: bytes, original: Any) -> None:
    sound = b'{"id": "a", "text": ' + written(original)[0] + b', "more": [1, {"x": null}]}'
    (text,) = texts_of([line], [sound], "text")
    assert is_right(text, line, "text")


@given(
    texts=st.tuples(STRINGS, STRINGS),
    edit=st.tuples(st.integers(0, 200), st.integers(0, 6), st.binary(max_size=3)),
)
def test_read_edited_line_with_any_bytes_replaced_gives_nothing_or_what_json_reads(
    texts: tuple[Any, Any], edit: tuple[int, int, bytes]
) -> None:
    """The original is sound; wherever the edit of its line goes wrong, no text is proven that is not there."""
    original = b'{"id": "a", "text": ' + written(texts[0])[0] + b', "more": [1, {"x": null}], "last": "z"}'
    at, removed, added = edit
    line = original[:at] + added + original[at + removed :]
    (text,) = texts_of([line], [original], "text")
    assert is_right(text, line, "text")
    if text is not None:
        assert around_text(line, "text") == around_text(original, "text")


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "text": "b"}',
        b'{"meta": {"text": "a"}, "text": "b"}',
        b'{"text": "b", "meta": {"text": "a"}}',
        rb'{"te\u0078t": "a", "text": "b"}',
        rb'{"text": "a", "note": "\"text\": "}',
        rb'{"note": "\\", "text": "a"}',
        b'{"kind": "text", "text": "a"}',
        b'{"text": 1}',
        b'{"text": null, "other": "a"}',
        b'{"texts": "a"}',
        b'{"text": "a\x1f"}',
        rb'{"text": "\ud800"}',
        rb'{"text": "\udc00\ud800"}',
        rb'{"text": "\x41"}',
        rb'{"text": "\u00g0"}',
        rb'{"text": "\u12"}',
        rb'{"text": "a\"}',
        b'{"text": "a',
        b'{"text":',
        b'{"text"',
        b"",
    ],
)
def test_read_edited_line_that_bytes_alone_do_not_prove_gives_nothing(line: bytes) -> None:
    assert texts_of([line], [line], "text") == [None]


@pytest.mark.parametrize(
    ("line", "original"),
    [
        (b'{"text": "ab", "n": 1}', b'{"text": "ab", "n": 2}'),
        (b'{"text": "ab", "n": 1}', b'{"text" : "ab", "n": 1}'),
        (b'{"text": "abf", "c": 1}', b'{"text": "abc", "b": "def", "c": 1}'),
        (b'{"text": "abc"b": "def"}', b'{"text": "abc", "b": "def"}'),
        (b'{"text": "a", "b": 1}', b'{"text": 12345, "b": 1}'),
        (b'{"text": "ab"', b'{"text": "'),
        (b'{"text": "abf"}', b'{"text": "abc", "b": "def"}'),
        (b'{"m": {"text": "a"}', b'{"m": {"text": "a"}, "text": "b"}'),
        (b'{"m": [{"text": "a"}', b'{"m": [{"text": "a"}], "te\\u0078t": "b"}'),
        (b'{"text": "ab"}', b'{"text": "'),
    ],
)
def test_read_edited_line_with_other_bytes_outside_of_its_text_gives_nothing(line: bytes, original: bytes) -> None:
    assert texts_of([line], [original], "text") == [None]


@pytest.mark.parametrize(
    ("key", "line", "original"),
    [
        (",", b'{"a":"b",":":1,",":"t"}', b'{"a":"b",":":1,",":"t"}'),
        (":", b'{"a":":","}', b'{"a":":","\\u003a":"v"}'),
        ("", b'{"b":{"":"a"}', b'{"b":{"":""},"":"a"}'),
    ],
)
def test_read_edited_key_in_quotes_that_are_none_of_a_key_gives_nothing(key: str, line: bytes, original: bytes) -> None:
    assert texts_of([line], [original], key) == [None]


@given(
    line=objects(), at=st.integers(0, 80), removed=st.integers(1, 40), key=st.sampled_from(["text", ",", ":", "", "}"])
)
def test_read_edited_line_of_any_style_that_was_cut_gives_nothing_or_what_json_reads(
    line: tuple[bytes, str], at: int, removed: int, key: str
) -> None:
    original = line[0]
    if as_json_reads(original, key) is not None:
        (text,) = texts_of([original[:at] + original[at + removed :]], [original], key)
        assert is_right(text, original[:at] + original[at + removed :], key)


@pytest.mark.parametrize("offsets", [[-1], [-(10**12), 0], [2, 1]])
def test_find_places_offsets_that_descend_or_are_negative_are_an_error(offsets: list[int]) -> None:
    with pytest.raises(IndexError, match="descend, or are negative"):
        find_places(b'"abc"', np.array([(0, 5)]), np.array(offsets))


def test_read_edited_other_number_of_originals_is_an_error() -> None:
    with pytest.raises(IndexError, match="2 lines, 1 originals"):
        read_edited(b"abc", np.array([(0, 3)] * 2), b"abc", np.array([(0, 3)]), "text")


@pytest.mark.parametrize("span", [(0, 4), (2, 1), (-1, 2)])
def test_strings_outside_of_their_bytes_are_an_error(span: tuple[int, int]) -> None:
    spans = np.array([span])
    with pytest.raises(IndexError, match="outside of 3 bytes"):
        find_places(b"abc", spans, np.arange(1))
    with pytest.raises(IndexError, match="outside of 3 bytes"):
        find_strings(b"abc", spans, "text")
    with pytest.raises(IndexError, match="outside of 3 bytes"):
        read_edited(b"abc", spans, b"abc", np.array([(0, 3)]), "text")
    with pytest.raises(IndexError, match="outside of 3 bytes"):
        read_edited(b"abc", np.array([(0, 3)]), b"abc", spans, "text")
