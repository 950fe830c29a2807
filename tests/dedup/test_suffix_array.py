"""The suffix array: infini-gram's files byte for byte, and the same ranges as the anchors and the oracle."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.suffix_array import open_suffix_array, pointer_bytes, write_suffix_array
from corpusmill.documents.sample_corpus import write_sample_corpus
from corpusmill.errors import CorruptDataError
from tests.dedup.corpora import LENGTHS, METHODS, boilerplate_shards, random_shards, united, united_kept_whole
from tests.dedup.test_golden import GOLDEN
from tests.oracles.dedup import kept_whole_ranges, remove_ranges, suffix_array, text_of
from tests.quick import examples, quick

WORKED = ["abcab", "", "héllo abcab\n", "zz中文zz", "abcab"]
WORKED_TABLE = "140e2412210f0104251322100205231103080b0c0d161e171f1d1c0a1a1909181b2000071506"


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def test_suffix_array_worked_example_has_the_specified_bytes(tmp_path: Path) -> None:
    text, _ = text_of(item.encode() for item in WORKED)
    assert write_suffix_array(array(text), tmp_path, unigram=True) == {"suffixes": 38, "pointer_bytes": 1}
    assert (tmp_path / "table").read_bytes().hex() == WORKED_TABLE
    lines = (tmp_path / "unigram").read_text().splitlines()
    assert lines[:3] == ["10 1", "32 1", "97 6"]
    assert lines[-1] == "255 5"


@examples(60)
@given(st.lists(st.text("ab\x00ÿ中😀", max_size=20), max_size=6))
def test_suffix_array_is_the_sorted_suffixes(tmp_path_factory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("table")
    text, _ = text_of(text.encode() for text in texts)
    write_suffix_array(array(text), folder)
    suffixes = open_suffix_array(folder, len(text))
    assert suffixes.starts(0, len(suffixes)).tolist() == suffix_array(text)


@pytest.mark.parametrize(
    ("text_bytes", "width"),
    [(1, 1), (2, 1), (256, 1), (257, 2), (1 << 16, 2), ((1 << 16) + 1, 3), (1 << 24, 3), (1 << 32, 4), (1 << 40, 5)],
)
def test_pointer_bytes_are_the_least_that_hold_every_position(text_bytes: int, width: int) -> None:
    assert pointer_bytes(text_bytes) == width


def test_suffix_array_of_more_than_64_ki_bytes_has_pointers_of_three(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 3, 70_000, np.uint8)
    write_suffix_array(data, tmp_path)
    suffixes = open_suffix_array(tmp_path, data.size)
    starts = suffixes.starts(0, len(suffixes))
    assert suffixes.pointer_bytes == 3
    assert np.array_equal(np.sort(starts), np.arange(data.size))
    text = data.tobytes()
    assert all(text[a : a + 200] < text[b : b + 200] for a, b in zip(starts[:-1:97], starts[1::97], strict=False))


def test_suffix_array_of_an_empty_shard_is_empty(tmp_path: Path) -> None:
    assert write_suffix_array(array(b""), tmp_path, unigram=True)["suffixes"] == 0
    assert len(open_suffix_array(tmp_path, 0)) == 0
    assert (tmp_path / "unigram").read_bytes() == b""


def test_suffix_array_of_another_text_is_refused(tmp_path: Path) -> None:
    write_suffix_array(array(b"\xffabc"), tmp_path)
    with pytest.raises(CorruptDataError, match="does not match its text"):
        open_suffix_array(tmp_path, 5)


@pytest.mark.parametrize("partitions", [1, 5])
@pytest.mark.parametrize("name", GOLDEN)
def test_suffix_ranges_golden_vector_are_found(name: str, partitions: int) -> None:
    minimum_bytes, shards, expected = GOLDEN[name]
    actual, _ = METHODS["suffix_array"](shards, minimum_bytes, partitions=partitions)
    assert [united(actual, shard, minimum_bytes) for shard in range(len(shards))] == expected


@pytest.mark.parametrize("make", [random_shards, boilerplate_shards])
@pytest.mark.parametrize("block", quick(range(24), 1))
def test_ranges_of_both_methods_equal_the_oracles(block: int, make) -> None:
    """Ranges of the rule and of `keep: every_string`, from anchors and from suffix arrays."""
    for seed in range(5 * block, 5 * block + 5):
        rng = random.Random(seed)
        minimum_bytes, partitions = rng.choice(LENGTHS), rng.choice([1, 2, 5])
        shards = make(rng, minimum_bytes)
        texts = [text_of(documents)[0] for documents in shards]
        rule = [[list(row) for row in rows] for rows in remove_ranges(texts, minimum_bytes)]
        whole = [[list(row) for row in rows] for rows in kept_whole_ranges(texts, minimum_bytes)]
        for method, find in METHODS.items():
            actual, _ = find(shards, minimum_bytes, partitions=partitions)
            numbers = range(len(shards))
            assert [united(actual, shard, minimum_bytes) for shard in numbers] == rule, (seed, method)
            assert [united_kept_whole(actual, shard, minimum_bytes) for shard in numbers] == whole, (seed, method)


@pytest.mark.parametrize("minimum_bytes", quick([50, 200], 1))
def test_ranges_of_both_methods_on_real_text_are_equal(tmp_path: Path, minimum_bytes: int) -> None:
    """Documentation of the installed packages, in two shards."""
    write_sample_corpus(tmp_path, target_bytes=2_000_000, files=2)
    shards = []
    for path in sorted(tmp_path.glob("*.jsonl.zst")):
        lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()
        shards.append([json.loads(line)["text"].encode() for line in lines.splitlines()])
    anchors, suffixes = (
        METHODS[method](shards, minimum_bytes, partitions=3)[0] for method in ("anchors", "suffix_array")
    )
    for shard in range(2):
        assert len(united(anchors, shard, minimum_bytes)) > 10
        assert united(anchors, shard, minimum_bytes) == united(suffixes, shard, minimum_bytes)
        assert united_kept_whole(anchors, shard, minimum_bytes) == united_kept_whole(suffixes, shard, minimum_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_shards, boilerplate_shards])
@pytest.mark.parametrize("block", range(100, 150))
def test_ranges_of_both_methods_equal_the_oracles_at_length(block: int, make) -> None:
    test_ranges_of_both_methods_equal_the_oracles(block, make)
