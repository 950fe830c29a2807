"""Pairs of near-duplicates for people: which of many, and what differs between two texts.

In: matches in order of documents; two texts as UTF-8. Out: the places of the matches to show; each text's pieces, with
whether the other text lacks them.

Invariants: the matches shown depend on matches and their shards alone. Unmarked words of a pair are the same, in the
same order. Price: one pass over the matches; two texts are split into words, and SHOWN_WORDS of each are compared.
"""

from __future__ import annotations

import unicodedata
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.text_words import WordFinder, letter_table

SHOWN_PAIRS, SHOWN_WORDS, WORDS_BEFORE = 10, 160, 12
MOST_BYTES = 2000  # of a text: a word has any length
Pieces = tuple[tuple[str, bool], ...]


def shown_pairs(similarities: NDArray[np.float64], kept: NDArray[np.uint64], least: float) -> list[int]:
    """SHOWN_PAIRS places at most, by similarity: one of each tenth between `least` and 1, then second ones, and so on.

    `similarities`, `kept` (n,): of each match, in order of documents. Of one kept document, only if others are too few
    is more than one shown.
    """
    steps = np.clip((similarities - least) / max(1 - least, 1e-9) * SHOWN_PAIRS, 0, SHOWN_PAIRS - 1).astype(np.int64)
    mixed = np.arange(len(kept), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # an order like one of chance
    order = np.lexsort((mixed, steps))
    first = order[np.sort(np.unique(kept[order], return_index=True)[1])]
    rank = np.arange(len(first)) - np.searchsorted(steps[first], steps[first])  # within its tenth
    shown = first[np.lexsort((steps[first], rank))]
    shown = np.concatenate([shown, order[~np.isin(order, shown)]])[:SHOWN_PAIRS]
    return shown[np.lexsort((shown, similarities[shown]))].tolist()  # type: ignore[no-any-return]


def marked(one: bytes, other: bytes) -> tuple[Pieces, Pieces]:
    """The pieces of both texts from shortly before their first different word; none are marked if no word differs."""
    texts = [unicodedata.normalize("NFC", text.decode()).encode() for text in (one, other)]
    words = [_words(text) for text in texts]
    shorter = min(len(hashes) for hashes, _, _ in words)
    same = np.flatnonzero(words[0][0][:shorter] != words[1][0][:shorter])
    first = max(int(same[0] if len(same) else shorter) - WORDS_BEFORE, 0)
    shown = [hashes[first : first + SHOWN_WORDS].tolist() for hashes, _, _ in words]
    alike: list[set[int]] = [set(), set()]
    for block in SequenceMatcher(None, shown[0], shown[1], autojunk=False).get_matching_blocks():
        for which, at in enumerate((block.a, block.b)):
            alike[which] |= set(range(at, at + block.size))
    return tuple(  # type: ignore[return-value]
        _pieces(text, begins, ends, first, both)
        for text, (_, begins, ends), both in zip(texts, words, alike, strict=True)
    )


@cache
def _finder() -> WordFinder:
    return WordFinder(*letter_table())


def _words(text: bytes) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The hashes, begins and ends of a text's words, copied."""
    size = np.array([len(text)], np.uint64)
    words = _finder().find(np.frombuffer(text, np.uint8), np.zeros(1, np.uint64), size)
    return words.hashes.copy(), words.begins.copy(), words.ends.copy()


def _pieces(text: bytes, begins: NDArray[np.uint32], ends: NDArray[np.uint32], first: int, both: set[int]) -> Pieces:
    """From word `first` on; `both`: which of the words from there on the other text has, too."""
    begin = int(begins[first]) if first else len(text) - len(text.lstrip())
    behind = first + SHOWN_WORDS
    stop = min(int(ends[behind - 1]) if behind < len(ends) else len(text), begin + MOST_BYTES)
    spans: list[list[int]] = []  # marked bytes; neighbours are one
    for number, span in enumerate(zip(begins[first:behind].tolist(), ends[first:behind].tolist(), strict=True)):
        if number in both:
            continue
        if spans and number - 1 not in both:
            spans[-1][1] = span[1]
        else:
            spans.append([*span])
    bounds = [begin, *(min(place, stop) for span in spans for place in span), stop]
    pieces = [
        (text[low:high].decode(errors="ignore"), bool(number % 2))
        for number, (low, high) in enumerate(pairwise(bounds))
    ]
    dots = ("\u2026 " if first else "", "\u2026" if stop < len(text) else "")
    return tuple(piece for piece in [(dots[0], False), *pieces, (dots[1], False)] if piece[0])
