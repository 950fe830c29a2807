"""The most repeated strings: counts as the brute force has them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from pipeline.dedup.anchors import open_anchors, write_anchors
from pipeline.dedup.matches import IndexedShard, Matches, match_partition
from tests.dedup.corpora import boilerplate_shards
from tests.oracles.dedup import text_of


def matched(shards: list[list[bytes]], minimum_bytes: int, folder: Path) -> tuple[list[bytes], Matches]:
    texts, indexed = [], []
    for number, documents in enumerate(shards):
        data, offsets = text_of(documents)
        text = np.frombuffer(data, np.uint8)
        (folder / str(number)).mkdir()
        write_anchors(text, np.array(offsets, np.uint64), minimum_bytes, folder / str(number))
        texts.append(data)
        indexed.append(IndexedShard(text, open_anchors(folder / str(number))))
    return texts, match_partition(indexed, 0, 1, minimum_bytes)[0]


@pytest.mark.parametrize("seed", range(12))
def test_repeated_counts_equal_a_search_for_the_string(tmp_path: Path, seed: int) -> None:
    shards = boilerplate_shards(random.Random(seed), 40)
    texts, found = matched(shards, 40, tmp_path)
    assert found.repeated
    assert [one.count for one in found.repeated] == sorted((one.count for one in found.repeated), reverse=True)
    for one in found.repeated:
        string = texts[one.shard][one.position : one.position + 40]
        assert sum(text[i : i + 40] == string for text in texts for i in range(len(text))) == one.count
        assert texts[one.shard].index(string) == one.position
        assert all(string not in text for text in texts[: one.shard])


def test_repeated_string_in_most_documents_comes_first(tmp_path: Path) -> None:
    rng = random.Random(1)
    notice = bytes(rng.choices(b"notice ", k=60))
    often, seldom = ([bytes(rng.choices(b"abcdefgh", k=50)) for _ in range(n)] for n in (30, 9))
    other = bytes(rng.choices(b"other", k=60))
    shards = [[*(one + notice for one in often)], [*(one + other for one in seldom), b"x"]]
    texts, found = matched(shards, 50, tmp_path)
    counts = [(one.count, texts[one.shard][one.position : one.position + 50]) for one in found.repeated]
    assert counts[0][0] == 30
    assert counts[0][1] in notice
    assert {count for count, _ in counts} == {30, 9}


def test_repeated_without_repeats_is_empty(tmp_path: Path) -> None:
    _, found = matched([[bytes(random.Random(2).choices(b"abcdefgh", k=4000))]], 40, tmp_path)
    assert found.repeated == []
