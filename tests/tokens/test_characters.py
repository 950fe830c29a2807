"""Documents that hold a string, characters of a kind, and what is normalized in runs, as Python and tokenizers do."""

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from corpusmill.tokens.characters import (
    CHARACTERS,
    UNASSIGNED,
    Form,
    StringFinder,
    changing_kinds,
    cut_at_numbers,
    holding_kind,
    number_kinds,
)
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import quick
from tests.tokens.vocabularies import small, written

SHORT = st.text("ab<é中", min_size=1, max_size=12)
ODD = st.text(st.sampled_from("a1 é\u0301٣Ⅷ½中각\u1100\u1161\u11a8\u0338<\u3097\U0001d7d9"), max_size=12)


@given(st.lists(SHORT, max_size=6), st.lists(st.text("ab<é中", max_size=20), max_size=6))
def test_string_finder_any_strings_and_texts_finds_what_python_finds(strings: list[str], texts: list[str]) -> None:
    actual = StringFinder(strings).holding([text.encode() for text in texts])
    assert actual.tolist() == [any(string in text for string in strings) for text in texts]


def test_string_finder_string_over_the_border_of_two_documents_is_in_neither() -> None:
    assert StringFinder(["<tool>"]).holding([b"a<to", b"ol>b", b"", b"<tool>"]).tolist() == [False, False, False, True]


def all_characters() -> list[str]:
    return [chr(number) for number in range(sys.maxunicode + 1) if not 0xD800 <= number < 0xE000]


@pytest.mark.parametrize("each", [True, False])
@given(texts=st.lists(ODD, max_size=5))
def test_cut_at_numbers_any_text_gives_the_pieces_of_tokenizers_digits(each: bool, texts: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    text = np.frombuffer(b"".join(encoded), np.uint8)
    bounds, counts = cut_at_numbers(text, np.cumsum([len(item) for item in encoded], dtype=np.int64), each=each)
    pieces = [text[first:last].tobytes().decode() for first, last in pairwise(bounds)]
    digits = pre_tokenizers.Digits(individual_digits=each)
    expected = [[piece for piece, _ in digits.pre_tokenize_str(text)] if text else [] for text in texts]
    assert pieces == [piece for own in expected for piece in own]
    assert counts.tolist() == np.cumsum([len(own) for own in expected], dtype=int).tolist()


def test_numbers_of_every_assigned_character_are_those_of_tokenizers() -> None:
    kinds = number_kinds()
    assigned = [character for character in all_characters() if kinds[ord(character)] != UNASSIGNED]
    cut = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("".join(assigned))
    numbers = {piece for piece, _ in cut if len(piece) == 1 and kinds[ord(piece)] == 1}
    assert numbers == {item for item in assigned if unicodedata.category(item) in {"Nd", "Nl", "No"}}
    assert not any(kinds[ord(item)] == 1 for piece, _ in cut if len(piece) > 1 for item in piece)


@pytest.mark.parametrize("form", quick(["NFC", "NFKC", "NFD", "NFKD"], 2))
def test_characters_that_do_not_change_stay_beside_all_others_of_them(form: Form) -> None:
    """In four orders, so that each stands behind many others; starters before them, too."""
    kinds = changing_kinds(form)
    stay = [character for character in all_characters() if not kinds[ord(character)]]
    assert len(stay) > 100_000
    normalizer = getattr(normalizers, form)()
    for step in (1, 7, 1009, 65_537):
        text = "".join(stay[place * step % len(stay)] for place in range(len(stay)))
        assert normalizer.normalize_str(text) == text


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@given(text=ODD)
def test_text_without_changing_characters_is_normalized_as_it_is(form: Form, text: str) -> None:
    if not holding_kind([text.encode()], changing_kinds(form), 1)[0]:
        assert getattr(normalizers, form)().normalize_str(text) == text


FORMS = ("NFC", "NFD", "NFKC", "NFKD")
COMBINING = "aA \n<=\u0338\u0301\u0327\u1100\u1161\u11a8\uac00\ufb01\u00bd\u212b\u0344\u3099\u304b"


@pytest.fixture(scope="module", params=quick(FORMS, 1))
def engine(request, tmp_path_factory):
    return load_tokenizer(written(small(normalizer={"type": request.param}), tmp_path_factory.mktemp("form")))._encode


def test_normalize_every_character_that_changes_is_as_in_a_whole_text(engine) -> None:
    """Hangul syllables change by rule: some of them, and of the others some, are enough."""
    every = [chr(number) for number in range(CHARACTERS) if not 0xD800 <= number < 0xE000]
    changing = [item for item in every if unicodedata.decomposition(item) or unicodedata.combining(item)]
    text = "".join(f"{item}a{item}\u0301 {item}" for item in [*changing, *every[:0x400], *every[0x400::64]]).encode()
    assert engine.normalize([text]) == [engine.reference.normalized(text)]


@given(text=st.text(st.sampled_from(COMBINING), max_size=20))
def test_normalize_any_text_is_the_references(engine, text: str) -> None:
    assert engine.normalize([text.encode()]) == [engine.reference.normalized(text.encode())]
