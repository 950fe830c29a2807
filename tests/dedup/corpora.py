"""Small corpora for the tests of this room, and range finding on them from documents to ranges."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from corpusmill.dedup.anchors import open_anchors, write_anchors
from corpusmill.dedup.matches import IndexedShard, Matches, match_partition, read_match_ranges, write_match_ranges
from corpusmill.dedup.ranges import kept_whole, union_ranges
from corpusmill.dedup.suffix_array import open_suffix_array, write_suffix_array
from corpusmill.dedup.suffix_matches import SortedShard, match_suffixes
from tests.oracles.dedup import text_of

LENGTHS = (7, 8, 9, 10, 12, 15, 16, 17, 18, 20, 24, 30, 40, 64, 100)
ALPHABETS = (b"a", b"ab", b"abc", b"abcdefgh", bytes([0, 1]), bytes([0, 1, 254]), "aé中😀".encode())


def find_ranges(
    shards: Sequence[Sequence[bytes]],
    minimum_bytes: int,
    *,
    partitions: int = 1,
    most_representatives: int = 16,
    run_anchors: int = 1 << 20,
    turn_anchors: int = 1 << 20,
) -> tuple[list[list[list[int]]], int]:
    """What the stages do, over files: ranges per shard, and duplicate windows summed over partitions."""
    windows = 0
    with TemporaryDirectory() as folder:
        indexed = []
        for number, documents in enumerate(shards):
            data, positions = text_of(documents)
            text, offsets = np.frombuffer(data, np.uint8), np.array(positions, np.uint64)
            anchors = Path(folder) / f"shard{number}"
            anchors.mkdir()
            write_anchors(text, offsets, minimum_bytes, anchors, run_anchors=run_anchors)
            indexed.append(IndexedShard(text, open_anchors(anchors)))
        matches = []
        for partition in range(partitions):
            found, counts = match_partition(
                indexed,
                partition,
                partitions,
                minimum_bytes,
                most_representatives=most_representatives,
                turn_anchors=turn_anchors,
            )
            windows += counts["windows"]
            matches.append(Path(folder) / f"partition{partition}")
            matches[-1].mkdir()
            write_match_ranges(matches[-1], found.ranges(minimum_bytes))
        ranges = [
            union_ranges(np.concatenate([read_match_ranges(match, shard) for match in matches])).tolist()
            for shard in range(len(shards))
        ]
    return ranges, windows


def find_matches(
    shards: Sequence[Sequence[bytes]], minimum_bytes: int, method: str, *, partitions: int = 1, most: int = 16
) -> list[Matches]:
    """Every partition's matches, with what they equal, by `method`."""
    found = []
    with TemporaryDirectory() as folder:
        indexed: list[IndexedShard] = []
        ordered: list[SortedShard] = []
        for number, documents in enumerate(shards):
            data, positions = text_of(documents)
            text, offsets = np.frombuffer(data, np.uint8), np.array(positions, np.uint64)
            where = Path(folder) / f"shard{number}"
            where.mkdir()
            if method == "anchors":
                write_anchors(text, offsets, minimum_bytes, where)
                indexed.append(IndexedShard(text, open_anchors(where)))
            else:
                write_suffix_array(text, where)
                ordered.append(SortedShard(text, open_suffix_array(where, text.size)))
        for part in range(partitions):
            if method == "anchors":
                matches, _ = match_partition(
                    indexed, part, partitions, minimum_bytes, want_earlier=True, most_representatives=most
                )
            else:
                matches, _ = match_suffixes(ordered, part, partitions, minimum_bytes)
            found.append(matches)
    return found


def united(found: Sequence[Matches], shard: int, minimum_bytes: int) -> list[list[int]]:
    return union_ranges(np.concatenate([one.ranges(minimum_bytes)[shard] for one in found])).tolist()


def united_kept_whole(found: Sequence[Matches], shard: int, minimum_bytes: int) -> list[list[int]]:
    later, earlier = (
        union_ranges(np.concatenate([rows[shard] for rows in side]))
        for side in ([one.windows for one in found], [one.earlier for one in found])
    )
    return kept_whole(later, earlier, minimum_bytes).tolist()


def random_shards(rng: random.Random, minimum_bytes: int) -> list[list[bytes]]:
    """One to four shards of up to eight documents that share pieces, repeat pieces, or are near the minimum length."""
    alphabet = rng.choice(ALPHABETS)

    def letters(most: int) -> bytes:
        return bytes(rng.choices(alphabet, k=rng.randint(0, most)))

    pieces = [letters(2 * minimum_bytes) for _ in range(4)]

    def document() -> bytes:
        kind = rng.randrange(6)
        if kind == 0:
            return b""
        if kind == 1:
            return b"".join(rng.choices(pieces, k=rng.randint(1, 5)))
        if kind == 2:
            return bytes(rng.choices(alphabet, k=minimum_bytes + rng.randint(-2, 2)))
        if kind == 3:
            return rng.choice(pieces)[: rng.randint(1, 9)] * rng.randint(1, 40)
        if kind == 4:
            return letters(4 * minimum_bytes)
        return letters(minimum_bytes) + rng.choice(pieces) + letters(minimum_bytes)

    return [[document() for _ in range(rng.randint(0, 8))] for _ in range(rng.randint(1, 4))]


def boilerplate_shards(rng: random.Random, minimum_bytes: int) -> list[list[bytes]]:
    """Two shards of documents that share stretches of one text, of every length around the minimum, between noise."""
    shared = bytes(rng.choices(b"abcd", k=3 * minimum_bytes))
    documents = []
    for _ in range(40):
        start = rng.randrange(2 * minimum_bytes)
        stretch = shared[start : start + rng.randint(minimum_bytes // 2, 3 * minimum_bytes)]
        noise = [bytes(rng.choices(b"xy", k=rng.randint(0, minimum_bytes))) for _ in range(2)]
        documents.append(noise[0] + stretch + noise[1])
    return [documents[:20], documents[20:]]
