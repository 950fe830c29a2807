"""Searches texts for the items of benchmarks, and returns where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.decide import decide, rules_of
from corpusmill.decontamination.runs import run_keys
from corpusmill.decontamination.scan import met_seeds
from corpusmill.decontamination.seeds import SHORT_RUN, Seeds
from corpusmill.decontamination.text_words import Places, WordFinder, Words

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
            hit = hits[at]
            share = round(float(hit["share"]), 3)
            yield Hit(
                first + int(hit["text"]),
                int(hit["sequence"]),
                int(begins[at]),
                int(stops[at]),
                share,
                int(hit["words"]),
            )
