"""Near-duplicate documents by their definition: sets of runs of words, Jaccard, decided in order."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

SCRIPTS = (
    *(
        "CJK ",
        "IDEOGRAPHIC ",
        "HIRAGANA ",
        "HENTAIGANA ",
        "KATAKANA",
        "HALFWIDTH KATAKANA",
        "VERTICAL KANA ",
        "VERTICAL IDEOGRAPHIC ",
        "MASU ",
    ),
    *("THAI ", "KHMER ", "LAO ", "MYANMAR ", "YI ", "BOPOMOFO ", "TAI ", "NEW TAI "),
)
"""Beginnings of the names of characters that are words by themselves."""

Run = tuple[str, ...]


class Match(NamedTuple):
    """The kept document that a dropped one is most similar to: the earliest of several."""

    kept: int
    similarity: Fraction


def words_of(text: str) -> list[str]:
    """Letters, marks and digits of the folded text; a character of a script without spaces with its marks."""
    words, word, alone = [], "", False
    for character in unicodedata.normalize("NFC", text).casefold() + " ":
        category = unicodedata.category(character)
        if category[0] == "M":
            word += character
            continue
        single = category[0] == "L" and unicodedata.name(character, "").startswith(SCRIPTS)
        belongs = category[0] == "L" or category == "Nd"
        if word and (not belongs or single or alone):
            words.append(word)
            word = ""
        if belongs:
            word += character
        alone = single
    return words


def runs_of(text: str, words: int) -> set[Run]:
    """Every run of `words` words; all of a text that has fewer, even none."""
    spelled = words_of(text)
    return {tuple(spelled[at : at + words]) for at in range(max(len(spelled) - words + 1, 1))}


def jaccard(one: set[Run], other: set[Run]) -> Fraction:
    """Of two sets that are not empty."""
    return Fraction(len(one & other), len(one | other))


def decide(
    texts: Sequence[str],
    similarity: str,
    words: int = 5,
    sources: Sequence[object] | None = None,
    references: int = 0,
) -> list[Match | None]:
    """For each text, in order: None if it is kept, else its match.

    `similarity`: a decimal number. `sources`: of each text; only texts of one source are compared. The first
    `references` texts are kept whatever they are.
    """
    least = Fraction(similarity)
    sets = [runs_of(text, words) for text in texts]
    matches: list[Match | None] = []
    for number, own in enumerate(sets):
        match = None
        for kept in range(number if number >= references else 0):
            if matches[kept] is None and (sources is None or sources[kept] == sources[number]):
                shared = jaccard(sets[kept], own)
                if shared >= least and (match is None or shared > match.similarity):
                    match = Match(kept, shared)
        matches.append(match)
    return matches


class Index:
    """Sets of runs, and the most similar of those that were added; exact, for thousands of sets.

    Of two similar sets the beginnings, each with its rarest runs first, share a run: of n runs at least
    `similarity` * n are shared, so one of the rarest n - ceil(similarity * n) + 1 is.
    """

    def __init__(self, sets: Sequence[set[Run]], similarity: str) -> None:
        self.least = Fraction(similarity)
        ids: dict[Run, int] = {}
        self.sets = [{ids.setdefault(run, len(ids)) for run in own} for own in sets]
        self.counts = Counter(run for own in self.sets for run in own)
        self.holders: dict[int, list[int]] = defaultdict(list)

    def add(self, number: int) -> None:
        """Let `best` find the set `sets[number]`."""
        for run in self._beginning(number):
            self.holders[run].append(number)

    def best(self, number: int) -> Match | None:
        """The most similar of the added sets, the first of several; None if none is similar enough."""
        own, match = self.sets[number], None
        for kept in sorted({kept for run in self._beginning(number) for kept in self.holders[run]}):
            shared = len(self.sets[kept] & own)
            similarity = Fraction(shared, len(self.sets[kept]) + len(own) - shared)
            if similarity >= self.least and (match is None or similarity > match.similarity):
                match = Match(kept, similarity)
        return match

    def _beginning(self, number: int) -> list[int]:
        own = self.sets[number]
        return sorted(own, key=lambda run: (self.counts[run], run))[: len(own) - ceil(self.least * len(own)) + 1]


def decide_quickly(sets: Sequence[set[Run]], similarity: str, among: Iterable[int] | None = None) -> list[Match | None]:
    """`decide` for thousands of sets; with `among`, of those alone, in this order: every other has None."""
    index = Index(sets, similarity)
    matches: list[Match | None] = [None] * len(sets)
    for number in range(len(sets)) if among is None else among:
        matches[number] = index.best(number)
        if matches[number] is None:
            index.add(number)
    return matches


def unmatched(sets: Sequence[set[Run]], removed: Iterable[int], similarity: str) -> list[int]:
    """The removed sets that are similar to none of those that were kept."""
    index, gone = Index(sets, similarity), set(removed)
    for number in range(len(sets)):
        if number not in gone:
            index.add(number)
    return [number for number in sorted(gone) if index.best(number) is None]
