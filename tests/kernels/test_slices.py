"""Slices copied by address: equal to Python's slices, and never beyond an array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.kernels.slices import JoinedBytes, copy_slices, line_ends, starts_of

DTYPES = (np.uint8, np.uint16, np.uint32)
LENGTHS = st.lists(st.integers(0, 40), max_size=30)


def u64(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint64)


@given(LENGTHS, st.sampled_from(DTYPES), st.randoms(use_true_random=False))
def test_slices_equal_pythons_slices_and_go_back_to_their_places(lengths, dtype, random) -> None:
    source = np.arange(sum(lengths)).astype(dtype)
    starts = starts_of(u64(lengths))
    order = list(range(len(lengths)))
    random.shuffle(order)
    out = np.empty_like(source)
    copy_slices(source, starts[order], u64(lengths)[order], out)
    parts = [source[int(starts[i]) : int(starts[i]) + lengths[i]].tolist() for i in order]
    assert out.tolist() == [item for part in parts for item in part]
    back = np.empty_like(source)
    copy_slices(out, starts_of(u64(lengths)[order]), u64(lengths)[order], back, starts[order])
    assert back.tolist() == source.tolist()


@pytest.mark.parametrize(
    ("starts", "lengths", "places"),
    [([8], [3], [0]), ([0], [3], [8]), ([0], [11], [0]), ([2**64 - 1], [2], [0]), ([0], [2**64 - 1], [2])],
)
def test_slices_beyond_an_array_are_refused(starts, lengths, places) -> None:
    with pytest.raises(ValueError, match="beyond an array of 10 items"):
        copy_slices(np.zeros(10, np.uint16), u64(starts), u64(lengths), np.zeros(10, np.uint16), u64(places))


def test_slices_of_another_width_or_with_gaps_are_refused() -> None:
    item = u64([1])
    with pytest.raises(ValueError, match="cannot be copied"):
        copy_slices(np.zeros(4, np.uint16), item, item, np.zeros(4, np.uint32))
    with pytest.raises(ValueError, match="not contiguous"):
        copy_slices(np.zeros(8, np.uint16)[::2], item, item, np.zeros(4, np.uint16))


@given(
    st.lists(st.lists(st.binary(max_size=20), max_size=6), min_size=1, max_size=5), st.randoms(use_true_random=False)
)
def test_joined_bytes_give_every_slice_whichever_part_it_lies_in(parts, random) -> None:
    joined = JoinedBytes([np.frombuffer(b"".join(part), np.uint8) for part in parts])
    strings = [string for part in parts for string in part]
    lengths = u64([len(string) for string in strings])
    order = list(range(len(strings)))
    random.shuffle(order)
    out = np.empty(int(lengths.sum()), np.uint8)
    joined.copy_slices(starts_of(lengths)[order], lengths[order], out)
    assert out.tobytes() == b"".join(strings[i] for i in order)


@pytest.mark.parametrize(("start", "length", "room"), [(3, 2, 9), (8, 3, 9), (0, 4, 3), (2**64 - 1, 2, 9)])
def test_joined_bytes_slice_across_or_beyond_the_parts_is_refused(start, length, room) -> None:
    joined = JoinedBytes([np.zeros(4, np.uint8), np.zeros(5, np.uint8)])
    with pytest.raises(ValueError, match="is outside the joined"):
        joined.copy_slices(u64([start]), u64([length]), np.zeros(room, np.uint8))


@given(st.lists(st.integers(0, 150), max_size=200))
def test_line_ends_are_pythons_for_lines_of_any_length(lengths) -> None:
    data = b"".join(b"\x8a" * length + b"\n" for length in lengths)
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    assert line_ends(np.frombuffer(data, np.uint8)).tolist() == ends
