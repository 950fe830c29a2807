"""A labelled set of near-duplicates: real documents and edited copies of them, with the removals by definition.

The copies' similarities to their documents lie on both sides of any usual threshold: what is removed follows from the
texts alone (tests/oracles/near_duplicates.py), not from the edit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.decontamination.planted import read_corpus
from tests.oracles.near_duplicates import Match, Run, decide_quickly, runs_of

LARGEST_DOCUMENT = 12_000
SIMILARITY, WORDS = "0.8", 5
FILLERS = ["ability", "table", "window", "market", "reason", "simple", "yellow", "person", "carry", "remove", "during"]


@dataclass(frozen=True)
class Labelled:
    """Texts in the order of the dataset, the way each was made ("" for a document as it was), and what the definition
    says of each."""

    texts: list[str]
    ways: list[str]
    sets: list[set[Run]]
    matches: list[Match | None]

    @property
    def removed(self) -> set[int]:
        """The documents that the definition removes."""
        return {number for number, match in enumerate(self.matches) if match}


def _replaced(text: str, chance: random.Random) -> str:
    pieces = re.split(r"(\W+)", text)
    share = chance.uniform(0, 0.03)
    return "".join(chance.choice(FILLERS) if piece.isalpha() and chance.random() < share else piece for piece in pieces)


def _omitted(text: str, chance: random.Random) -> str:
    pieces = re.split(r"(\s+)", text)
    share = chance.uniform(0, 0.04)
    return "".join(piece for piece in pieces if piece.isspace() or chance.random() >= share)


def _framed(text: str, chance: random.Random) -> str:
    def frame() -> str:
        return " ".join(chance.choice(FILLERS) for _ in range(chance.randint(0, max(2, len(text) // 60))))

    return f"{frame()}\n{text}\n{frame()}"


def _cut(text: str, chance: random.Random) -> str:
    first, last = chance.uniform(0, 0.15), chance.uniform(0.85, 1)
    return text[int(first * len(text)) : int(last * len(text))]


def _punctuated(text: str, chance: random.Random) -> str:
    text = re.sub(r"[^\w\s]", chance.choice(["", " ", "\u2014"]), text)
    return chance.choice([str.upper, str.lower, str.title, str])(text)


def _numbered(text: str, chance: random.Random) -> str:
    share = chance.uniform(0, 0.4)
    return re.sub(r"\d+", lambda old: str(chance.randrange(10**6)) if chance.random() < share else old[0], text)


def _moved(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    return "\n".join(lines[at:] + lines[:at])


def _turkish(text: str, chance: random.Random) -> str:
    upper = text.replace("i", "İ").replace("ı", "I").upper()
    return upper if chance.random() < 0.5 else upper.replace("I", "ı").replace("İ", "i").lower()


def _german(text: str, chance: random.Random) -> str:
    return chance.choice([str.upper, str.casefold, lambda spelled: spelled.replace("ß", "ẞ")])(text)


def _retyped(text: str, chance: random.Random) -> str:
    share = chance.uniform(0, 0.04)
    return "".join(chance.choice("中文のはไท") if character.isalpha() and chance.random() < share else character
                   for character in text)  # fmt: skip


WAYS: dict[str, Callable[[str, random.Random], str]] = {
    "words replaced": _replaced,
    "words left out": _omitted,
    "header and footer": _framed,
    "ends cut": _cut,
    "case and punctuation": _punctuated,
    "other numbers": _numbered,
    "parts moved": _moved,
    "turkish": _turkish,
    "german": _german,
    "without spaces": _retyped,
    "three words": _punctuated,
    "a chain": _replaced,
}


def plant(seed: int, originals: int = 1500, each: int = 80) -> Labelled:
    """`originals` documents, and copies of `each` others in every way, in an order drawn from `seed`."""
    chance = random.Random(seed)
    corpus = [text for text in read_corpus() if len(text) < LARGEST_DOCUMENT]
    chance.shuffle(corpus)
    pools = {
        "turkish": _passages(corpus, "ışğİ"),
        "german": _passages(corpus, "äöüß"),
        "without spaces": _passages(corpus, "のはを的是ไา"),
        "three words": [" ".join(text.split()[at : at + 3]) for text in corpus for at in (10, 20)],
    }
    left = iter(corpus)
    rows = [(next(left), "") for _ in range(originals)]
    for way, edit in WAYS.items():
        pool = pools.get(way)
        for _ in range(each):
            text = chance.choice(pool) if pool else next(left)
            rows.append((text, ""))
            for _ in range(chance.randint(1, 4)):
                copy = edit(text, chance)
                rows.append((copy, way))
                text = copy if way == "a chain" else text
    chance.shuffle(rows)
    texts, ways = [text for text, _ in rows], [way for _, way in rows]
    sets = [runs_of(text, WORDS) for text in texts]
    return Labelled(texts, ways, sets, decide_quickly(sets, SIMILARITY))


def _passages(corpus: list[str], letters: str, least: int = 12, size: int = 900) -> list[str]:
    """Passages of the documents that have some of these letters."""
    passages = [text[begin:end] for text in corpus for begin, end in pairwise(range(0, len(text), size))]
    return [passage for passage in passages if sum(passage.count(letter) for letter in letters) >= least]
