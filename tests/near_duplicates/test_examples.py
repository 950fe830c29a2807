"""Pairs for people: spread over similarities; what is not marked is the same in both."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.near_duplicates.examples import MOST_BYTES, SHOWN_PAIRS, Pieces, marked, shown_pairs
from tests.near_duplicates.corpora import corpus
from tests.oracles.near_duplicates import words_of
from tests.quick import examples


def spelled(pieces: Pieces) -> str:
    return "".join(f"[{piece}]" if mark else piece for piece, mark in pieces)


def text_of(pieces: Pieces) -> str:
    return "".join(piece for piece, _ in pieces).removeprefix("\u2026 ").removesuffix("\u2026")


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("a b c", "a x c", ("a [b] c", "a [x] c")),
        ("a b c", "a c", ("a [b] c", "a c")),
        ("Straße, 5!", "STRASSE 5", ("Straße, 5!", "STRASSE 5")),
        ("a b, c d", "a d", ("a [b, c] d", "a d")),
        ("", "a", ("", "[a]")),
        ("!?", "\U0001f600", ("!?", "\U0001f600")),
        ("中文测试", "中文本试", ("中文[测]试", "中文[本]试")),
        ("e\u0301t", "\u00e9t", ("\u00e9t", "\u00e9t")),
    ],
)
def test_marked_of_two_texts_marks_the_words_of_one_alone(one: str, other: str, shown: tuple[str, str]) -> None:
    assert tuple(map(spelled, marked(one.encode(), other.encode()))) == shown


@examples(100)
@given(st.integers(0, 2**32))
def test_marked_of_any_pair_shows_its_text_and_leaves_the_same_words_unmarked(seed: int) -> None:
    for one, other in zip(*[iter(corpus(seed, 20))] * 2, strict=True):
        sides = marked(one.encode(), other.encode())
        for text, pieces in zip((one, other), sides, strict=True):
            assert text_of(pieces).strip("\u2026") in unicodedata.normalize("NFC", text)
        unmarked = [[word for piece, mark in pieces if not mark for word in words_of(piece)] for pieces in sides]
        assert unmarked[0] == unmarked[1]


def test_marked_of_texts_that_differ_at_their_ends_shows_the_ends() -> None:
    same = " ".join(f"word{number}" for number in range(5000))
    one, other = marked(f"{same} left".encode(), f"{same} right side".encode())
    assert spelled(one).startswith("\u2026 word")
    assert spelled(one).endswith("word4999 [left]")
    assert spelled(other).endswith("word4999 [right side]")


def test_marked_of_one_word_of_a_million_bytes_is_cut_between_characters() -> None:
    for pieces in marked(("\u00e9" * 500_000).encode(), ("\u00e8" * 500_001).encode()):
        assert MOST_BYTES - 2 <= len(text_of(pieces).encode()) <= MOST_BYTES
        assert [mark for _, mark in pieces] == [True, False]


def test_shown_pairs_of_many_are_one_of_each_tenth_above_the_threshold() -> None:
    chance = np.random.default_rng(0)
    similarities = np.where(np.arange(5000) % 3, 1.0, 0.8 + 0.2 * chance.random(5000))
    shown = shown_pairs(similarities, np.arange(5000, dtype=np.uint64), 0.8)
    assert ((similarities[shown] - 0.8) / 0.02 + 1e-9).astype(int).clip(max=9).tolist() == list(range(10))


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 500])
@pytest.mark.parametrize("least", [0.3, 0.8, 1.0])
def test_shown_pairs_of_few_or_one_group_are_as_many_as_there_are(count: int, least: float) -> None:
    similarities = np.linspace(least, 1, count)
    for kept in (np.zeros(count, np.uint64), np.arange(count, dtype=np.uint64)):
        shown = shown_pairs(similarities, kept, least)
        assert len(set(shown)) == min(count, SHOWN_PAIRS)
        assert similarities[shown].tolist() == sorted(similarities[shown])


def test_shown_pairs_of_a_large_group_among_others_show_the_others_too() -> None:
    kept = np.concatenate([np.zeros(1000), np.arange(1, 6)]).astype(np.uint64)
    assert set(range(1000, 1005)) < set(shown_pairs(np.ones(1005), kept, 0.8))
