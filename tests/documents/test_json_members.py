from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.documents.json_members import ABSENT, MALFORMED, NOT_A_STRING, Members, find_members
from tests.documents.json_lines import objects
from tests.oracles.documents import member_spans


def find(lines: list[bytes], key: str) -> tuple[bytes, Members]:
    """Scans all lines in one buffer, with bytes in between that would be read by a scan that leaves its line."""
    gap = b'"}]'
    sizes = np.array([len(line) + len(gap) for line in lines], np.int64)
    starts = np.cumsum(sizes) - sizes
    data = b"".join(line + gap for line in lines)
    return data, find_members(np.frombuffer(data, np.uint8), starts, starts + sizes - len(gap), key)


@settings(deadline=None)  # the first example compiles the kernel
@given(
    pairs=st.lists(objects(), min_size=1, max_size=5),
    key=st.sampled_from(["text", "", "id", "téxt", "😀", '"text"', "no"]),
)
def test_find_members_objects_of_any_style_equal_the_oracle(pairs: list[tuple[bytes, str]], key: str) -> None:
    data, found = find([line for line, _ in pairs], key)
    start = 0
    for i, (line, _) in enumerate(pairs):
        spans = member_spans(line, key)
        if spans:
            assert (found.value_start[i] - start, found.value_end[i] - start) == spans[-1]
            value = json.loads(data[found.value_start[i] : found.value_end[i]])
            expected = len(value.encode()) if isinstance(value, str) else NOT_A_STRING
            assert found.text_bytes[i] == expected
        else:
            assert found.value_start[i] == ABSENT
        record = json.loads(line, object_pairs_hook=list)
        assert found.members[i] == len(record)
        extended = data[start : found.insert_at[i]] + b', "new": 1' + data[found.insert_at[i] : start + len(line)]
        assert json.loads(extended, object_pairs_hook=list) == [*record, ("new", 1)]
        start += len(line) + 3


@pytest.mark.parametrize("line", [b"{}", b" { } \r", b"\t{\n}"])
def test_find_members_empty_object_has_a_place_for_a_first_member(line: bytes) -> None:
    data, found = find([line], "text")
    assert (found.value_start[0], found.members[0]) == (ABSENT, 0)
    assert json.loads(data[: found.insert_at[0]] + b'"a": 1' + line[found.insert_at[0] :]) == {"a": 1}


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b" ",
            b"[]",
            b'"text"',
            b"1",
            b"{",
            b"}",
            b'{"',
            b'{"text',
            b'{"text"',
            b'{"text":',
            b'{"text": ',
            b"{,}",
        ),
        *(
            b'{"text": "',
            b'{"text": "a',
            b'{"text": "a"',
            b'{"text": "a",',
            b'{"text": "a",}',
            b'{"text": }',
            b'{"text" 1}',
        ),
        *(
            b'{"text": [1}',
            b'{"text": {"a": 1}',
            b'{"text": 1',
            b'{"text": "a"} x',
            b"{text: 1}",
            b'{"a": 1 "text": 2}',
        ),
        *(
            rb'{"text": "\u12"}',
            rb'{"text": "\u12G4"}',
            rb'{"text": "\ud800"}',
            rb'{"text": "\ud800\u0041"}',
            b'{"text": "\\',
        ),
        *(
            rb'{"text": "\udc00"}',
            rb'{"\ud800": 1, "text": ""}',
            b'{"text": "a\\"}',
            b'{"text": "\\u"}',
            b'{"text": "\\ud83d\\u',
        ),
    ],
)
def test_find_members_what_is_no_object_is_malformed(line: bytes) -> None:
    _, found = find([line, b'{"text": "next"}'], "text")
    assert found.value_start[0] == MALFORMED
    assert found.text_bytes[1] == 4


@settings(deadline=None)  # the first example compiles the kernel
@given(
    line=st.lists(st.sampled_from([*(bytes([byte]) for byte in b'{}[]:," \\u1d8c0tex'), b'"text"', b"\\ud83d"])).map(
        b"".join
    )
)
@example(line=b'{"text":"\\ud83d\\ude0')
def test_find_members_any_bytes_stay_inside_the_line(line: bytes) -> None:
    _, found = find([line], "text")
    if found.value_start[0] >= 0:
        assert 0 < found.value_start[0] <= found.value_end[0] <= found.insert_at[0] < len(line)
    try:
        spans = member_spans(line, "text") if isinstance(json.loads(line), dict) else []
        valid = "\\ud" not in line.decode()  # Python lets lone surrogates pass
    except ValueError:
        return
    if spans and valid:
        assert (found.value_start[0], found.value_end[0]) == spans[-1]
