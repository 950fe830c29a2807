"""What is normalized run by run before gigatoken gets it is what the reference library makes of whole texts."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens.characters import CHARACTERS
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import quick
from tests.tokens.vocabularies import small, written

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
