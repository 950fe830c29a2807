"""Words by the rule of near-duplicates: NFC, case folded, runs of letters, marks and digits."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.decontamination.text_words import WordFinder, in_normal_form, letter_table
from corpusmill.near_duplicates.signatures import Signer
from tests.oracles.near_duplicates import runs_of, words_of
from tests.quick import examples

FINDER = WordFinder(*letter_table())
TRICKY = (
    "aK1 \n-'é\u0301\u0323\u0345ßİıŉΣς가\u1100\u1161\u11a8각\u0958क़"
    "のガ\u3099中กำั\uff76\uff9e٣\u212b\u212aǟ\ufb1d\U0001d15e\U00020000"
)
any_text = st.text(st.one_of(st.sampled_from(TRICKY), st.characters(codec="utf-8")), max_size=40)


def joined(texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.uint64)
    starts = ends - np.array([len(text) for text in encoded], np.uint64)
    return np.frombuffer(b"".join(encoded), np.uint8), starts, ends


@examples(500)
@given(st.lists(any_text, max_size=5))
def test_words_of_texts_are_those_of_the_definition(texts: list[str]) -> None:
    words = FINDER.find(*in_normal_form(*joined(texts)))
    seen: dict[str, int] = {}
    for number, text in enumerate(texts):
        own = words.hashes[words.first[number] : words.first[number + 1]].tolist()
        spelled = words_of(text)
        assert len(own) == len(spelled)
        assert all(seen.setdefault(word, value) == value for word, value in zip(spelled, own, strict=True))
    assert len({*seen.values()}) == len(seen)


@examples(300)
@given(st.lists(any_text, min_size=1, max_size=4))
def test_texts_in_normal_form_are_those_of_the_standard_library(texts: list[str]) -> None:
    text, starts, ends = in_normal_form(*joined(texts))
    for number, original in enumerate(texts):
        own = text[int(starts[number]) : int(ends[number])].tobytes().decode()
        assert own == unicodedata.normalize("NFC", original)


@examples(100)
@given(st.lists(any_text, min_size=1, max_size=4), st.integers(1, 6))
def test_sets_and_digests_of_runs_agree_as_the_runs_do(texts: list[str], length: int) -> None:
    texts = [*texts, texts[0].replace(" ", "  "), " ".join([texts[0]] * 3)]
    hashes, ends = Signer(length).sets(*joined(texts))
    runs = [runs_of(text, length) for text in texts]
    own = [set(of.tolist()) for of in np.split(hashes, ends[:-1])]
    assert [len(of) for of in own] == [len(of) for of in runs]
    assert [len(of) for of in np.split(hashes, ends[:-1])] == [len(of) for of in own]
    for one in range(len(texts)):
        for other in range(one):
            assert len(own[one] & own[other]) == len(runs[one] & runs[other])


@pytest.mark.parametrize(("starts", "ends"), [([0], [4]), ([0], [1 << 40]), ([2], [1]), ([1, 0], [2, 1])])
def test_normal_form_of_texts_outside_the_array_or_out_of_order_is_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(ValueError, match=r"of 3$"):
        in_normal_form(np.frombuffer(b"abc", np.uint8), *(np.array(bounds, np.uint64) for bounds in (starts, ends)))
