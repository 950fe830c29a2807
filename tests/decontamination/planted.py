"""A labelled set: items of real benchmarks planted into real text in fourteen ways, near misses, and clean documents.

The benchmarks are GSM8K (test) and every other item of MMLU's validation split; near misses are items of GSM8K's train
split and the other items of MMLU. Both kinds are planted alike: between two lines of a document of documentation.
Questions of fewer than `LEAST_WORDS` words ("Market economies") are left out, and so are halves of fewer: any text may
hold them.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import orjson
import zstandard

from corpusmill.decontamination.items import Item as IndexedItem
from corpusmill.decontamination.search import Searcher, entries_by_sequence
from corpusmill.decontamination.seeds import build_seeds

DATA = Path(__file__).parents[3] / "shared" / "data"
LARGEST_DOCUMENT = 20_000
SHORT_WORDS = 13
LEAST_WORDS = 5


@dataclass(frozen=True)
class Item:
    """A row of a benchmark."""

    id: str
    question: str
    answer: str

    @property
    def text(self) -> str:
        return f"{self.question}\n{self.answer}"


@dataclass(frozen=True)
class Planted:
    """A document; `item` stands in it in the way `way` ("near": an item of another split), nothing if clean."""

    text: str
    way: str
    item: str


def is_there() -> bool:
    """Whether the benchmarks and the corpus can be read here."""
    return (DATA / "benchmarks").is_dir() and (DATA / "corpus").is_dir()


def read_items(name: str) -> list[Item]:
    """The items of one file of the benchmarks."""
    with gzip.open(DATA / "benchmarks" / f"{name}.jsonl.gz") as stream:
        return [Item(**orjson.loads(line)) for line in stream]


def benchmark_items() -> list[Item]:
    """What the text is searched for."""
    return read_items("gsm8k_test") + read_items("mmlu_validation")[::2]


def near_misses() -> list[Item]:
    """Items of other splits."""
    return read_items("gsm8k_train_2000") + read_items("mmlu_validation")[1::2]


def read_corpus(files: int = 4) -> Iterator[str]:
    """The corpus's texts."""
    return read_texts(sorted((DATA / "corpus").iterdir())[:files])


def read_texts(paths: Iterable[Path]) -> Iterator[str]:
    """The texts of .jsonl.zst files."""
    for path in paths:
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            for line in io.BufferedReader(stream):  # type: ignore[type-var]
                yield orjson.loads(line)["text"]


# The ways in which an item gets into a text. Each: (item, generator of chance) -> text.


def _verbatim(item: Item, _: random.Random) -> str:
    return item.text


def _question(item: Item, _: random.Random) -> str:
    return item.question


def _rewrapped(item: Item, chance: random.Random) -> str:
    return "\n".join(textwrap.wrap(item.text, chance.choice([30, 40, 72])))


def _case(item: Item, chance: random.Random) -> str:
    return item.text.upper() if chance.random() < 0.5 else item.text.lower()


def _punctuation(item: Item, chance: random.Random) -> str:
    return re.sub(r"[^\w\s]", "" if chance.random() < 0.5 else " ", item.text)


def _typography(item: Item, _: random.Random) -> str:
    text = re.sub(r"\"([^\"]*)\"", "“\\1”", item.text)
    text = text.replace("'", "\u2019").replace("...", "…").replace(" - ", " \u2013 ").replace("--", "—")
    return re.sub(r"(?<=\d) (?=\w)", "\u00a0", text).replace("fi", "ﬁ").replace("fl", "ﬂ")


def _markdown(item: Item, chance: random.Random) -> str:
    words = [f"{mark}{word}{mark}" if (mark := chance.choice(["", "", "", "*", "**", "_", "`"])) else word
             for word in item.question.split(" ")]  # fmt: skip
    return f"### Question\n\n> {' '.join(words)}\n\n* **Answer**: {item.answer}"


def _hyphenated(item: Item, _: random.Random) -> str:
    lines, line = [], ""
    for word in item.text.split():
        room = 40 - len(line) - 1
        if len(word) + 1 > room >= 4 and word.isalpha() and len(word) >= 6:
            cut = min(room - 2, len(word) - 3)
            lines.append(f"{line} {word[:cut]}-")
            line = word[cut:]
        elif len(line) + len(word) > 40:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def _replaced(share: float) -> Callable[[Item, random.Random], str]:
    def replace(item: Item, chance: random.Random) -> str:
        words = item.text.split()
        for place in chance.sample(range(len(words)), max(1, round(share * len(words)))):
            words[place] = chance.choice(REPLACEMENTS)
        return " ".join(words)

    return replace


