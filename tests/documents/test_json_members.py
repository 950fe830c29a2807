from __future__ import annotations

import json
import sys
import threading

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.json_members import MOST_LEVELS, find_value, insert_place, is_json
from corpusmill.documents.json_strings import PIECE_BYTES, decode
from tests.documents.json_lines import BROKEN_LINES, CHARACTERS, changed_lines, objects, written
from tests.oracles.documents import member_spans

KEYS = st.sampled_from(["text", "", "id", "téxt", "😀", '"text"', "a\\b", "a\nb", "no"])


@given(pairs=st.lists(objects(), min_size=1, max_size=5), key=KEYS)
def test_find_value_objects_of_any_style_equal_the_oracle(pairs: list[tuple[bytes, str]], key: str) -> None:
    """In one buffer, with bytes between the lines that would be read by a scan that leaves its line."""
    data = b"".join(line + b'"}]' for line, _ in pairs)
    start = 0
    for line, _ in pairs:
        end = start + len(line)
        spans = member_spans(line, key)
        actual = find_value(data, key, start, end)
        assert (actual and (actual[0] - start, actual[1] - start)) == (spans[-1] if spans else None)
        at, separator = insert_place(data, start, end)
        extended = data[start:at] + separator + b'"new": 1' + data[at:end]
        record = json.loads(line, object_pairs_hook=list)
        assert json.loads(extended, object_pairs_hook=list) == [*record, ("new", 1)]
        start = end + 3


@pytest.mark.parametrize("line", [b"{}", b" { } \r", b"\t{\n}"])
def test_insert_place_empty_object_has_a_place_for_a_first_member(line: bytes) -> None:
    at, separator = insert_place(line, 0, len(line))
    assert separator == b""
    assert json.loads(line[:at] + b'"a": 1' + line[at:]) == {"a": 1}


@pytest.mark.parametrize(
    "line", [b"", b" ", b"[]", b'"text"', b"1", b"null", b"{", b'{"text": "a"', b'{"text": "a"} x']
)
def test_find_value_what_is_no_object_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        find_value(b"{}" + line + b"}", "text", 2, 2 + len(line))


def is_orjson(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


@given(line=changed_lines())
def test_is_json_any_line_is_what_orjson_parses(line: bytes) -> None:
    assert is_json(line) == is_orjson(line)


NUMBERS = [b"1e308", b"1e309", b"-1E+309", b"17" + b"0" * 307, b"18" + b"0" * 307, b"9" * 400, b"9" * 400 + b".5e-200"]
NUMBERS += [b"9" * 5000, b"0." + b"1" * 5000, b"1e-99999", b"0e99999", b"1e" + b"9" * 30, b"123456789012345678901e-9"]


@pytest.mark.parametrize("number", NUMBERS)
def test_is_json_numbers_beyond_float64_are_refused_as_by_orjson(number: bytes) -> None:
    far_away = b'" \\\\' + b"x" * PIECE_BYTES + b'\\"1e999 [' + b'"'
    for line in (number, b'{"a": [' + number + b"]}", b"[" + far_away + b"," + number + b"," + far_away + b"]"):
        assert is_json(line) == is_orjson(line)
    assert is_json(b'["' + number + b'", "1e999"]')


@pytest.mark.parametrize("levels", [1, 500, 990, MOST_LEVELS - 1, MOST_LEVELS, MOST_LEVELS + 1, 3000, 200_000])
def test_is_json_levels_are_those_of_orjson_however_deep_the_caller_is(levels: int) -> None:
    for line in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b'"[[\\"["' + b"}" * levels):
        assert is_json(line) == is_orjson(line) == (levels <= MOST_LEVELS)
        assert is_json(b"[" + line + b"]") == (levels < MOST_LEVELS)
    usual = sys.getrecursionlimit()

    def called_deep(more: int) -> bool:
        return called_deep(more - 1) if more else is_json(b"[" * levels + b"]" * levels)

    assert called_deep(usual // 2) == (levels <= MOST_LEVELS)
    assert sys.getrecursionlimit() == usual


def test_is_json_deep_lines_in_many_threads_leave_the_limit_as_it_was() -> None:
    usual = sys.getrecursionlimit()
    printed: list[bool] = []
    line = b"[" * MOST_LEVELS + b"]" * MOST_LEVELS
    threads = [threading.Thread(target=lambda: printed.extend(is_json(line) for _ in range(50))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert printed == [True] * 400
    assert sys.getrecursionlimit() == usual


@pytest.mark.parametrize("line", BROKEN_LINES)
def test_is_json_broken_lines_are_what_orjson_says(line: bytes) -> None:
    assert is_json(line) == is_orjson(line)


@given(
    characters=st.lists(st.tuples(st.sampled_from(CHARACTERS), st.integers(0, 2)), max_size=60),
    piece_bytes=st.sampled_from([18, 19, 31, PIECE_BYTES]),
    around=st.sampled_from([b"", b"\\\\", b'"\\', b"\xe4"]),
)
def test_strings_of_any_style_in_pieces_of_any_size_equal_json(
    characters: list[tuple[str, int]], piece_bytes: int, around: bytes
) -> None:
    line, _ = written(characters)
    text = json.loads(line).encode()
    data, start, end = around + line + around, len(around), len(around) + len(line)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpusmill.documents.json_strings.PIECE_BYTES", piece_bytes)
        assert decode(data, start, end) == text
        assert decode(memoryview(data), start, end) == text


@pytest.mark.parametrize("piece_bytes", [18, PIECE_BYTES])
@pytest.mark.parametrize(
    "raw", [b"\x82\xa0", b"a" * 40 + b"\xff", b"\x80" * 50, b"a" * 14 + b"\xed\xa0\x80" + b"a" * 40]
)
def test_strings_that_are_no_utf8_are_an_error(raw: bytes, piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.documents.json_strings.PIECE_BYTES", piece_bytes)
    with pytest.raises(ValueError, match="UTF-8"):
        decode(b'"' + raw + b'"', 0, len(raw) + 2)
