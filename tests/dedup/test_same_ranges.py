"""Ranges of five corpora too large for the oracle are those of version 0.1.0 when texts were compared in memory."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import numpy as np
import pytest

from corpusmill.dedup.ranges import kept_whole
from tests.dedup.corpora import find_matches, find_ranges

# seed: (least length, beginning of the ranges' sha256, remove pointers)
RANGES = {
    0: (30, "8c5c40441d620801", 294_564),
    1: (50, "ba1433f0061a6fef", 354_353),
    2: (100, "09a55b0917fb7a28", 359_424),
    3: (200, "c897021379d55059", 274_730),
    4: (500, "f4b92aff2093c7b3", 168_077),
}
KEPT_WHOLE = {
    0: "119c7b79c2d38d11",
    1: "8d151a9c043d1e97",
    2: "27e52c2a3f56539e",
}


def corpus(seed: int) -> list[list[bytes]]:
    """Four shards of 40 documents of some kilobytes: copies with a word changed every so often, boilerplate, rules."""
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(1, 9))) for _ in range(900)] + ["字", "naïve"]
    originals = [[rng.choice(vocabulary) for _ in range(rng.randint(50, 1500))] for _ in range(9)]
    notice = " ".join(rng.choices(vocabulary, k=150))
    between = (seed % 5 + 1) * 40

    def document() -> bytes:
        words = list(rng.choice(originals))
        for at in range(rng.randrange(between), len(words), between):
            words[at] = rng.choice(vocabulary)
        first = rng.randrange(len(words))
        pieces = [" ".join(words[first:]), notice[rng.randrange(300) :], "-" * rng.randrange(700), "".join(words[:40])]
        return " ".join(pieces[: rng.randint(1, 4)]).encode()

    return [[document() for _ in range(40)] for _ in range(4)]


def least_length(seed: int) -> int:
    return (30, 50, 100, 200, 500)[seed % 5]


def digest(ranges: Sequence[Sequence[Sequence[int]]]) -> str:
    rows = b"".join(np.array(own, "<u8").tobytes() + b"|" for own in ranges)
    return hashlib.sha256(rows).hexdigest()[:16]


@pytest.mark.parametrize("seed", RANGES)
def test_ranges_equal_those_of_texts_compared_in_memory(seed: int) -> None:
    length, expected, windows = RANGES[seed]
    ranges, actual = find_ranges(corpus(seed), length, partitions=1 + seed % 4, most_paired=(0, 32)[seed % 2])
    assert (digest(ranges), actual) == (expected, windows)


@pytest.mark.parametrize("seed", KEPT_WHOLE)
def test_ranges_that_keep_every_string_equal_those_of_texts_compared_in_memory(seed: int) -> None:
    length = least_length(seed)
    actual, _ = find_matches(corpus(seed), length)
    whole = [
        kept_whole(later, earlier, length) for later, earlier in zip(actual[0].later, actual[0].earlier, strict=True)
    ]
    assert digest([rows.tolist() for rows in whole]) == KEPT_WHOLE[seed]
