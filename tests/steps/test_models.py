"""Gopher's and C4's rules against numbers worked out by hand, and their kernels against plain Python."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpusmill.steps import Drop
from corpusmill.steps.answers import batch_of_texts
from corpusmill.steps.c4 import Lines
from corpusmill.steps.gopher import REASONS, Quality, facts_of
from corpusmill.steps.repetition import RULES, Repetition, shares_of
from corpusmill.steps.text_kernels import FACTS, STOPS

GOOD = "The quick brown foxes have jumped over lazy dogs that sleep. " * 5  # 55 words, 50 characters in eleven


def reason(step: Any, text: str) -> str:
    given = step.batch(batch_of_texts([text]))
    return "" if given.codes[0] == 0 else given.reasons[given.codes[0] - 1]


def facts_in_python(text: str) -> list[int]:
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return [
        len(words),
        sum(map(len, words)),
        sum(any(map(str.isalpha, word)) for word in words),
        len(
            {
                word.translate(str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"))
                for word in words
            }
            & set(STOPS)
        ),
        text.count("#"),
        text.count("...") + text.count("…"),
        len(lines),
        sum(line.startswith(("•", "‣", "-", "*")) for line in lines),
        sum(line.endswith(("...", "…")) for line in lines),
    ]


signs = st.text(st.sampled_from("the THE of.#…\n •-*é中\u2028\x1c\U0001d4b37 \t.."), max_size=60)


@given(st.lists(signs | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4))
@example(["- The cat...\n  # of 42 …\n\n• and THE end....  \n"])
def test_facts_are_those_of_plain_python(texts: list[str]) -> None:
    assert facts_of(batch_of_texts(texts)).tolist() == [facts_in_python(text) for text in texts]
    assert facts_of(batch_of_texts(texts)).shape[1] == FACTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, ""),
        ("", "too few words"),
        (" ".join(GOOD.split()[:49]), "too few words"),
        (" ".join(GOOD.split()[:50]), ""),
        (GOOD * 1819, "too many words"),  # 100,045
        (GOOD * 1818, ""),  # 99,990
        ("to be of " * 20, "word length"),  # 2 characters each
        ("the internationalization " * 30, "word length"),  # (3 + 20) / 2
        (GOOD + "# " * 7, "symbols"),  # 7 of 62 words
        (GOOD + "# " * 6, ""),  # 6 of 61
        (GOOD.replace(". ", "... ") + "End.", ""),  # 5 of 56
        (GOOD.replace(". ", "... ... "), "symbols"),  # 10 of 60
        ("\n".join(f"- {GOOD}" for _ in range(9)) + "\nThe end.", "bullets"),  # 9 of 10 lines
        ("\n".join(f"- {GOOD}" for _ in range(8)) + "\nThe end.\nThe end.", ""),  # 8 of 10
        ("\n".join([GOOD] * 6 + [f"{GOOD} so…"] * 4), "ellipses at line ends"),  # 4 of 10
        ("\n".join([GOOD] * 7 + [f"{GOOD} so…"] * 3), ""),  # 3 of 10
        (GOOD + "1234 " * 14, "words without letters"),  # 55 of 69
        (GOOD + "1234 " * 13, ""),  # 55 of 68
        ("Und hier steht that in keinem Satze " * 10, "too few stop words"),
    ],
)
def test_gopher_decides_by_the_papers_thresholds(text: str, expected: str) -> None:
    assert reason(Quality(), text) == expected
    assert expected in ("", *REASONS)


def test_gopher_takes_other_thresholds() -> None:
    assert reason(Quality(minimum_words=2, minimum_stop_words=0), "Drei Worte hier") == ""


def shares_in_python(text: str) -> list[float]:
    shares: list[float] = []
    lines = [part for part in re.split(r"\n+", text) if re.search(r"[^\x00-\x20]", part)]
    paragraphs = [part.strip("\n") for part in re.split(r"\n{2,}", text)]
    paragraphs = [paragraph for paragraph in paragraphs if re.search(r"[^\x00-\x20]", paragraph)]
    repeats = [[item for place, item in enumerate(of) if item in of[:place]] for of in (lines, paragraphs)]
    shares += [len(again) / max(1, len(of)) for again, of in zip(repeats, (lines, paragraphs), strict=True)]
    shares += [sum(map(len, again)) / max(1, len(text)) for again in repeats]
    words = text.split()
    whole = max(1, sum(map(len, words)))
    for n in (2, 3, 4):
        grams = Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
        most = max(grams.values(), default=0)
        best = max((sum(map(len, gram)) for gram, count in grams.items() if count == most), default=0)
        shares.append(most * best / whole if most > 1 else 0.0)
    for n in range(5, 11):
        grams_in_order = [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]
        again = [at for at, gram in enumerate(grams_in_order) if gram in grams_in_order[:at]]
        covered = {place for at in again for place in range(at, at + n)}
        shares.append(sum(len(words[place]) for place in covered) / whole)
    return shares


@given(
    st.lists(st.lists(st.sampled_from(["a", "bé", "\n", "\n\n", "中", "a a a"]), max_size=40).map(" ".join), max_size=3)
)
@example(
    ["\n a \n\n a \n", "ab\nab\ncd", "x\ny\n\nx\ny\n\nz", "aa bb aa bb cc", "a b c d e f a b c d e", "a a a a a a a"]
)
def test_shares_are_those_of_plain_python(texts: list[str]) -> None:
    batch, expected = batch_of_texts(texts), np.array([*map(shares_in_python, texts)]).reshape(-1, 13)
    assert np.allclose(shares_of(batch).reshape(-1, 13), expected)
    for step in (Repetition(), Repetition(dict.fromkeys(RULES, 0.5)), Repetition({"repeated lines": 1})):
        first = [int(np.argmax([*(row > step.most), True])) for row in shares_of(batch)]
        assert step.batch(batch).codes.tolist() == [(rule + 1) % 14 for rule in first]


def test_repetition_decides_by_the_papers_thresholds_and_takes_others() -> None:
    assert reason(Repetition(), GOOD) == "most frequent 3-gram"  # 5 of 15 of 250 characters; of 2-grams 0.20
    lines = "\n".join([*(f"this is line number {number} of some" for number in range(7)), *["the same line"] * 4])
    others = dict.fromkeys([rule for rule in RULES if "gram" in rule], 1.0)
    assert reason(Repetition(others), lines) == ""  # 3 of 11 lines
    assert reason(Repetition(others), lines + "\nthe same line") == "repeated lines"  # 4 of 12: 0.33
    with pytest.raises(ValueError, match="no such rules: lines"):
        Repetition({"lines": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "One two three four five. Six is here!\nMenu\nWhat comes after all of this?",
            "One two three four five. Six is here!\nWhat comes after all of this?",
        ),
        (
            "This page needs JavaScript to be shown.\n" + "A sentence of five words. " * 3,
            ("A sentence of five words. " * 3).strip(),
        ),
        (
            "This line of words trails off...\n" + "A sentence of five words. " * 3,
            ("A sentence of five words. " * 3).strip(),
        ),
        ("One two three four.\n" + "A sentence of five words. " * 3, ("A sentence of five words. " * 3).strip()),
        ("A sentence of five words. " * 2, Drop("too few sentences")),
        ("", Drop("too few sentences")),
        ("A sentence of five words. " * 3 + "{", Drop("curly bracket")),
        ("A sentence of five words. " * 3 + "Lorem Ipsum dolor.", Drop("lorem ipsum")),
    ],
)
def test_c4_keeps_the_lines_that_the_paper_keeps(text: str, expected: str | Drop) -> None:
    answer = Lines().batch(batch_of_texts([text]))[0]
    assert (text if answer is None else answer) == expected


def lines_in_python(text: str, words: int, sentences: int) -> str | Drop:
    if "{" in text:
        return Drop("curly bracket")
    if "lorem ipsum" in text.lower():
        return Drop("lorem ipsum")
    lines = [
        line
        for line in map(str.strip, text.split("\n"))
        if re.search('[.!?"\u201d]$', line)
        and not line.endswith("...")
        and len(line.split()) >= words
        and "javascript" not in line.lower()
    ]
    kept = "\n".join(lines)
    actual = len(re.findall('[.!?]+(?=[\\s"\u201d]|$)', kept))
    return kept if actual >= sentences else Drop("too few sentences")


PIECES = ["a", "bé", "中", " ", "\n", "\u3000", "\x1f", "\0", ".", "!", "?", "..", '"', "\u201d", "js"]


@given(st.lists(st.lists(st.sampled_from([*PIECES, "javaSCRIPT", "\u0130"]), max_size=30).map("".join)))
@example(
    [
        "lorem ipsum {",
        "LoreM\nipsum a. ",
        "a. a. a.",
        "a. \n a",
        "a...\n",
        "LOREM ipsum",
        "a. a! \u201d\n?",
        "javascr\u0130pt.",
    ]
)
def test_lines_that_stay_are_those_of_plain_python(texts: list[str]) -> None:
    batch = batch_of_texts(texts)
    for words, sentences in ((0, 0), (1, 1), (2, 3)):
        answers = Lines(words, sentences).batch(batch)
        stayed = [text if answer is None else answer for text, answer in zip(texts, answers, strict=True)]
        assert stayed == [lines_in_python(text, words, sentences) for text in texts]
