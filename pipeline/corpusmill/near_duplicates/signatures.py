"""From texts to signatures: the hashes of a text's runs of words, and the least of them under many functions.

A run's hash is a polynomial of its words' hashes, mixed. For each of `bands` x `rows` functions `a * x + b` modulo
2^32, the least value over a text's runs agrees between two texts with the probability that is their similarity. A
band's key is the hash of `rows` such values: two texts that share a key are a proposal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.text_words import WordFinder, in_normal_form, letter_table
from corpusmill.documents.text_shard import TextShard
from corpusmill.kernels import advance
from corpusmill.kernels.compiled import inlined, kernel
from corpusmill.kernels.mapping import release_pages
from corpusmill.kernels.slices import runs

BATCH_BYTES = 1 << 20  # of text, whose words stay in a cache
_KEY_BYTES = 128  # that each document adds to a batch: a short one's keys are larger than its text
MOST_FUNCTIONS = 108
LEAST_RECALL = 0.995  # expected of pairs at the threshold

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF, _LOW, _WORD = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1 << 32)


@dataclass(frozen=True, slots=True)
class Bands:
    """How many keys a text has, and how many functions each is made of."""

    bands: int
    rows: int

    def recall(self, similarity: float) -> float:
        """The expected share of pairs of a similarity that share a key."""
        return 1.0 - (1.0 - similarity**self.rows) ** self.bands


def bands_for(similarity: float) -> Bands:
    """The bands with most rows, which propose the fewest other pairs, that propose LEAST_RECALL of the pairs of a
    similarity with MOST_FUNCTIONS: 18 of 6 at 0.8.
    """
    for rows in range(MOST_FUNCTIONS, 0, -1):
        proposed = similarity**rows
        bands = math.ceil(math.log(1.0 - LEAST_RECALL) / math.log1p(-proposed)) if proposed < 1 else 1
        if bands * rows <= MOST_FUNCTIONS:
            return Bands(bands, rows)
    return Bands(MOST_FUNCTIONS, 1)


@inlined
def mixed(value: Any) -> Any:
    """uint64 -> uint64, one to one: every bit of the result depends on every bit of the value."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


@kernel
def _numbers(count: Any) -> Any:
    """uint64 (count,): the fixed numbers that functions are made of."""
    numbers = np.empty(count, np.uint64)
    for i in range(count):
        numbers[i] = mixed(np.uint64(i + 1) * _PRIME)
    return numbers


@inlined
def _not_zero(value: Any) -> Any:
    return value | np.uint64(value == np.uint64(0))


@kernel
def hash_runs(words: Any, length: Any, hashes: Any) -> Any:
    """Fill `hashes` with those of a text's runs of `length` words, one run if it has fewer; returns how many.

    words           uint64 (w,): the hashes of its words
    hashes          uint64, at least max(1, w): filled
    """
    first = min(length, len(words))
    power, run = np.uint64(1), np.uint64(len(words) < length) + np.uint64(len(words))
    if len(words) >= length:
        run = np.uint64(0)
    for i in range(first):
        run = run * _PRIME + words[i]
        power *= _PRIME
    hashes[0] = _not_zero(mixed(run))
    filled = 1
    for i in range(length, len(words)):
        run = run * _PRIME + words[i] - power * words[i - length]
        hashes[filled] = _not_zero(mixed(run))
        filled += 1
    return filled


@kernel
def _sign(words: Any, first: Any, length: Any, numbers: Any, bands: Any, rows: Any, spare: Any, keys: Any) -> Any:
    """Fill `keys` uint64 (texts, bands + 1): of each band, and last the digest; returns the number of runs."""
    half = np.empty(len(spare), np.uint32)
    total = 0
    for text in range(len(first) - 1):
        count = hash_runs(words[first[text] : first[text + 1]], length, spare)
        digest = np.uint64(count)
        for run in range(count):
            half[run] = np.uint32(spare[run] >> _HALF)
            digest += mixed(spare[run] ^ _PRIME)
        function = 0
        for band in range(bands):
            key = mixed(np.uint64(band + 1))
            for _ in range(rows):
                factor = np.uint32(numbers[function] & _LOW) | np.uint32(1)
                addend = np.uint32(numbers[function] >> _HALF)
                least = np.uint32(0xFFFFFFFF)
                for run in range(count):
                    least = min(least, np.uint32(np.uint32(factor * half[run]) + addend))
                key = mixed(key ^ np.uint64(least)) + _PRIME
                function += 1
            keys[text, band] = key
        keys[text, bands] = mixed(digest)
        total += count
    return total


