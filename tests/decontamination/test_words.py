"""Texts to words."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.decontamination.text_words import WordFinder, Words, character_table
from tests.oracles.decontamination import words_of
from tests.quick import examples

FINDER = WordFinder(*character_table())
TRICKY = "aB1 \t\n\r-'.,_*\u00ad\u2019\u2013\u00a0\u200b\ufe0f\u0301\u0323éßﬁ½㌖中の가ำกั\U0001f600\U00020000"


def find(*texts: str) -> Words:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.uint64)
    starts = ends - np.array([len(text) for text in encoded], np.uint64)
    return FINDER.find(np.frombuffer(b"".join(encoded), np.uint8), starts, ends)


def hashes(text: str) -> list[int]:
    return find(text).hashes.tolist()


def spelled(text: str) -> list[str]:
    return [text.encode()[begin:end].decode() for begin, end in zip(*spans(text), strict=True)]


def spans(text: str) -> tuple[list[int], list[int]]:
    words = find(text)
    return words.begins.tolist(), words.ends.tolist()


@examples(500)
@given(st.text(st.one_of(st.sampled_from(TRICKY), st.characters(codec="utf-8")), max_size=40))
def test_words_of_any_text_are_those_of_the_oracle(text: str) -> None:
    expected = words_of(text)
    assert list(zip(*spans(text), strict=True)) == [(begin, end) for _, begin, end in expected]
    seen = dict(zip((word for word, *_ in expected), hashes(text), strict=True))
    assert hashes(text) == [seen[word] for word, *_ in expected]
    assert len(set(seen.values())) == len(seen)


@examples(300)
@given(st.text(st.sampled_from("aAé\u0301\u0323\u0316ộǟﬁ½가각ガﾞｶ中ß -\n"), max_size=20), st.data())
def test_words_of_a_text_in_another_normal_form_or_case_are_the_same(text: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
    assert hashes(unicodedata.normalize(form, text)) == hashes(text)
    assert hashes(text.casefold()) == hashes(text)


@given(st.lists(st.text(st.sampled_from(TRICKY), max_size=12), max_size=6))
def test_words_of_several_texts_are_those_of_each(texts: list[str]) -> None:
    actual = find(*texts)
    words = Words(*(array.copy() for array in (actual.hashes, actual.begins, actual.ends, actual.first)))
    at = 0
    for number, text in enumerate(texts):
        own, own_spans = find(text).hashes.tolist(), spans(text)
        of_text = slice(int(words.first[number]), int(words.first[number + 1]))
        assert words.hashes[of_text].tolist() == own
        assert (words.begins[of_text] - at).tolist() == own_spans[0]
        at += len(text.encode())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A well-known rule", ["A", "well-known", "rule"]),
        ("It\u2019s it's", ["It\u2019s", "it's"]),
        ("80,000 or 80,000.50, or 1, 2", ["80,000", "or", "80,000.50", "or", "1", "2"]),
        ("hyphen-\n    ated\nwords", ["hyphen-\n    ated", "words"]),
        ("soft\u00adhyphen and a\u00ad\r\nb", ["soft\u00adhyphen", "and", "a\u00ad\r\nb"]),
        ("a -- b - c -\nd", ["a", "b", "c", "d"]),
        ("**bold** _it_ `code` [link](to)", ["bold", "it", "code", "link", "to"]),
        ("中文,测试", ["中", "文", "测", "试"]),
        ("日本語のテキスト", list("日本語のテキスト")),
        ("ภาษาไทย กำลัง", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย", "กำ", "ำ", "ลั", "ง"]),
        ("GPT4中文abc", ["GPT4", "中", "文", "abc"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("", []),
        (" \n-.'", []),
    ],
)
def test_words_of_known_texts_are_these(text: str, words: list[str]) -> None:
    assert spelled(text) == words


@pytest.mark.parametrize(
    ("item", "other"),
    [
        ("Straße", "STRASSE"),
        ("ﬁne", "fine"),
        ("well-known", "wellknown"),
        ("don\u2019t", "don't"),
        ("80,000", "80000"),
        ("exam-\nple", "example"),
        ("\uff26\uff55\uff4c\uff4c\u3000\uff57ide", "full wide"),
        ("e\u0301te\u0301", "été"),
        ("zero\ufeffwidth", "zerowidth"),
    ],
)
def test_words_that_differ_in_form_alone_are_the_same(item: str, other: str) -> None:
    assert hashes(item) == hashes(other)


def test_words_of_damaged_utf8_stay_inside_the_text() -> None:
    for damaged in (b"abc\xe4", b"\xf0\x9f", b"\x80\x80abc", b"\xf7\xbf\xbf\xbf", b"\xc3"):
        text = np.frombuffer(damaged, np.uint8)
        words = FINDER.find(text, np.zeros(1, np.uint64), np.array([len(text)], np.uint64))
        assert (words.ends <= len(text)).all()


def test_words_of_texts_out_of_order_are_refused() -> None:
    text = np.zeros(4, np.uint8)
    with pytest.raises(ValueError, match="texts in bytes"):
        FINDER.find(text, np.array([2, 0], np.uint64), np.array([4, 1], np.uint64))
    with pytest.raises(ValueError, match="texts in bytes"):
        FINDER.find(text, np.array([0], np.uint64), np.array([5], np.uint64))
