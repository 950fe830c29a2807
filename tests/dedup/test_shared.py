"""Anchors that share their hash, however a text is crafted; and the most repeated strings, by brute force."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from corpusmill.dedup.anchors import write_anchors
from corpusmill.dedup.shared import RepeatedWindow, find_groups
from corpusmill.kernels.content_kernels import ODD_1, ODD_2, ODD_3, bytes_hash
from tests.dedup.corpora import boilerplate_shards, find_matches, made, match_folder
from tests.oracles.dedup import text_of

MINIMUM_BYTES = 16  # a document of so many bytes is one window and one anchor, of two words


def groups_of(hashes: np.ndarray, key: int) -> tuple[int, np.ndarray]:
    """(groups, rows that were kept) of one shard whose anchors all lie in one bucket, hashes of 32 bits."""
    rows = np.zeros((len(hashes), 3), np.uint32)
    rows[:, 0], rows[:, 1] = hashes, np.arange(len(hashes))
    kept = np.empty((len(hashes), 2), np.uint64)
    ends = np.zeros(1, np.int64)
    starts = np.array([[0], [len(rows)]])
    groups = find_groups(np.array([rows.ctypes.data]), starts, np.uint64(key), kept, np.zeros(1, np.int64), ends)
    return groups, kept[: ends[0]]


def test_groups_of_hashes_made_to_share_a_place_take_no_longer_and_do_not_depend_on_the_key() -> None:
    """With the lowest bits as the place, 300,000 of these take 350,000,000 looks."""
    hashes = np.arange(1, 300_001, dtype=np.uint64) << np.uint64(13)
    hashes[-1] = hashes[7]
    groups_of(hashes[:2], 1)  # compiled
    began = time.thread_time()
    (groups, kept), (same_groups, same) = (groups_of(hashes, key) for key in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93))
    assert time.thread_time() - began < 0.4
    assert groups == same_groups == 1
    assert kept.tolist() == same.tolist() == [[7, 0], [299_999, 0]]


def test_groups_are_numbered_in_order_of_their_first_anchors() -> None:
    groups, kept = groups_of(np.array([9, 5, 7, 5, 9, 9], np.uint32), 3)
    assert groups == 2
    assert kept.tolist() == [[0, 0], [1, 1], [3, 1], [4, 0], [5, 0]]


def inverse(odd: int) -> np.uint64:
    return np.uint64(pow(odd, -1, 1 << 64))


def crafted_documents(candidates: int) -> np.ndarray:
    """uint8[n, 16], ASCII: documents whose hashes differ in bits 20 to 43 alone; the last word is solved for."""
    first = b"crafted "
    hashes = np.arange(1, candidates, dtype=np.uint64) << np.uint64(20) | np.uint64(0xABC << 52)
    for odd in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):  # the final mix, backwards: x ^ x >> 33 is its own inverse
        hashes ^= hashes >> np.uint64(33)
        hashes *= inverse(odd)
    hashes ^= hashes >> np.uint64(33)
    hashes *= inverse(int(ODD_1))
    hashes = hashes >> np.uint64(31) | hashes << np.uint64(33)
    lane = MINIMUM_BYTES * int(ODD_3) + int.from_bytes(first, "little") * int(ODD_2) & (1 << 64) - 1
    lane = (lane << 31 | lane >> 33) * int(ODD_1) & (1 << 64) - 1
    words = (hashes - np.uint64(lane)) * inverse(int(ODD_2))
    words = words[(words & np.uint64(0x8080808080808080)) == 0]  # one of 256
    documents = np.empty((len(words), MINIMUM_BYTES), np.uint8)
    documents[:, :8] = np.frombuffer(first, np.uint8)
    documents[:, 8:] = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    return documents


def duplicates_of(documents: np.ndarray, folder: Path) -> tuple[list[list[int]], float]:
    """The windows that occurred earlier, and the seconds of this thread that finding them took."""
    own = made(made(folder) / "anchors0")
    text = np.insert(documents, 0, 0xFF, axis=1).reshape(-1)
    (own / "text").write_bytes(text.tobytes())
    offsets = np.arange(len(documents), dtype=np.uint64) * np.uint64(MINIMUM_BYTES + 1)
    write_anchors(text, offsets, MINIMUM_BYTES, own)
    began = time.thread_time()
    (matches,), _ = match_folder(folder, 1, MINIMUM_BYTES)
    return matches.later[0].tolist(), time.thread_time() - began


def test_documents_crafted_to_share_a_place_are_matched_as_fast_as_others(tmp_path: Path) -> None:
    """bytes_hash can be inverted: with places that follow from the hash alone these take 2,000,000,000 looks."""
    documents = crafted_documents(1 << 24)
    assert len(documents) > 60_000
    hashes = {int(bytes_hash(document.ctypes.data, MINIMUM_BYTES)) for document in documents[:1000]}
    assert len(hashes) == 1000
    assert {(value >> 44, value & 0xFFFFF) for value in hashes} == {(0xABC00, 0)}

    documents[-1] = documents[7]
    duplicates_of(documents[[7, 7]], tmp_path / "compiled")
    windows, seconds = duplicates_of(documents, tmp_path / "crafted")
    first = (len(documents) - 1) * (MINIMUM_BYTES + 1) + 1
    assert windows == [[first, first + 1]]
    assert seconds < 0.5


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
