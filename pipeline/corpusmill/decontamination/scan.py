"""Finds the seeds in a text: per word one rolling hash and one filter lookup, rarely more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.runs import BASE, mixed
from corpusmill.decontamination.seeds import Seeds
from corpusmill.decontamination.text_words import Words
from corpusmill.kernels.compiled import kernel


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