def _mistyped(item: Item, chance: random.Random) -> str:
    letters = list(item.text)
    for place in chance.sample(range(len(letters) - 1), max(1, len(letters) // 60)):
        if chance.random() < 0.5:
            letters[place], letters[place + 1] = letters[place + 1], letters[place]
        else:
            letters[place] = chance.choice("abcdefghijklmnopqrstuvwxyz")
    return "".join(letters)


def _half(which: int) -> Callable[[Item, random.Random], str]:
    def cut(item: Item, chance: random.Random) -> str:
        words = (item.text if chance.random() < 0.5 else item.question).split()
        middle = len(words) // 2
        return " ".join(words[:middle] if which == 0 else words[middle:])

    return cut


REPLACEMENTS = [
    "ability",
    "table",
    "window",
    "market",
    "reason",
    "simple",
    "yellow",
    "person",
    "carry",
    "remove",
    "during",
]

WAYS: dict[str, Callable[[Item, random.Random], str]] = {
    "verbatim": _verbatim,
    "question alone": _question,
    "re-wrapped": _rewrapped,
    "case": _case,
    "punctuation": _punctuation,
    "typography": _typography,
    "markdown": _markdown,
    "hyphenation": _hyphenated,
    "5 % replaced": _replaced(0.05),
    "10 % replaced": _replaced(0.1),
    "typing errors": _mistyped,
    "first half": _half(0),
    "second half": _half(1),
    "short items": _verbatim,
}
EXACT_WAYS = tuple(WAYS)[:8]


def plant(
    half: int, draw: int = 0, each: int = 60, near: int = 600, clean: int = 1500, corpus: Iterable[str] | None = None
) -> list[Planted]:
    """The labelled documents; their items are those of one half (0 or 1) of the benchmarks, their texts the corpus's
    or those given.

    `draw` numbers the choices of chance: items, texts, places and changes; the rule was chosen on draw 0 of half 0.
    """
    chance = random.Random(2 * draw + half)
    texts = [text for text in corpus or read_corpus() if 200 < len(text) < LARGEST_DOCUMENT]
    chance.shuffle(texts)
    left = iter(texts)
    items = [
        item for item in benchmark_items() if half_of(item.id) == half and len(item.question.split()) >= LEAST_WORDS
    ]
    short = [item for item in items if 8 <= len(item.text.split()) < SHORT_WORDS]
    planted = []
    for way, rewrite in WAYS.items():
        pool = short if way == "short items" else items
        texts_of_way = ((item, rewrite(item, chance)) for item in chance.sample(pool, len(pool)))
        enough = ((item, text) for item, text in texts_of_way if len(text.split()) >= LEAST_WORDS)
        planted += [Planted(_insert(next(left), text, chance), way, item.id) for item, text in islice(enough, each)]
    misses = [item for item in near_misses() if half_of(item.id) == half]
    for item in chance.sample(misses, near):
        planted.append(Planted(_insert(next(left), item.text, chance), "near", item.id))
    return planted + [Planted(next(left), "clean", "") for _ in range(clean)]


def half_of(identity: str) -> int:
    """Which half of the items one belongs to."""
    return sum(identity.encode()) % 2


def _insert(text: str, item: str, chance: random.Random) -> str:
    lines = text.split("\n")
    place = chance.randrange(len(lines) + 1)
    return "\n".join([*lines[:place], item, *lines[place:]])


@dataclass
class Measured:
    """Of each way: how many documents, and in how many the planted item (or any, if none was planted) was met."""

    documents: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)

    def recall(self, way: str = "") -> float:
        """Of one way, or of all."""
        ways = [way] if way else list(WAYS)
        return sum(self.met[way] for way in ways) / sum(self.documents[way] for way in ways)

    def precision(self) -> float:
        """Of the documents with hits, those that hold the item."""
        right = sum(self.met[way] for way in WAYS)
        return right / (right + self.met["near"] + self.met["clean"])


Rule = Callable[[list[str]], list[set[str]]]
"""Texts to the items that each holds."""


def covered_words(items: list[Item], threshold: str = "default") -> Rule:
    """The rule of decontamination."""
    seeds, entries = build_seeds([IndexedItem("", item.id, item.question, item.answer) for item in items], 5)
    searcher, names = Searcher(seeds, threshold), entries_by_sequence(entries)

    def search(texts: list[str]) -> list[set[str]]:
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(text) for text in encoded], dtype=np.uint64)
        starts = ends - np.array([len(text) for text in encoded], np.uint64)
        met: list[set[str]] = [set() for _ in texts]
        for hit in searcher.search(np.frombuffer(b"".join(encoded), np.uint8), starts, ends):
            met[hit.text] |= {entry.item for entry in names[hit.sequence]}
        return met

    return search


def shared_run(items: list[Item], words: int = 13) -> Rule:
    """Any run of 13 words in common, in lower case without punctuation (GPT-3, datatrove)."""
    owners: dict[tuple[str, ...], set[str]] = {}
    for item in items:
        for run in _runs(item.text, words):
            owners.setdefault(run, set()).add(item.id)
    return lambda texts: [{owner for run in _runs(text, words) for owner in owners.get(run, ())} for text in texts]


def _runs(text: str, size: int) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return (tuple(words[at : at + size]) for at in range(len(words) - size + 1))


def measure(documents: list[Planted], rule: Rule | None = None) -> Measured:
    """Apply a rule (that of decontamination) to labelled documents."""
    measured = Measured()
    met = (rule or covered_words(benchmark_items()))([document.text for document in documents])
    for document, items in zip(documents, met, strict=True):
        measured.documents[document.way] += 1
        measured.met[document.way] += document.item in items if document.way in WAYS else bool(items)
    return measured
