"""Matches: the ranges of the specification, whatever the shards, partitions, runs and hashes."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup import exchange
from corpusmill.dedup.anchor_kernels import BUCKETS
from corpusmill.dedup.anchors import hash_slices, open_anchors, places_of, slicing_of
from corpusmill.dedup.exchange import TextFile, answer_borders, answer_contexts
from corpusmill.dedup.ranges import kept_whole
from corpusmill.dedup.settle import settle
from corpusmill.dedup.shared import share
from corpusmill.engine.sections import Sections
from corpusmill.errors import CorruptDataError
from tests.dedup.corpora import (
    LENGTHS,
    boilerplate_shards,
    find_matches,
    find_ranges,
    made,
    match_folder,
    random_shards,
    united,
    united_kept_whole,
    write_anchor_folders,
)
from tests.oracles.dedup import cut, kept_whole_ranges, remove_pointers, remove_ranges, text_of
from tests.quick import examples, quick

Make = Callable[[random.Random, int], list[list[bytes]]]


def check_against_oracle(seed: int, make: Make) -> None:
    rng = random.Random(seed)
    minimum_bytes = rng.choice(LENGTHS)
    shards = make(rng, minimum_bytes)
    ranges, windows = find_ranges(
        shards,
        minimum_bytes,
        partitions=rng.choice([1, 2, 3, 7]),
        run_anchors=rng.choice([200, 1 << 20]),
        block_bytes=rng.choice([64, 1000, 1 << 20]),
        memory_bytes=rng.choice([500, 1 << 30]),
        most_paired=rng.choice([0, 2, 32]),
    )
    texts = [text_of(documents)[0] for documents in shards]
    assert ranges == [[list(row) for row in rows] for rows in remove_ranges(texts, minimum_bytes)], seed
    assert windows == sum(map(len, remove_pointers(texts, minimum_bytes))), seed


@pytest.mark.parametrize(("make", "count"), [(random_shards, 10), (boilerplate_shards, 5)])
@pytest.mark.parametrize("block", quick(range(500), 1, slow=4))
def test_ranges_of_corpora_equal_the_oracle(block: int, make: Make, count: int) -> None:
    for seed in range(count * block, count * block + count):
        check_against_oracle(seed, make)


@pytest.mark.parametrize("make", [random_shards, boilerplate_shards])
@pytest.mark.parametrize("block", quick(range(24), 1, slow=4))
def test_ranges_that_keep_every_string_equal_the_oracle(block: int, make: Make) -> None:
    for seed in range(5 * block, 5 * block + 5):
        rng = random.Random(seed)
        minimum_bytes = rng.choice(LENGTHS)
        shards = make(rng, minimum_bytes)
        actual, _ = find_matches(shards, minimum_bytes, partitions=rng.choice([1, 2, 5]))
        whole = kept_whole_ranges([text_of(documents)[0] for documents in shards], minimum_bytes)
        kept = [united_kept_whole(actual, shard, minimum_bytes) for shard in range(len(shards))]
        assert kept == [[list(row) for row in rows] for rows in whole], seed


documents_lists = st.lists(
    st.lists(st.sampled_from([b"abcde", b"fgh", b"ab", b"abcdefghijklm", "é中😀".encode()]), max_size=8).map(b"".join),
    max_size=8,
)


@examples(40)
@given(documents_lists, st.integers(7, 25), st.lists(st.integers(0, 8), max_size=3), st.integers(1, 9))
def test_removed_text_does_not_depend_on_shards_partitions_or_runs(
    documents: list[bytes], minimum_bytes: int, cuts: list[int], partitions: int
) -> None:
    bounds = [0, *sorted(min(cut_at, len(documents)) for cut_at in cuts), len(documents)]
    shards = [documents[first:last] for first, last in pairwise(bounds)]
    actual, windows = find_ranges(shards, minimum_bytes, partitions=partitions, most_paired=2, run_anchors=50)
    (whole,), windows_of_one = find_ranges([documents], minimum_bytes)
    kept = [
        document
        for shard, rows in zip(shards, actual, strict=True)
        for document in cut(*text_of(shard), [(start, end) for start, end in rows])
    ]
    assert kept == cut(*text_of(documents), [(start, end) for start, end in whole])
    assert windows == windows_of_one


@examples(30)
@given(documents_lists, documents_lists, st.integers(7, 25))
def test_ranges_of_earlier_shards_stay_when_a_shard_is_added(
    earlier: list[bytes], added: list[bytes], minimum_bytes: int
) -> None:
    before, _ = find_ranges([earlier], minimum_bytes)
    after, _ = find_ranges([earlier, added], minimum_bytes)
    assert after[0] == before[0]


@pytest.mark.parametrize("most_paired", [0, 32])
def test_matches_one_string_in_every_document_asks_about_its_ends_alone(tmp_path: Path, most_paired: int) -> None:
    """Twice the documents: twice the bytes that are sent, however many pairs of documents there are."""
    rng = np.random.default_rng(7)
    string = rng.integers(97, 123, 1200, np.uint8).tobytes()
    sent = []
    for copies in (1000, 2000):
        around = [rng.integers(200, 240, 300, np.uint8).tobytes() for _ in range(2 * copies)]
        documents = [before + string + after for before, after in zip(*[iter(around)] * 2, strict=True)]
        folder = made(tmp_path / str(copies))
        write_anchor_folders([documents], 500, folder)
        (actual,), (repeated, *_) = match_folder(folder, 1, 500, most_paired=most_paired)
        assert (copies - 1) * 701 <= actual.windows < (copies - 1) * 710  # neighbours agree by chance, too
        assert repeated.count == copies
        sent.append(
            sum(path.stat().st_size for step in ("contexts0", "borders0") for path in (folder / step).iterdir())
        )
    assert sent[1] < 2.1 * sent[0]


def test_answers_about_a_shard_larger_than_memory_hold_a_block_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    text = rng.integers(97, 123, 4_000_000, np.uint8)
    copy = text.copy()
    copy[::700] = 65
    documents = [part.tobytes() for both in (text, copy) for part in both.reshape(-1, 100_000)]
    write_anchor_folders([documents], 500, tmp_path, run_anchors=1 << 14)
    shared, contexts, settled, borders = (Sections(made(tmp_path / name)) for name in "abcd")
    share([Sections(tmp_path / "anchors0")], 0, 1, shared.folder)
    slicing, shard = slicing_of(500), TextFile(tmp_path / "anchors0" / "text")
    peaks = []
    for answer, asked, folder in ((answer_contexts, shared, contexts), (answer_borders, settled, borders)):
        tracemalloc.start()
        counts = answer(shard, [asked], 0, slicing, folder.folder, block_bytes=1 << 18)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        if answer is answer_contexts:
            settle(shared, [contexts], 0, slicing, settled.folder)
    assert counts["borders"] > 5_000
    assert max(peaks) < len(text) * 3 // 4, peaks


@examples(40)
@given(documents_lists, st.integers(14, 40), st.integers(0, 3), st.sampled_from([0, 2, 32]), st.integers(1, 60))
def test_ranges_do_not_depend_on_slices_pairs_blocks_or_turns(
    documents: list[bytes], minimum_bytes: int, width_bits: int, most_paired: int, small: int
) -> None:
    usual = find_ranges([documents, documents[:3]], minimum_bytes)
    how = {"width": 1 << width_bits, "most_paired": most_paired, "block_bytes": small, "memory_bytes": 40 * small}
    assert find_ranges([documents, documents[:3]], minimum_bytes, **how) == usual


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("different_hashes", [1, 2])
def test_ranges_when_all_hashes_meet_equal_the_oracle(
    tmp_path: Path, monkeypatch, seed: int, different_hashes: int
) -> None:
    """Anchors and slices have one or two hashes, as text could be made to have: digests and bytes tell them apart."""
    rng = random.Random(seed)
    minimum_bytes = rng.choice(LENGTHS)
    shards = [documents[:4] for documents in random_shards(rng, minimum_bytes)]
    write_anchor_folders(shards, minimum_bytes, tmp_path)
    for shard in range(len(shards)):
        path = tmp_path / f"anchors{shard}" / "anchors"
        rows = np.fromfile(path, "<u4").reshape(-1, 3)
        rows = rows[np.argsort(places_of(rows), kind="stable")]
        rows[:, 0] %= np.uint32(different_hashes)
        path.write_bytes(rows.tobytes())
        starts = np.full(BUCKETS + 1, len(rows), "<u8")
        starts[0] = 0
        (tmp_path / f"anchors{shard}" / "anchor_buckets").write_bytes(starts.tobytes())
    monkeypatch.setattr(exchange, "hash_slices", lambda *of: hash_slices(*of) % np.uint32(different_hashes))
    actual, _ = match_folder(tmp_path, len(shards), minimum_bytes, most_paired=rng.choice([0, 32]))
    texts = [text_of(documents)[0] for documents in shards]
    rule = [[list(row) for row in rows] for rows in remove_ranges(texts, minimum_bytes)]
    assert [united(actual, shard, minimum_bytes) for shard in range(len(shards))] == rule
    assert sum(item.windows for item in actual) == sum(map(len, remove_pointers(texts, minimum_bytes)))


def test_matches_without_shards_are_none(tmp_path: Path) -> None:
    (actual,), repeated = match_folder(tmp_path, 0, 100)
    assert (actual.ranges, actual.windows, repeated) == ([], 0, [])


def test_answers_about_a_text_that_is_too_short_are_refused(tmp_path: Path) -> None:
    write_anchor_folders([[b"some text of one document " * 2] * 2], 9, tmp_path)
    path = tmp_path / "anchors0" / "text"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises((CorruptDataError, ValueError), match=r"shorter than|outside the text"):
        match_folder(tmp_path, 1, 9)


@pytest.mark.parametrize("period", [b"a", b"abc", bytes(range(33, 113))])
def test_ranges_of_ten_megabytes_of_short_period_are_one(tmp_path: Path, period: bytes) -> None:
    data = period * (10_000_000 // len(period))
    write_anchor_folders([[data]], 500, tmp_path)
    assert len(open_anchors(tmp_path / "anchors0").rows) < 100
    (actual,), _ = match_folder(tmp_path, 1, 500)
    assert actual.ranges[0].tolist() == [[1 + len(period), 1 + len(data)]]
    assert actual.windows == len(data) - 499 - len(period)
    kept = kept_whole(actual.later[0], actual.earlier[0], 500)
    assert kept.tolist() == [[500 + len(period), 1 + len(data)]]
