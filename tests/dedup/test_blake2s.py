"""BLAKE2s in eight lanes equals hashlib's; the same spans have the same digests whatever stands beside them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.blake2s import digest_spans
from corpusmill.dedup.settle import find_firsts, mark_again
from tests.quick import examples


def digests_by_hashlib(text: bytes, spans: list[tuple[int, int]]) -> list[bytes]:
    return [hashlib.blake2s(text[start : start + length], digest_size=16).digest() for start, length in spans]


def digests_of(text: bytes, spans: list[tuple[int, int]]) -> list[bytes]:
    starts, lengths = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    return [row.tobytes() for row in digest_spans(np.frombuffer(text, np.uint8), starts, lengths)]


@examples(60)
@given(st.binary(min_size=1, max_size=900), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_digests_of_spans_equal_hashlibs(text: bytes, shares: list[tuple[float, float]]) -> None:
    starts = [int(share * len(text)) for share, _ in shares]
    spans = [(start, int(share * (len(text) - start))) for start, (_, share) in zip(starts, shares, strict=True)]
    assert digests_of(text, spans) == digests_by_hashlib(text, spans)


def test_digests_of_every_length_around_a_block_equal_hashlibs() -> None:
    text = np.random.default_rng(1).integers(0, 256, 3000, np.uint8).tobytes()
    spans = [(at % 7, at) for at in (*range(200), *range(1000, 1100), 2048, 2990)]
    assert digests_of(text, spans) == digests_by_hashlib(text, spans)


@pytest.mark.parametrize("span", [(-1, 2), (5, 6), (11, 0), (2, -1)])
def test_digest_of_a_span_beyond_the_text_is_refused(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="outside the text"):
        digests_of(b"0123456789", [(0, 3), span])


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 2**63))
def test_first_rows_of_digests_are_those_of_a_dictionary(values: list[int], key: int) -> None:
    digests = np.array([[value // 2, value % 2] for value in values], np.uint64).reshape(-1, 2)
    firsts = np.empty(len(values), np.int32)
    find_firsts(digests, np.uint64(key | 1), np.full(64, -1, np.int32), np.uint64(58), firsts)
    assert firsts.tolist() == [values.index(value) for value in values]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40), st.integers(0, 2**63))
def test_rows_marked_again_are_those_counted_twice(rows: list[tuple[int, bool]], key: int) -> None:
    hashes = np.array([value for value, _ in rows], np.uint32)
    wanted = np.array([wanted for _, wanted in rows], np.uint8)
    again = np.empty(len(rows), np.uint8)
    marked = mark_again(hashes, wanted, np.uint64(key | 1), np.zeros(64, np.uint32), np.uint64(58), again)
    counted = [max(1, value) for value, wanted in rows if wanted]
    assert again.tolist() == [int(wanted and counted.count(max(1, value)) > 1) for value, wanted in rows]
    assert marked == again.sum()
