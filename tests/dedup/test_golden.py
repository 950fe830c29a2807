"""The golden vectors of the specification, from documents to ranges, and what they say of the oracle."""

from __future__ import annotations

import pytest

from tests.dedup.corpora import find_ranges
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
