"""The most repeated strings: counts as the brute force has them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from corpusmill.dedup.shared import RepeatedWindow
from tests.dedup.corpora import boilerplate_shards, find_matches
from tests.oracles.dedup import text_of


def matched(
    shards: list[list[bytes]], minimum_bytes: int, references: Sequence[int] = ()
) -> tuple[list[bytes], list[RepeatedWindow]]:
    _, actual = find_matches(shards, minimum_bytes, references=references)
    return [text_of(documents)[0] for documents in shards], actual


@pytest.mark.parametrize("seed", range(12))
def test_repeated_counts_equal_a_search_for_the_string(seed: int) -> None:
    shards = boilerplate_shards(random.Random(seed), 40)
    texts, actual = matched(shards, 40)
    assert actual
    assert [item.count for item in actual] == sorted((item.count for item in actual), reverse=True)
    for item in actual:
        string = texts[item.shard][item.position : item.position + 40]
        assert sum(text[i : i + 40] == string for text in texts for i in range(len(text))) == item.count
        assert texts[item.shard].index(string) == item.position
        assert all(string not in text for text in texts[: item.shard])


def test_repeated_string_in_most_documents_comes_first() -> None:
    rng = random.Random(1)
    notice = bytes(rng.choices(b"notice ", k=60))
    often, seldom = ([bytes(rng.choices(b"abcdefgh", k=50)) for _ in range(n)] for n in (30, 9))
    other = bytes(rng.choices(b"other", k=60))
    shards = [[*(item + notice for item in often)], [*(item + other for item in seldom), b"x"]]
    texts, actual = matched(shards, 50)
    counts = [(item.count, texts[item.shard][item.position : item.position + 50]) for item in actual]
    assert counts[0][0] == 30
    assert counts[0][1] in notice
    assert {count for count, _ in counts} == {30, 9}


def test_repeated_without_repeats_is_empty() -> None:
    _, actual = matched([[bytes(random.Random(2).choices(b"abcdefgh", k=4000))]], 40)
    assert actual == []


@pytest.mark.parametrize("seed", range(6))
def test_repeated_strings_of_references_alone_are_not_listed(seed: int) -> None:
    rng = random.Random(seed)
    first, second = boilerplate_shards(rng, 40), boilerplate_shards(random.Random(seed + 100), 40)
    ours = [second[0], [*first[0][: len(first[0]) // 3], *second[0]]]  # a third of a reference is ours, too
    shards, references = [*first, *ours], [*([0] * len(first)), 1, 1]
    texts, actual = matched(shards, 40, references)
    assert actual
    for item in actual:
        string = texts[item.shard][item.position : item.position + 40]
        assert sum(text[i : i + 40] == string for text in texts for i in range(len(text))) == item.count
        assert item.shard >= len(first)
        assert texts[item.shard].index(string) == item.position
        assert all(string not in text for text in texts[len(first) : item.shard])


def test_repeated_references_without_a_string_of_ours_list_nothing() -> None:
    rng = random.Random(1)
    notice = bytes(rng.choices(b"notice ", k=60))
    reference = [bytes(rng.choices(b"abcdefgh", k=50)) + notice for _ in range(30)]
    _, actual = matched([reference, [bytes(rng.choices(b"abcdefgh", k=400))]], 50, [0, 1])
    assert actual == []
