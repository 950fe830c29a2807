"""Known ranges: the specification's vectors, and corpora too large for the oracle, as version 0.1.0 had them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import numpy as np
import pytest

from corpusmill.dedup.ranges import kept_whole
from tests.dedup.corpora import find_matches, find_ranges
from tests.oracles.dedup import remove_ranges, text_of

X = b"ABCDEFGHIJ"
GOLDEN = {
    "equal documents": (8, [[X, X]], [[[12, 22]]]),
    "exactly the minimum": (8, [[X[:8], X[:8]]], [[[10, 18]]]),
    "one byte short": (8, [[X[:7], X[:7]]], [[]]),
    "inside one document": (8, [[X + b"--" + X]], [[[13, 23]]]),
    "overlapping itself": (8, [[b"a" * 20]], [[[2, 21]]]),
    "period three": (8, [[b"abc" * 8]], [[[4, 25]]]),
    "twice in a later document": (8, [[b"q", b"zz" + X], [X, b"1" + X + b"2"]], [[], [[1, 11], [13, 23]]]),
    "shard order beats smaller position": (8, [[b"pad" * 20, X], [X]], [[[4, 61]], [[1, 11]]]),
    "separator never matched": (6, [[b"ABCD", b"EFGH"], [b"ABCD", b"EFGH"]], [[], []]),
    "touching merges": (8, [[b"ABCDEFGH", b"abcdefgh"], [b"ABCDEFGHabcdefgh"]], [[], [[1, 17]]]),
    "a gap of one stays": (8, [[b"ABCDEFGH", b"abcdefgh"], [b"ABCDEFGH.abcdefgh"]], [[], [[1, 9], [10, 18]]]),
    "chained overlap": (6, [[b"ABCDEFGHIJKL", b"GHIJKLMNOPQR"], [b"ABCDEFGHIJKLMNOPQR"]], [[[14, 20]], [[1, 19]]]),
    "empty documents": (8, [[b"", b"", X], [b"", X]], [[], [[2, 12]]]),
}


def twice(data: bytes) -> bytes:
    return bytes(byte for byte in data for _ in range(2))


def position_twice(documents: list[bytes], position: int) -> int:
    """Where a position of the text shard lies when every byte of every document is written twice."""
    _, offsets = text_of(documents)
    document = sum(offset < position for offset in offsets) - 1
    return (
        text_of([twice(document) for document in documents])[1][document] + 1 + 2 * (position - offsets[document] - 1)
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_oracle_golden_vector_gives_its_ranges(name: str) -> None:
    minimum_bytes, shards, expected = GOLDEN[name]
    texts = [text_of(documents)[0] for documents in shards]
    assert [[list(row) for row in rows] for rows in remove_ranges(texts, minimum_bytes)] == expected


@pytest.mark.parametrize("name", [name for name, (minimum_bytes, _, _) in GOLDEN.items() if minimum_bytes >= 7])
def test_ranges_golden_vector_are_found(name: str) -> None:
    minimum_bytes, shards, expected = GOLDEN[name]
    assert find_ranges(shards, minimum_bytes, partitions=5)[0] == expected


@pytest.mark.parametrize("name", ["separator never matched", "chained overlap", "touching merges", "equal documents"])
def test_ranges_golden_vector_with_every_byte_twice_are_found(name: str) -> None:
    """Two vectors have L = 6, which the mill refuses; with every byte twice, L = 12 must find the same ranges."""
    minimum_bytes, shards, expected = GOLDEN[name]
    wanted = [
        [[position_twice(documents, start), position_twice(documents, end)] for start, end in rows]
        for documents, rows in zip(shards, expected, strict=True)
    ]
    doubled = [[twice(document) for document in documents] for documents in shards]
    assert find_ranges(doubled, 2 * minimum_bytes)[0] == wanted


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