@kernel
def table_bits(count: Any) -> Any:
    """How many bits number the places of a table for `count` values, of which half stay free."""
    bits = 4
    while 1 << bits < 2 * count:
        bits += 1
    return bits


@inlined
def place_in(table: Any, bits: Any, value: Any) -> Any:
    """Where `value`, a mixed uint64 that is not 0, stands in a table, or would: there is 0 then."""
    place = np.int64(value >> np.uint64(64 - bits))
    while table[place] != np.uint64(0) and table[place] != value:
        place = (place + 1) & ((1 << bits) - 1)
    return place


@kernel
def _distinct_runs(words: Any, first: Any, length: Any, spare: Any, table: Any, hashes: Any, ends: Any) -> None:
    """Fill `hashes` with the distinct hashes of each text's runs, and `ends` with one past each text's."""
    filled = 0
    for text in range(len(first) - 1):
        count = hash_runs(words[first[text] : first[text + 1]], length, spare)
        bits = table_bits(count)
        table[: 1 << bits] = 0
        for run in range(count):
            place = place_in(table, bits, spare[run])
            if table[place] == np.uint64(0):
                table[place] = hashes[filled] = spare[run]
                filled += 1
        ends[text] = filled


def salts_of(sources: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64 (n,): what the keys of each document are xored with, so that keys of different sources differ."""
    salts: NDArray[np.uint64] = _numbers(int(sources.max(initial=-1)) + 1)[sources]
    return salts


class Signer:
    """Signs texts: a thread's own, because buffers are reused."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._finder = WordFinder(*letter_table())

    def keys(self, text: NDArray[np.uint8], starts: Any, ends: Any, bands: Bands) -> tuple[NDArray[np.uint64], int]:
        """(uint64 (texts, bands + 1): the keys of each text, and last its digest, equal for equal runs; how many runs)
        of the texts `text[starts[i] : ends[i]]`, UTF-8, in order.
        """
        found = self._finder.find(*in_normal_form(text, starts, ends))
        keys = np.empty((len(starts), bands.bands + 1), np.uint64)
        spare = np.empty(int(np.diff(found.first).max(initial=1)) + 1, np.uint64)
        numbers = _numbers(bands.bands * bands.rows)
        return keys, _sign(found.hashes, found.first, self._length, numbers, bands.bands, bands.rows, spare, keys)

    def sets(self, text: NDArray[np.uint8], starts: Any, ends: Any) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """(uint64: the distinct hashes of each text's runs, none 0, text after text; int64: where each ends)."""
        found = self._finder.find(*in_normal_form(text, starts, ends))
        hashes = np.empty(len(found.hashes) + len(starts), np.uint64)
        text_ends = np.zeros(len(starts), np.int64)
        spare = np.empty(int(np.diff(found.first).max(initial=1)) + 1, np.uint64)
        table = np.empty(1 << table_bits(len(spare)), np.uint64)
        _distinct_runs(found.hashes, found.first, self._length, spare, table, hashes, text_ends)
        return hashes[: int(text_ends[-1]) if len(text_ends) else 0], text_ends


def batches(text: TextShard) -> Iterator[tuple[int, int, NDArray[np.uint64], NDArray[np.uint64]]]:
    """(first document, one past the last, where their texts begin, and end) of neighbours of about BATCH_BYTES."""
    bounds = text.bounds(0, text.documents)
    advance.begin(len(text.text))
    sizes = bounds[1:] + np.arange(1, len(bounds), dtype=np.uint64) * np.uint64(_KEY_BYTES)
    for first, last in runs(sizes, BATCH_BYTES):
        yield first, last, bounds[first:last] + np.uint64(1), bounds[first + 1 : last + 1]
        release_pages(text.text)
        advance.note(int(bounds[last] - bounds[first]))
