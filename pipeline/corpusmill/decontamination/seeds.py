"""The seeds of benchmarks: the runs of words that start a comparison, their places in items, and their weights.

A folder of arrays, mapped read-only, so that all workers of a machine share one copy:

    keys        u64  one per seed, ascending: the mixed hash of `seed_words` words
    first       u32  keys + 1: the postings of seed i are those from first[i] to first[i + 1]
    postings    u32  (n, 2): sequence, the word in it where the seed begins
    buckets     u32  where the keys with each value of the upper bits begin
    filter      u8   a bit for each value of still more upper bits, 16 to 32 a key: most words end here
    words       u64  the words of all sequences, back to back
    weights     f32  (words, 4): the word's own weight; the rarity of the rarest run of `seed_words` words that holds
                     it; the rarities of the runs of `seed_words` and of SHORT_RUN words that begin there
    bounds      u32  sequences + 1: where their words begin
    questions   u32  one per sequence: how many of its words are the question's; all of them in a passage
    characters, expansions    the table that texts are read with (text_words.py)
    index.json  version, settings, counts; items.jsonl: sequence, benchmark, item, line

A sequence, which several items may share, is a question followed by its answer, or a passage. A run of words in more
than `MOST_SEQUENCES` sequences, or of common phrases only, has no weight and is no seed; the weight of one in n
sequences is 1 / n. Nothing depends on the text that is searched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import unidata_version

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.decontamination.text_words import WordFinder, character_table
from corpusmill.errors import CorruptDataError
from corpusmill.kernels.compiled import inlined, kernel
from corpusmill.kernels.mapping import mapped

if TYPE_CHECKING:
    from corpusmill.decontamination.items import Item

MOST_SEQUENCES = 60
PHRASE_WORDS = 3

BASE = np.uint64(0x9DDFEA08EB382D69)
_ODD = np.uint64(0xFF51AFD7ED558CCD)


@inlined
def mixed(run: Any) -> Any:
    """The key of a run of words, from its polynomial hash."""
    run = (run ^ (run >> np.uint64(32))) * _ODD
    return run ^ (run >> np.uint64(29))


@kernel
def _run_keys(words: Any, size: Any, keys: Any) -> None:
    leaves = np.uint64(1)
    for _ in range(size - 1):
        leaves *= BASE
    run = np.uint64(0)
    for i in range(len(words)):
        run = run * BASE + words[i]
        if i >= size - 1:
            keys[i - size + 1] = mixed(run)
            run -= words[i - size + 1] * leaves


def run_keys(words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """uint64 (words - size + 1,): the key of every run of `size` words."""
    keys = np.empty(max(len(words) - size + 1, 0), np.uint64)
    if len(keys):
        _run_keys(np.require(words, requirements="C"), size, keys)
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Every run of words within one sequence, sorted by key, then place.

    `keys` uint64 (n,); `places` int64 (n,), the run's first word; `weights` float32 (n,), 0 for common runs and for the
    second occurrence of a run in a sequence.
    """

    keys: NDArray[np.uint64]
    places: NDArray[np.int64]
    weights: NDArray[np.float32]

    def by_place(self, words: int) -> NDArray[np.float32]:
        """float32 (words,): the weight of the run that begins at each word."""
        by_place = np.zeros(words, np.float32)
        by_place[self.places] = self.weights
        return by_place


def find_runs(words: NDArray[np.uint64], bounds: NDArray[np.int64], size: int, common: NDArray[np.bool_]) -> Runs:
    """The runs of `size` words of the sequences `words[bounds[i] : bounds[i + 1]]`.

    `common` bool (words,): whether a common run begins there (`begins_common`); a run of nothing but common runs has
    weight 0.
    """
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    keys = run_keys(words, size)
    (inside,) = np.nonzero(owner[: len(keys)] == owner[len(owner) - len(keys) :])
    places = inside[np.argsort(keys[inside], kind="stable")]
    keys, owner = keys[places], owner[places]
    new_key = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    new_pair = new_key | np.append(True, owner[1:] != owner[:-1])[: len(keys)]
    group = np.cumsum(new_key) - 1
    sequences = np.bincount(group, new_pair)[group] if len(keys) else np.zeros(0)
    all_common = np.logical_and.reduce([common[places + behind] for behind in range(size - PHRASE_WORDS + 1)])
    informative = new_pair & (sequences <= MOST_SEQUENCES) & ~all_common
    weights = np.where(informative, 1 / np.maximum(sequences, 1), 0).astype(np.float32)
    return Runs(keys, places, weights)


