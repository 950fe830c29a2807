"""Anchors: every window has the one the oracle names, once, and the files do not depend on how they were written."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.anchor_kernels import BUCKETS
from corpusmill.dedup.anchors import Anchors, kgram_bytes, open_anchors, partition_buckets, places_of, write_anchors
from tests.dedup.corpora import LENGTHS, random_shards
from tests.oracles.dedup import SEPARATOR, anchor, text_of
from tests.quick import examples
from tests.raising import raises

FILES = ("anchors", "anchor_buckets", "anchor_repeats", "anchors.json")


def write(folder: Path, documents: list[bytes], minimum_bytes: int, run_anchors: int = 1 << 20) -> dict[str, int]:
    data, offsets = text_of(documents)
    text = np.frombuffer(data, np.uint8)
    return write_anchors(text, np.array(offsets, np.uint64), minimum_bytes, folder, run_anchors=run_anchors)


def owned_windows(anchors: Anchors) -> dict[int, int]:
    """Window start -> position of the anchor that owns it, from the rows."""
    owners: dict[int, int] = {}
    for place in places_of(anchors.rows).tolist():
        position, before, windows = place >> 20, place >> 10 & 1023, (place & 1023) + 1
        for start in range(position - before, position - before + windows):
            assert start not in owners
            owners[start] = position
    return owners


def hashes_and_places(anchors: Anchors) -> list[tuple[int, int]]:
    """(the upper 44 bits of the hash, the place) of every row."""
    buckets = np.repeat(np.arange(BUCKETS), np.diff(anchors.starts)).tolist()
    rows = zip(buckets, anchors.rows[:, 0].tolist(), places_of(anchors.rows).tolist(), strict=True)
    return [(bucket << 32 | value, place) for bucket, value, place in rows]


@pytest.mark.parametrize("seed", range(60))
def test_anchors_random_text_are_those_of_the_oracle(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    minimum_bytes = rng.choice(LENGTHS)
    documents = random_shards(rng, minimum_bytes)[0]
    counts = write(tmp_path, documents, minimum_bytes)
    anchors = open_anchors(tmp_path)
    text, _ = text_of(documents)
    owners = owned_windows(anchors)
    repeats = {start for first, stop in anchors.repeats.tolist() for start in range(first, stop)}
    starts = range(len(text) - minimum_bytes + 1)
    assert all(first < stop for first, stop in anchors.repeats.tolist())
    windows = {start for start in starts if SEPARATOR not in text[start : start + minimum_bytes]}
    assert counts["windows"] == len(windows) == len(owners) + len(repeats)
    assert owners.keys() | repeats == windows
    k = anchors.kgram_bytes
    for start, position in owners.items():
        assert position == start + anchor(text[start : start + minimum_bytes], k)
    for start in repeats:  # equal to a window of the same document a period earlier
        window = text[start : start + minimum_bytes]
        assert any(
            text[start - period : start - period + minimum_bytes] == window
            for period in range(1, max(8, minimum_bytes - k + 1) + 1)
            if start - period in windows
        )


def test_anchors_equal_kgrams_have_equal_hashes_and_rows_are_by_bucket_in_text_order(tmp_path: Path) -> None:
    documents = [bytes(random.Random(seed).choices(b"abcd", k=2000)) for seed in (1, 2, 1)]
    write(tmp_path, documents, 40)
    anchors = open_anchors(tmp_path)
    text, _ = text_of(documents)
    hashes: dict[bytes, set[int]] = {}
    for value, place in hashes_and_places(anchors):
        hashes.setdefault(text[place >> 20 : (place >> 20) + anchors.kgram_bytes], set()).add(value)
    assert all(len(values) == 1 for values in hashes.values())
    assert len({value for values in hashes.values() for value in values}) == len(hashes)
    order = [(value >> 32, place) for value, place in hashes_and_places(anchors)]
    assert order == sorted(order)
    assert anchors.starts.tolist() == np.searchsorted([bucket for bucket, _ in order], range(BUCKETS + 1)).tolist()


@examples(25)
@given(st.integers(0, 10**9), st.integers(40, 400), st.sampled_from(LENGTHS))
def test_write_anchors_in_runs_gives_the_same_bytes(seed: int, run_anchors: int, minimum_bytes: int) -> None:
    documents = [item for shard in random_shards(random.Random(seed), minimum_bytes) for item in shard]
    with TemporaryDirectory() as folder:
        whole, runs = Path(folder) / "whole", Path(folder) / "runs"
        whole.mkdir()
        runs.mkdir()
        assert write(whole, documents, minimum_bytes) == write(runs, documents, minimum_bytes, run_anchors)
        assert sorted(path.name for path in runs.iterdir()) == sorted(FILES)
        assert all((whole / name).read_bytes() == (runs / name).read_bytes() for name in FILES)


def test_write_anchors_one_anchor_at_a_time_gives_the_same_bytes(tmp_path: Path) -> None:
    documents = [b"", b"abcabcabcabcabcabcabcabcabcabcabc", b"To be, or not to be, that is the question:" * 2]
    for name, run_anchors in (("whole", 1 << 20), ("runs", 1)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, documents, 12, run_anchors)
    assert all((tmp_path / "whole" / name).read_bytes() == (tmp_path / "runs" / name).read_bytes() for name in FILES)


def test_anchors_partitions_together_are_all_rows(tmp_path: Path) -> None:
    write(tmp_path, [bytes(random.Random(5).choices(b"abcd", k=9000))], 30)
    anchors = open_anchors(tmp_path)
    for partitions in (1, 2, 3, 7, 64, BUCKETS):
        bounds = [partition_buckets(partition, partitions) for partition in range(partitions)]
        parts = [anchors.rows[anchors.starts[first] : anchors.starts[last]] for first, last in bounds]
        assert np.array_equal(np.concatenate(parts), anchors.rows)


@pytest.mark.parametrize("documents", [[], [b""], [b"", b""], [b"short"]])
def test_anchors_text_without_windows_has_none(tmp_path: Path, documents: list[bytes]) -> None:
    counts = write(tmp_path, documents, 7)
    nothing = dict.fromkeys(("windows", "repeated_windows", "repeats", "anchors", "largest_bucket"), 0)
    assert counts == {"documents": len(documents), **nothing}
    assert len(open_anchors(tmp_path).rows) == 0


@pytest.mark.parametrize("minimum_bytes", [7, 8, 15, 16, 17, 48, 49, 100, 500, 1535, 1536, 1537, 10_000, 1_000_000])
def test_kgram_bytes_fits_the_window_and_the_place(minimum_bytes: int) -> None:
    k = kgram_bytes(minimum_bytes)
    assert 7 <= k <= minimum_bytes
    assert minimum_bytes - k + 1 <= 1024
    assert k >= min(16, minimum_bytes)


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        (b"\xffab", [1]),
        (b"\xffab\xffcd", [0, 2]),
        (b"\xffab\xffcd", [0, 3, 3]),
        (b"\xffab\xffcd", [0, 99]),
        (b"\xffab\xffcd", [3, 0]),
        (b"", [0]),
        (b"\xffab", []),
    ],
)
def test_write_anchors_offsets_that_do_not_fit_are_refused(tmp_path: Path, data: bytes, offsets: list[int]) -> None:
    with raises("anchors.offsets_differ"):
        write_anchors(np.frombuffer(data, np.uint8), np.array(offsets, np.uint64), 7, tmp_path)


@pytest.mark.parametrize("lost_bytes", [8, 16, 24])
@pytest.mark.parametrize("name", ["anchors", "anchor_buckets", "anchor_repeats"])
def test_open_anchors_shortened_file_is_refused(tmp_path: Path, name: str, lost_bytes: int) -> None:
    write(tmp_path, [b"ab" * 50 + bytes(random.Random(1).choices(b"abcd", k=500))], 20)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:-lost_bytes])
    with raises("anchors.files_disagree"):
        open_anchors(tmp_path)
