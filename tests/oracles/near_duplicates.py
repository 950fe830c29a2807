"""Near-duplicate documents by their definition: sets of runs of words, Jaccard, decided in order."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
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


def decide_quickly(sets: Sequence[set[Run]], similarity: str) -> list[Match | None]:
    """`decide` for thousands of sets. Of two similar sets, the beginnings (their rarest runs first) share a run: of
    n runs at least `similarity` * n are shared, so not all of the rarest n - ceil(similarity * n) + 1 are missing.
    """
    least = Fraction(similarity)
    ids: dict[Run, int] = {}
    counts: dict[int, int] = defaultdict(int)
    numbered = [{ids.setdefault(run, len(ids)) for run in own} for own in sets]
    for own in numbered:
        for run in own:
            counts[run] += 1
    holders: dict[int, list[int]] = defaultdict(list)
    matches: list[Match | None] = []
    for own in numbered:
        beginning = sorted(own, key=lambda run: (counts[run], run))[: len(own) - ceil(least * len(own)) + 1]
        candidates = {kept for run in beginning for kept in holders[run]}
        match = max(_similar(numbered, own, sorted(candidates), least), key=lambda pair: pair.similarity, default=None)
        if match is None:
            for run in beginning:
                holders[run].append(len(matches))
        matches.append(match)
    return matches


def _similar(sets: list[set[int]], own: set[int], candidates: list[int], least: Fraction) -> Iterator[Match]:
    for kept in candidates:
        shared = len(sets[kept] & own)
        similarity = Fraction(shared, len(sets[kept]) + len(own) - shared)
        if similarity >= least:
            yield Match(kept, similarity)