def common_runs(phrases: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The keys of all runs of `PHRASE_WORDS` words in these phrases, ascending."""
    return np.unique(np.concatenate([run_keys(words, PHRASE_WORDS) for words in phrases]))


def begins_common(words: NDArray[np.uint64], common: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether a common run begins at each word."""
    begins = np.zeros(len(words), np.bool_)
    begins[: max(len(words) - PHRASE_WORDS + 1, 0)] = is_among(run_keys(words, PHRASE_WORDS), common)
    return begins


def is_among(values: NDArray[np.uint64], few: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool (values,): which of many values are among `few`, ascending. Unlike np.isin, this does not sort the many."""
    places = np.minimum(np.searchsorted(few, values), len(few) - 1)
    among: NDArray[np.bool_] = few[places] == values
    return among


VERSION = 2
SHORT_RUN = 3  # words that count beside a seed of the same item
COMMON = Path(__file__).with_name("common.txt")
COMMON_WORD, IN_PHRASE, CHARACTER = 0.3, 0.1, 0.5  # their weights; any other word has 1
INDEX_FILE, ITEMS_FILE = "index.json", "items.jsonl"
BATCH_CHARACTERS = 1 << 22
FILTER_BITS_A_KEY = 16


@dataclass(frozen=True, slots=True, eq=False)
class Seeds:
    """An index; the arrays are as above."""

    seed_words: int
    keys: NDArray[np.uint64]
    first: NDArray[np.uint32]
    postings: NDArray[np.uint32]
    buckets: NDArray[np.uint32]
    filter: NDArray[np.uint8]
    words: NDArray[np.uint64]
    weights: NDArray[np.float32]
    bounds: NDArray[np.uint32]
    questions: NDArray[np.uint32]
    characters: NDArray[np.uint32]
    expansions: NDArray[np.uint32]

    def __post_init__(self) -> None:
        for _, array in self.arrays():
            array.flags.writeable = False  # like mapped arrays, because numba compiles writable arrays separately

    @property
    def sequences(self) -> int:
        return len(self.questions)

    @property
    def bytes(self) -> int:
        """The size of all arrays except the table of characters."""
        return sum(array.nbytes for name, array in self.arrays() if name not in {"characters", "expansions"})

    def arrays(self) -> list[tuple[str, NDArray[Any]]]:
        """Each array with its name."""
        return [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "seed_words"]


_DTYPES = {
    **dict.fromkeys(("keys", "words"), "<u8"),
    **dict.fromkeys(("first", "postings", "buckets", "bounds", "questions", "characters", "expansions"), "<u4"),
    "filter": "u1",
    "weights": "<f4",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An item and one of its sequences. `part`: "item" (question and answer) or "passage"."""

    sequence: int
    benchmark: str
    item: str
    part: str


def build_seeds(items: Iterable[Item], seed_words: int) -> tuple[Seeds, list[Entry]]:
    """The index of all items of all benchmarks, and the entry of each sequence of each item."""
    finder = WordFinder(*character_table())
    numbers: dict[tuple[bytes, int], int] = {}
    entries: list[Entry] = []
    for batch in _batches(items):
        texts = [text.encode() for item in batch for text in (item.question, item.answer, item.passage)]
        words, first = _find(finder, texts)
        for item, (question, answer, passage, end) in zip(batch, _quadruples(first), strict=True):
            for begin, stop, asked, part in (
                (question, passage, answer - question, "item"),
                (passage, end, end - passage, "passage"),
            ):
                if part == "item" or stop > begin:
                    sequence = numbers.setdefault((words[begin:stop].tobytes(), asked), len(numbers))
                    entries.append(Entry(sequence, item.benchmark, item.name, part))
    lengths = np.array([len(key) // 8 for key, _ in numbers], np.int64)
    return _indexed(
        finder,
        seed_words,
        words=np.frombuffer(b"".join(key for key, _ in numbers), np.uint64),
        bounds=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        questions=np.array([asked for _, asked in numbers], np.uint32),
    ), entries


def _indexed(
    finder: WordFinder,
    seed_words: int,
    words: NDArray[np.uint64],
    bounds: NDArray[np.int64],
    questions: NDArray[np.uint32],
) -> Seeds:
    joining, *phrases = (line for line in COMMON.read_bytes().splitlines() if not line.startswith(b"#"))
    phrase_words, first = _find(finder, phrases)
    common = begins_common(words, common_runs([phrase_words[first[i] : first[i + 1]] for i in range(len(phrases))]))
    alone = np.where(words & np.uint64(1), np.float32(CHARACTER), np.float32(1))
    alone[is_among(words, np.unique(_find(finder, [joining])[0]))] = COMMON_WORD
    for behind in range(PHRASE_WORDS):
        alone[np.flatnonzero(common) + behind] = IN_PHRASE
    runs, short = find_runs(words, bounds, seed_words, common), find_runs(words, bounds, SHORT_RUN, common)
    rarity, short_rarity = runs.by_place(len(words)), short.by_place(len(words))
    most = rarity.copy()  # of the runs that hold a word
    for behind in range(1, min(seed_words, len(words))):
        np.maximum(most[behind:], rarity[: len(words) - behind], out=most[behind:])
    informative = runs.weights > 0
    keys, places = runs.keys[informative], runs.places[informative]
    new = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))[places]
    keys, begins = keys[new], np.append(np.flatnonzero(new), len(keys))
    bits = max(len(keys).bit_length(), 3)
    filter_bits = bits + (FILTER_BITS_A_KEY - 1).bit_length()
    filter_ = np.zeros(1 << filter_bits, np.bool_)
    filter_[keys >> np.uint64(64 - filter_bits)] = True
    edges = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    return Seeds(
        seed_words,
        keys=keys,
        first=begins.astype(np.uint32),
        postings=np.stack([owner, places - bounds[owner]], axis=1).astype(np.uint32),
        buckets=np.append(np.searchsorted(keys, edges), len(keys)).astype(np.uint32),
        filter=np.packbits(filter_, bitorder="little"),
        words=words,
        weights=np.stack([alone, most, rarity, short_rarity], axis=1),
        bounds=bounds.astype(np.uint32),
        questions=questions,
        characters=finder.characters,
        expansions=finder.expansions,
    )


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item.question) + len(item.answer) + len(item.passage)
        if size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    yield batch


def _quadruples(first: NDArray[np.int64]) -> Iterator[list[int]]:
    """For each item: where the words of its question, answer and passage begin, and where its last word ends."""
    places = first.tolist()
    return (places[at : at + 4] for at in range(0, len(places) - 1, 3))


def _find(finder: WordFinder, texts: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, texts), np.uint64, len(texts))
    ends = np.cumsum(lengths, dtype=np.uint64)
    words = finder.find(np.frombuffer(b"".join(texts), np.uint8), ends - lengths, ends)
    return words.hashes.copy(), words.first


