"""Contexts as JSON against the standard library: one text a context, one context a text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export.context_json import TABLE_IDS, read_list, write_list, write_lists
from tests.oracles import export as oracle

EDGES = [0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10_000, 65_535, 65_536, 99_999, 100_000, 10**9 - 1, 10**9, 2**32 - 1]
ids = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1))


@given(st.lists(ids, min_size=1, max_size=40))
def test_context_json_write_equals_the_oracle_and_reads_back(numbers):
    text = write_list(np.array(numbers, np.uint32))
    assert text == oracle.compact_json(numbers)
    actual, wrong_at = read_list(text)
    assert (actual.tolist(), wrong_at) == (numbers, None)


@given(st.integers(1, 9), st.integers(1, 200), st.sampled_from([70_000, TABLE_IDS, 2**32]), st.randoms())
def test_context_json_write_lists_equals_write_list_row_by_row(width, rows, below, random):
    edges = [item for item in EDGES if item < below]
    table = [[random.choice([*edges, random.randrange(below)]) for _ in range(width)] for _ in range(rows)]
    texts = [bytes(text) for text in write_lists(np.array(table, np.uint32))]
    assert texts == [oracle.compact_json(row) for row in table]


def test_context_json_write_lists_every_number_of_the_table():
    numbers = np.arange(TABLE_IDS, dtype=np.uint32).reshape(-1, 64)
    assert b"".join(map(bytes, write_lists(numbers))) == b"".join(oracle.compact_json(row) for row in numbers.tolist())


@given(st.text("[],019 -.e", max_size=12))
def test_context_json_read_accepts_exactly_what_write_makes(text):
    try:
        numbers = json.loads(text)
        ours = oracle.compact_json(numbers).decode() == text and isinstance(numbers, list) and len(numbers) > 0
        ours = ours and all(type(number) is int and 0 <= number < 2**32 for number in numbers)
    except ValueError:
        ours = False
    actual, wrong_at = read_list(text.encode())
    assert (wrong_at is None) == ours
    if ours:
        assert actual.tolist() == numbers


@pytest.mark.parametrize(
    ("text", "numbers", "at"),
    [
        (b"", [], 0),
        (b"4", [], 0),
        (b"[", [], 1),
        (b"[]", [], 1),
        (b"[4", [], 2),
        (b"[4,", [4], 3),
        (b"[4,]", [4], 3),
        (b"[4,05]", [4], 3),
        (b"[4,-1]", [4], 3),
        (b"[4, 1]", [4], 3),
        (b"[4,1.0]", [4], 4),
        (b"[4,true]", [4], 3),
        (b"[4,4294967296]", [4], 3),
        (b"[4,99999999999999999999999999]", [4], 3),
        (b"[4,[5]]", [4], 3),
        (b"[4,5]\n", [4, 5], 5),
        (b"[4,5][6]", [4, 5], 5),
    ],
)
def test_context_json_read_names_the_first_wrong_byte(text, numbers, at):
    actual, wrong_at = read_list(text)
    assert (actual.tolist(), wrong_at) == (numbers, at)
