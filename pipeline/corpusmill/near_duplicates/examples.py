"""Pairs of near-duplicates for people: which of many, and what differs between two texts.

In: matches in order of documents; two texts as UTF-8. Out: the places of the matches to show; each text's pieces, with
whether the other text lacks them.

Invariants: the matches shown depend on matches and their shards alone. Unmarked words of a pair are the same, in the
same order. Price: one pass over the matches; two texts are split into words, and SHOWN_WORDS of each are compared.
"""

from __future__ import annotations

import unicodedata
from difflib import SequenceMatcher
from itertools import pairwise

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
    bounds = np.cumsum([0, *map(len, texts)], dtype=np.uint64)
    words = WordFinder(*letter_table()).find(np.frombuffer(b"".join(texts), np.uint8), bounds[:-1], bounds[1:])
    hashes = np.split(words.hashes, words.first[1:-1])
    spans = np.split(np.column_stack([words.begins, words.ends]).astype(np.int64), words.first[1:-1])
    shorter = min(map(len, hashes))
    differing = np.flatnonzero(hashes[0][:shorter] != hashes[1][:shorter])
    first = max(int(differing[0] if len(differing) else shorter) - WORDS_BEFORE, 0)
    shown = [of_text[first : first + SHOWN_WORDS].tolist() for of_text in hashes]
    opcodes = SequenceMatcher(None, shown[0], shown[1], autojunk=False).get_opcodes()
    marks = [opcode[1:] for opcode in opcodes if opcode[0] != "equal"]
    return (
        _pieces(texts[0], spans[0], first, [mark[:2] for mark in marks]),
        _pieces(texts[1], spans[1] - len(texts[0]), first, [mark[2:] for mark in marks]),
    )


def _pieces(text: bytes, spans: NDArray[np.int64], first: int, marks: list[tuple[int, int]]) -> Pieces:
    """From word `first` on; `marks`: [low, high) of the words from there on that the other text lacks, maybe empty."""
    begin = int(spans[first, 0]) if first else len(text) - len(text.lstrip())
    behind = first + SHOWN_WORDS
    stop = min(int(spans[behind - 1, 1]) if behind < len(spans) else len(text), begin + MOST_BYTES)
    marked_bytes = [spans[[first + low, first + high - 1], [0, 1]].tolist() for low, high in marks if low < high]
    bounds = [begin, *(min(place, stop) for span in marked_bytes for place in span), stop]
    pieces = [
        (text[low:high].decode(errors="ignore"), bool(number % 2))
        for number, (low, high) in enumerate(pairwise(bounds))
    ]
    dots = ("\u2026 " if first else "", "\u2026" if stop < len(text) else "")
    return tuple(piece for piece in [(dots[0], False), *pieces, (dots[1], False)] if piece[0])