def write_seeds(folder: Path, seeds: Seeds, entries: list[Entry]) -> None:
    """Write the index; `index.json` comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in seeds.arrays():
        (folder / name).write_bytes(array.tobytes())
    (folder / ITEMS_FILE).write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in entries))
    counts = {name: list(array.shape) for name, array in seeds.arrays()}
    about = {"version": VERSION, "seed_words": seeds.seed_words, "unicode": unidata_version, "arrays": counts}
    (folder / INDEX_FILE).write_text(json.dumps(about, indent=1) + "\n")


def open_seeds(folder: Path) -> Seeds:
    """Map an index. CorruptDataError if a file is missing or has another size than `index.json` states."""
    try:
        about = json.loads((folder / INDEX_FILE).read_bytes())
        arrays = {name: _mapped(folder / name, _DTYPES[name], shape) for name, shape in about["arrays"].items()}
        return Seeds(about["seed_words"], **arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(
            "benchmark.index_incomplete: an index of benchmarks is incomplete",
            where=folder,
            expected=f"the files that its {INDEX_FILE} lists",
            got=error,
            next_step="delete the receipt of the step that wrote it and rerun the step",
        ) from error


def _mapped(path: Path, dtype: str, shape: list[int]) -> NDArray[Any]:
    """ValueError for a file of another size."""
    return mapped(path, dtype).reshape(shape)


def read_entries(folder: Path) -> list[Entry]:
    """The entries of a written index."""
    return [Entry(**orjson.loads(line)) for line in (folder / ITEMS_FILE).read_bytes().splitlines()]
