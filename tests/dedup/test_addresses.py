"""Comparing and hashing by address: equal to the byte-by-byte way, and nothing outside is read."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.anchors import write_anchors
from corpusmill.dedup.ranges import align_ranges, remove_ranges_from
from corpusmill.kernels.compiled import common_prefix, common_suffix
from corpusmill.kernels.content_kernels import bytes_hash
from tests.dedup.corpora import made, match_folder
from tests.oracles.dedup import remove_ranges

PAGE = mmap.PAGESIZE


def equal_from_the_left(first: bytes, second: bytes) -> int:
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), len(first))


@given(st.binary(max_size=90), st.binary(max_size=3), st.integers(0, 89))
def test_common_prefix_and_suffix_equal_the_byte_by_byte_count(data: bytes, other: bytes, where: int) -> None:
    changed = (data[:where] + other + data[where + len(other) :])[: len(data)]
    first, second = np.frombuffer(data, np.uint8), np.frombuffer(changed, np.uint8)
    assert common_prefix(first.ctypes.data, second.ctypes.data, len(data)) == equal_from_the_left(data, changed)
    ends = first.ctypes.data + len(data), second.ctypes.data + len(data)
    assert common_suffix(*ends, len(data)) == equal_from_the_left(data[::-1], changed[::-1])


def hash_of(data: bytes, before: bytes = b"x", after: bytes = b"") -> int:
    surrounded = np.frombuffer(before + data + after, np.uint8)
    return int(bytes_hash(surrounded.ctypes.data + len(before), len(data)))


@given(st.binary(min_size=7, max_size=80), st.binary(min_size=1, max_size=9), st.binary(max_size=9))
def test_bytes_hash_depends_on_the_bytes_alone(data: bytes, before: bytes, after: bytes) -> None:
    assert hash_of(data) == hash_of(data, before, after)


@given(st.binary(min_size=7, max_size=80), st.data())
def test_bytes_hash_of_changed_bytes_differs(data: bytes, draw: st.DataObject) -> None:
    where = draw.draw(st.integers(0, len(data) - 1))
    changed = data[:where] + bytes([data[where] ^ draw.draw(st.integers(1, 255))]) + data[where + 1 :]
    assert hash_of(data) != hash_of(changed)


@pytest.mark.parametrize("minimum_bytes", [7, 8, 9, 15, 16, 17, 40, 100, 500])
@pytest.mark.parametrize("period", [300, 1000])
def test_ranges_of_text_that_fills_its_page_reads_nothing_outside(
    page: np.ndarray, tmp_path: Path, minimum_bytes: int, period: int
) -> None:
    """The text ends where its mapping ends, as every memory-mapped file of whole pages does."""
    page[:] = np.resize(np.arange(period) % 251, PAGE)
    offsets = np.arange(0, PAGE, 2 * period, dtype=np.uint64)
    page[offsets.astype(np.int64)] = 0xFF
    page[page == 0xFF] = 0xFE
    page[offsets.astype(np.int64)] = 0xFF
    folder = made(tmp_path / "anchors0")
    write_anchors(page, offsets, minimum_bytes, folder)
    (folder / "text").write_bytes(page.tobytes())
    (matches,), _ = match_folder(tmp_path, 1, minimum_bytes)
    (ranges,) = matches.ranges
    assert [tuple(row) for row in ranges.tolist()] == remove_ranges([page.tobytes()], minimum_bytes)[0]
    aligned = align_ranges(page, offsets, ranges)
    kept, _ = remove_ranges_from(page, offsets, aligned, 0, len(offsets))
    assert kept.size + len(offsets) + int((aligned[:, 1] - aligned[:, 0]).sum()) == PAGE
