"""The oracle itself: its words, and its two ways to decide."""

from __future__ import annotations

import unicodedata
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.decontamination.text_words import SCRIPTS_BY_CHARACTERS
from tests.near_duplicates.corpora import corpus
from tests.oracles.near_duplicates import SCRIPTS, Match, decide, decide_quickly, runs_of, words_of
from tests.quick import examples

SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A well-known rule; it's 80,000", ["a", "well", "known", "rule", "it", "s", "80", "000"]),
        ("Straße STRASSE ẞ", ["strasse", "strasse", "ss"]),
        ("İstanbul ISPARTA ısı", ["i\u0307stanbul", "isparta", "ısı"]),
        ("e\u0301te\u0301 \u00c9T\u00c9", ["\u00e9t\u00e9", "\u00e9t\u00e9"]),
        ("GPT4中文abc", ["gpt4", "中", "文", "abc"]),
        ("ภาษา กำลัง", ["ภ", "า", "ษ", "า", "ก", "ำ", "ลั", "ง"]),
        ("ខ្មែរ", ["ខ្", "មែ", "រ"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("Ⅷ x² ½ \U0001f600", ["x"]),
        ("\u0301a \u0301中", ["\u0301a", "\u0301", "中"]),
        ("", []),
    ],
)
def test_words_of_known_texts_are_these(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_words_of_one_character_are_those_of_the_shared_table_of_scripts() -> None:
    table = {code for first, last in SCRIPTS_BY_CHARACTERS for code in range(first, last + 1)}
    letters = [code for code in range(0x110000) if unicodedata.category(chr(code))[0] == "L"]
    named = {code for code in letters if unicodedata.name(chr(code), "").startswith(SCRIPTS)}
    assert named == table & set(letters)


@examples(60)
@given(SEEDS, st.sampled_from(["0.3", "0.5", "0.8", "1.0"]), st.sampled_from([1, 3, 5]))
def test_decide_quickly_of_any_corpus_equals_all_pairs(seed: int, similarity: str, words: int) -> None:
    texts = corpus(seed, 80)
    expected = decide(texts, similarity, words)
    assert decide_quickly([runs_of(text, words) for text in texts], similarity) == expected


def test_decide_of_a_chain_keeps_what_no_kept_document_matches() -> None:
    texts = ["a b c d", "b c d e", "c d e f"]
    assert decide(texts, "0.6", 1) == [None, Match(0, Fraction(3, 5)), None]


def test_decide_of_equal_similarities_names_the_earliest() -> None:
    assert decide(["a b c x", "a b c y", "a b c z"], "0.6", 1)[2] == Match(0, Fraction(3, 5))
    assert decide(["a b c d x", "a b y z e", "a b c d e"], "0.5", 1)[2] == Match(0, Fraction(4, 6))


def test_corpora_hold_both_kept_and_dropped_documents_of_all_similarities() -> None:
    matches = [match for seed in range(5) for match in decide(corpus(seed), "0.5")]
    shares = {int(match.similarity * 10) for match in matches if match}
    assert shares == {5, 6, 7, 8, 9, 10}
    assert 0.3 < sum(match is None for match in matches) / len(matches) < 0.9
