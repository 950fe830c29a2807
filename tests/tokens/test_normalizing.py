"""What is normalized run by run before gigatoken gets it is what the reference library makes of whole texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.tokens.characters import CHARACTERS
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.tokens.vocabularies import small, written

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@pytest.fixture(scope="module", params=FORMS)
def engine(request, tmp_path_factory):
    return load_tokenizer(written(small(normalizer={"type": request.param}), tmp_path_factory.mktemp("form")))._encode


def test_normalize_every_character_between_others_is_as_in_a_whole_text(engine) -> None:
    characters = [chr(number) for number in range(CHARACTERS) if not 0xD800 <= number < 0xE000]
    texts = [
        "".join(f"{one}a{one}\u0301 {one}" for one in characters[first : first + 4096]).encode()
        for first in range(0, len(characters), 4096)
    ]
    assert engine.normalize(texts) == [engine.reference.normalized(text) for text in texts]


@settings(deadline=None)
@given(
    text=st.text(
        st.sampled_from("aA \n<=\u0338\u0301\u0327\u1100\u1161\u11a8\uac00\ufb01\u00bd\u212b\u0344\u3099か"),
        max_size=20,
    )
)
def test_normalize_any_text_is_the_references(engine, text: str) -> None:
    assert engine.normalize([text.encode()]) == [engine.reference.normalized(text.encode())]
