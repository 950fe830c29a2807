"""Searches texts, or documents in files, for the items of benchmarks, and returns where they are.

Seeds are found with one rolling hash and one filter lookup per word, rarely more; decide.py says which make a hit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.decontamination.decide import decide, rules_of
from corpusmill.decontamination.seeds import BASE, SHORT_RUN, Entry, Seeds, mixed, run_keys
from corpusmill.decontamination.text_words import Places, WordFinder, Words
from corpusmill.documents.batch import DocumentBatch
from corpusmill.errors import full_device_explained
from corpusmill.kernels.compiled import kernel
from corpusmill.sources.copies import each_file


def met_seeds(seeds: Seeds, words: Words) -> NDArray[np.int32]:
    """int32 (n, 4): text, sequence, word of the text, word of the sequence; in the order of the text's words."""
    places = np.empty((len(words.hashes), 3), np.int64)
    arrays = (seeds.filter, seeds.buckets, seeds.keys)
    shifts = (64 - (len(seeds.filter) * 8).bit_length() + 1, 64 - (len(seeds.buckets) - 1).bit_length() + 1)
    filled = _probe(words.hashes, words.first, seeds.seed_words, *arrays, *shifts, places)
    places = places[:filled]
    begins, ends = seeds.first[places[:, 2]].astype(np.int64), seeds.first[places[:, 2] + 1].astype(np.int64)
    counts = ends - begins
    posting = np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    met = np.empty((len(posting), 4), np.int32)
    met[:, 0::2] = np.repeat(places[:, :2].astype(np.int32), counts, axis=0)
    met[:, 1::2] = seeds.postings[posting]
    return met


@kernel
def _probe(
    words: Any, texts: Any, size: Any, bits: Any, buckets: Any, keys: Any, bit_shift: Any, bucket_shift: Any,
    places: Any,
) -> Any:  # fmt: skip
    """Writes (text, word, seed) for each seed in the text; returns how many."""
    bit_shift, bucket_shift = np.uint64(bit_shift), np.uint64(bucket_shift)
    leaves = np.uint64(1)
    for _ in range(size - 1):
        leaves *= BASE
    filled = 0
    for text in range(len(texts) - 1):
        run = np.uint64(0)
        begin, end = texts[text], texts[text + 1]
        for i in range(begin, min(begin + size - 1, end)):
            run = run * BASE + words[i]
        for i in range(begin, end - size + 1):
            run = run * BASE + words[i + size - 1]
            key = mixed(run)
            run -= words[i] * leaves
            bit = key >> bit_shift
            if not bits[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7)) & np.uint8(1):
                continue
            bucket = key >> bucket_shift
            at, last = np.int64(buckets[bucket]), np.int64(buckets[bucket + np.uint64(1)])
            while at < last and keys[at] < key:
                at += 1
            if at < last and keys[at] == key:
                places[filled, 0], places[filled, 1], places[filled, 2] = text, i, at
                filled += 1
    return filled


BATCH_BYTES = 4 << 20
BATCH_WORDS = 1 << 20


@dataclass(frozen=True, slots=True)
class Hit:
    """A place of a text that covers enough of an item.

    `text`        which of the texts
    `sequence`    which sequence of the index (Entry tells the items)
    `begin`, `end`  bytes of the text's UTF-8
    `share`       share of the sequence that the place covers, by weight: rare words weigh more
    `words`       how many of the sequence's words it covers
    """

    text: int
    sequence: int
    begin: int
    end: int
    share: float
    words: int


