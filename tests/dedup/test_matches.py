"""Matches: the ranges of the specification, whatever the shards, partitions, runs and hashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.dedup.anchor_kernels import BUCKETS
from corpusmill.dedup.anchors import open_anchors, write_anchors
from corpusmill.dedup.levels import Level, match_level, slice_level
from corpusmill.dedup.matches import IndexedShard, match_partition, read_match_ranges, write_match_ranges
from corpusmill.dedup.ranges import kept_whole, union_ranges
from corpusmill.errors import CorruptDataError
from tests.dedup.corpora import LENGTHS, boilerplate_shards, find_ranges, random_shards
from tests.oracles.dedup import cut, remove_pointers, remove_ranges, text_of


def check_against_oracle(seed: int, make: Callable[[random.Random, int], list[list[bytes]]]) -> None:
    rng = random.Random(seed)
    minimum_bytes = rng.choice(LENGTHS)
    shards = make(rng, minimum_bytes)
    ranges, windows = find_ranges(
        shards,
        minimum_bytes,
        partitions=rng.choice([1, 2, 3, 7]),
        most_representatives=rng.choice([1, 2, 3, 16]),
        run_anchors=rng.choice([200, 1 << 20]),
        turn_anchors=rng.choice([1, 1 << 20]),
    )
    texts = [text_of(documents)[0] for documents in shards]
    assert ranges == [[list(row) for row in rows] for rows in remove_ranges(texts, minimum_bytes)], seed
    assert windows == sum(map(len, remove_pointers(texts, minimum_bytes))), seed


@pytest.mark.parametrize("block", range(10))
def test_ranges_random_corpora_equal_the_oracle(block: int) -> None:
    for seed in range(30 * block, 30 * block + 30):
        check_against_oracle(seed, random_shards)


@pytest.mark.parametrize("block", range(5))
def test_ranges_boilerplate_corpora_equal_the_oracle(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        check_against_oracle(seed, boilerplate_shards)


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_shards, boilerplate_shards])
@pytest.mark.parametrize("block", range(50))
def test_ranges_ten_thousand_corpora_equal_the_oracle(
    block: int, make: Callable[[random.Random, int], list[list[bytes]]]
) -> None:
    for seed in range(1_000_000 + 100 * block, 1_000_000 + 100 * block + 100):
        check_against_oracle(seed, make)


documents_lists = st.lists(
    st.lists(st.sampled_from([b"abcde", b"fgh", b"ab", b"abcdefghijklm", "é中😀".encode()]), max_size=8).map(b"".join),
    max_size=8,
)


@settings(max_examples=40)
@given(documents_lists, st.integers(7, 25), st.lists(st.integers(0, 8), max_size=3), st.integers(1, 9))
def test_removed_text_does_not_depend_on_shards_partitions_or_runs(
    documents: list[bytes], minimum_bytes: int, cuts: list[int], partitions: int
) -> None:
    bounds = [0, *sorted(min(cut_at, len(documents)) for cut_at in cuts), len(documents)]
    shards = [documents[first:last] for first, last in pairwise(bounds)]
    found, windows = find_ranges(shards, minimum_bytes, partitions=partitions, most_representatives=2, run_anchors=50)
    (whole,), windows_of_one = find_ranges([documents], minimum_bytes)
    kept = [
        document
        for shard, rows in zip(shards, found, strict=True)
        for document in cut(*text_of(shard), [(start, end) for start, end in rows])
    ]
    assert kept == cut(*text_of(documents), [(start, end) for start, end in whole])
    assert windows == windows_of_one


@settings(max_examples=30)
@given(documents_lists, documents_lists, st.integers(7, 25))
def test_ranges_of_earlier_shards_stay_when_a_shard_is_added(
    earlier: list[bytes], added: list[bytes], minimum_bytes: int
) -> None:
    before, _ = find_ranges([earlier], minimum_bytes)
    after, _ = find_ranges([earlier, added], minimum_bytes)
    assert after[0] == before[0]


def test_matches_crowded_group_work_grows_with_its_size_alone(tmp_path: Path) -> None:
    """Text one byte too short to be a duplicate, in twice as many surroundings: at most twice the candidates."""
    rng = np.random.default_rng(7)
    boilerplate = rng.integers(97, 123, 499, np.uint8).tobytes()
    candidates = []
    for copies in (1000, 2000):
        surroundings = [rng.integers(200, 240, 300, np.uint8).tobytes() for _ in range(2 * copies)]
        documents = [before + boilerplate + after for before, after in zip(*[iter(surroundings)] * 2, strict=True)]
        data, offsets = text_of(documents)
        text = np.frombuffer(data, np.uint8)
        folder = tmp_path / str(copies)
        folder.mkdir()
        write_anchors(text, np.array(offsets, np.uint64), 500, folder)
        _, counts = match_partition([IndexedShard(text, open_anchors(folder))], 0, 1, 500)
        candidates.append(counts["candidates"])
    assert 1000 < candidates[0] < candidates[1] < 2.2 * candidates[0]


@pytest.mark.parametrize("minimum_bytes", [100, 500])
def test_ranges_periodic_documents_keep_one_start_each(minimum_bytes: int) -> None:
    """Runs of one byte, of period 3, of rules: what follows the first period goes; a second document goes whole."""
    runs = [b"a" * 5000, b"abc" * 2000, b"0" * 5000, (b"-" * 79 + b"\n") * 60]
    ranges, _ = find_ranges([runs, runs], minimum_bytes, partitions=2)
    texts = [text_of(runs)[0]] * 2
    assert ranges == [[list(row) for row in rows] for rows in remove_ranges(texts, minimum_bytes)]
    assert cut(*text_of(runs), [(start, end) for start, end in ranges[1]]) == [b"", b"", b"", b""]


def test_ranges_ten_megabytes_of_one_byte_leave_one() -> None:
    ranges, windows = find_ranges([[b"a" * 10_000_000, b"b", b"a" * 600]], 500)
    assert ranges == [[[2, 10_000_001], [10_000_004, 10_000_604]]]
    assert windows == 10_000_000 - 500 + 600 - 499


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("different_hashes", [1, 2])
def test_ranges_when_all_hashes_collide_equal_the_oracle(tmp_path: Path, seed: int, different_hashes: int) -> None:
    """Every anchor of every level gets one of one or two hashes: groups then mix unequal k-grams."""
    rng = random.Random(seed)
    minimum_bytes = rng.choice(LENGTHS)
    shards = [documents[:4] for documents in random_shards(rng, minimum_bytes)]
    texts, rows = [], []
    windows = []
    for number, documents in enumerate(shards):
        data, positions = text_of(documents)
        texts.append(np.frombuffer(data, np.uint8))
        folder = tmp_path / str(number)
        folder.mkdir()
        write_anchors(texts[-1], np.array(positions, np.uint64), minimum_bytes, folder)
        anchors = open_anchors(folder)
        rows.append(np.array(anchors.rows))
        windows.append([anchors.repeats])
    level = Level(anchors.kgram_bytes, rows, np.array([[0] * len(rows), [len(one) for one in rows]]))
    while level.anchors:
        colliding = []
        for one in level.rows:
            same = one[np.argsort(one[:, 1], kind="stable")].copy()
            same[:, 0] = (same[:, 0] % np.uint64(different_hashes)) << np.uint64(20)
            colliding.append(same)
        starts = np.array([[0] * len(colliding), [len(one) for one in colliding]])
        level = Level(level.kgram_bytes, colliding, starts)
        _, crowded = match_level(texts, level, minimum_bytes, 3, windows)
        level = slice_level(texts, crowded, level.kgram_bytes, minimum_bytes, 0, 1)
    pointers = [
        [start for first, stop in union_ranges(np.concatenate(one)).tolist() for start in range(first, stop)]
        for one in windows
    ]
    assert pointers == remove_pointers([text.tobytes() for text in texts], minimum_bytes)


def test_match_partition_without_shards_finds_nothing() -> None:
    matches, counts = match_partition([], 0, 1, 100)
    assert matches.windows == []
    assert counts == {"anchors": 0, "candidates": 0, "windows": 0}


def test_match_partition_anchors_of_another_length_are_refused(tmp_path: Path) -> None:
    text = np.frombuffer(b"\xffsome text of one document", np.uint8)
    write_anchors(text, np.zeros(1, np.uint64), 9, tmp_path)
    with pytest.raises(CorruptDataError, match="another minimum length"):
        match_partition([IndexedShard(text, open_anchors(tmp_path))], 0, 1, 10)


def test_match_partition_most_partitions_possible_give_the_same_ranges() -> None:
    documents = [b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"GHIJKLMNOPQRSTU", b"0ABCDEFGHIJ"]
    assert find_ranges([documents], 8, partitions=BUCKETS // 16) == find_ranges([documents], 8)


@given(st.lists(st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)), max_size=4), max_size=5))
def test_match_ranges_written_are_read_shard_by_shard(tables: list[list[tuple[int, int]]]) -> None:
    with TemporaryDirectory() as folder:
        write_match_ranges(Path(folder), [np.array(rows, np.uint64).reshape(-1, 2) for rows in tables])
        for shard, rows in enumerate(tables):
            assert read_match_ranges(Path(folder), shard).tolist() == [list(row) for row in rows]


@pytest.mark.parametrize("shard", [-1, 2])
def test_match_ranges_shard_that_is_not_there_is_refused(tmp_path: Path, shard: int) -> None:
    write_match_ranges(tmp_path, [np.array([[1, 9]], np.uint64)] * 2)
    with pytest.raises(CorruptDataError, match="do not fit their index"):
        read_match_ranges(tmp_path, shard)


def test_match_ranges_shortened_file_is_refused(tmp_path: Path) -> None:
    write_match_ranges(tmp_path, [np.array([[1, 9], [12, 20]], np.uint64)])
    (tmp_path / "match_ranges").write_bytes((tmp_path / "match_ranges").read_bytes()[:-8])
    with pytest.raises(CorruptDataError, match="do not fit their index"):
        read_match_ranges(tmp_path, 0)


@pytest.mark.parametrize("period", [b"a", b"abc", bytes(range(33, 113))])
def test_ranges_of_ten_megabytes_of_short_period_are_one(tmp_path: Path, period: bytes) -> None:
    data = b"\xff" + (period * (10_000_000 // len(period)))
    text = np.frombuffer(data, np.uint8)
    counts = write_anchors(text, np.zeros(1, np.uint64), 500, tmp_path)
    assert counts["anchors"] < 100
    matches, found = match_partition([IndexedShard(text, open_anchors(tmp_path))], 0, 1, 500, want_earlier=True)
    assert matches.ranges(500)[0].tolist() == [[1 + len(period), len(data)]]
    assert found["windows"] == len(data) - 500 - len(period)
    kept = kept_whole(matches.windows[0], matches.earlier[0], 500)
    assert kept.tolist() == [[500 + len(period), len(data)]]