class Searcher:
    """Searches for the items of one index. `threshold`: default, strict, or a share."""

    def __init__(self, seeds: Seeds, threshold: str | float = "default") -> None:
        self._seeds = seeds
        self._rules = rules_of(threshold)
        self._finder = WordFinder(seeds.characters, seeds.expansions)

    def search(self, text: NDArray[np.uint8], starts: Places, ends: Places) -> Iterator[Hit]:
        """The hits of the texts `text[starts[i] : ends[i]]`, in text order, by text, place and sequence.

        A text is searched as a whole, small ones together: memory is some 10 bytes per byte of the longest text.
        """
        first = 0
        while first < len(starts):
            last = max(int(np.searchsorted(ends, starts[first] + np.uint64(BATCH_BYTES))), first + 1)
            yield from self._search(text, starts[first:last], ends[first:last], first)
            first = last

    def covered(self, hit: Hit, passage: bytes) -> list[list[int]]:
        """[begin, end) of the bytes of a hit's passage that the sequence shares, in runs of SHORT_RUN words or more."""
        text = np.frombuffer(passage, np.uint8)
        words = self._finder.find(text, np.zeros(1, np.uint64), np.array([len(text)], np.uint64))
        first, end = self._seeds.bounds[[hit.sequence, hit.sequence + 1]].tolist()
        shared = np.isin(run_keys(words.hashes, SHORT_RUN), run_keys(self._seeds.words[first:end], SHORT_RUN))
        marked = np.zeros(len(words.hashes) + 1, np.bool_)
        for behind in range(SHORT_RUN):
            marked[np.flatnonzero(shared) + behind] = True
        edges = np.flatnonzero(np.diff(marked, prepend=False))
        return [
            [int(words.begins[begin]), int(words.ends[stop - 1])]
            for begin, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        ]

    def met_alone(self) -> tuple[NDArray[np.bool_], int]:
        """Search each sequence for itself: bool (sequences,) of those that are hits, and how many of their seeds were
        found.
        """
        seeds = self._seeds
        bounds = seeds.bounds.astype(np.int64)
        met = np.zeros(seeds.sequences, np.bool_)
        first = seeds_met = 0
        while first < seeds.sequences:
            last = max(int(np.searchsorted(bounds, bounds[first] + BATCH_WORDS, side="right")) - 1, first + 1)
            hashes = seeds.words[bounds[first] : bounds[last]].copy()
            nowhere = np.zeros(len(hashes), np.uint32)
            words = Words(hashes, nowhere, nowhere, bounds[first : last + 1] - bounds[first])
            shared = met_seeds(seeds, words)
            own = shared[shared[:, 1] == shared[:, 0] + first]
            met[decide(seeds, words, own, self._rules)["sequence"]] = True
            seeds_met += int(np.count_nonzero(own[:, 2] == words.first[own[:, 0]] + own[:, 3]))
            first = last
        return met, seeds_met

    def _search(self, text: NDArray[np.uint8], starts: Places, ends: Places, first: int) -> Iterator[Hit]:
        words = self._finder.find(text, starts, ends)
        hits = decide(self._seeds, words, met_seeds(self._seeds, words), self._rules)
        offsets = (starts - starts[0]).astype(np.int64)
        begins = words.begins[hits["first_word"]] - offsets[hits["text"]]
        stops = words.ends[hits["end_word"] - 1] - offsets[hits["text"]]
        for at in np.lexsort((hits["sequence"], begins, hits["text"])).tolist():
            text_number, sequence, _, _, words_covered, share = hits[at].item()
            place = int(begins[at]), int(stops[at])
            yield Hit(first + text_number, sequence, *place, round(share, 3), words_covered)


HIT_KEYS = ("benchmark", "item", "file", "line", "id", "begin", "end", "share")
LONGEST_HIT_BYTES = 1 << 20


def is_hits(file: BinaryIO) -> bool:
    """Whether `search_files` wrote a file: it is empty, or its first line is a hit."""
    first = file.readline(LONGEST_HIT_BYTES)
    try:
        return not first or tuple(orjson.loads(first)) == HIT_KEYS
    except (orjson.JSONDecodeError, TypeError):
        return False


SetAside = Callable[[DocumentBatch, int], None]
"""Takes the malformed lines of a batch, and its number of documents."""


@dataclass
class Searched:
    """What a search has read, and how often it found each item."""

    documents: int = 0
    text_bytes: int = 0
    documents_hit: int = 0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)


def search_files(
    inputs: list[str],
    hits: Path,
    searcher: Searcher,
    entries: Iterable[Entry],
    rejected: AbstractContextManager[SetAside],
    *,
    text_field: str = "text",
    id_field: str = "id",
    endpoint_url: str | None = None,
) -> Searched:
    """Search the documents of files and write `hits`: JSON lines, one for each item of each place.

    `file`, `line` (from 1) and `id` name the document, `begin` and `end` are bytes of its text as UTF-8. `rejected`
    takes malformed lines, and may raise an error at the end, before `hits` gets its name. SourceError for a missing
    input, StorageFullError for a full disk.
    """
    by_sequence = entries_by_sequence(entries)
    searched = Searched()
    partial = hits.with_name(hits.name + ".partial")
    next_step = "free space on that device, then run the command again"
    with full_device_explained(
        "decontamination.disk_full: no space left while writing hits", where=hits, next_step=next_step
    ):
        hits.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as sink, rejected as set_aside:
                for file in each_file(inputs, endpoint_url):
                    for batch in file.documents(text_field, id_field):
                        set_aside(batch, batch.documents)
                        for row in _search(batch, searcher, by_sequence, searched):
                            sink.write(orjson.dumps(row) + b"\n")
            partial.replace(hits)
        finally:
            partial.unlink(missing_ok=True)
    return searched


def entries_by_sequence(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """{sequence: the items that have it}."""
    by_sequence: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_sequence[entry.sequence].append(entry)
    return by_sequence


def _search(
    batch: DocumentBatch, searcher: Searcher, entries: dict[int, list[Entry]], searched: Searched
) -> Iterator[dict[str, Any]]:
    bounds = batch.bounds.astype(np.uint64)
    identities = batch.each_id()
    texts_hit = set()
    for hit in searcher.search(batch.text, bounds[:-1] + np.uint64(1), bounds[1:]):
        texts_hit.add(hit.text)
        for entry in entries[hit.sequence]:
            searched.hits[entry.benchmark, entry.item] += 1
            line, identity = int(batch.line_numbers[hit.text]) + 1, identities[hit.text].decode()
            values = (entry.benchmark, entry.item, batch.source, line, identity, hit.begin, hit.end, hit.share)
            yield dict(zip(HIT_KEYS, values, strict=True))
    searched.documents += batch.documents
    searched.text_bytes += len(batch.text) - batch.documents
    searched.documents_hit += len(texts_hit)
