"""The suffix array: infini-gram's files byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.infini_gram import pointer_bytes, write_suffix_array
from tests.oracles.dedup import pointers, suffix_array, text_of
from tests.quick import examples


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@examples(60)
@given(st.lists(st.text("ab\x00ÿ中😀", max_size=20), max_size=6))
def test_suffix_array_is_the_sorted_suffixes(tmp_path_factory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("table")
    text, _ = text_of(text.encode() for text in texts)
    write_suffix_array(array(text), folder)
    assert pointers((folder / "table").read_bytes(), 1) == suffix_array(text)


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
    starts = pointers((tmp_path / "table").read_bytes(), 3)
    assert sorted(starts) == list(range(data.size))
    text = data.tobytes()
    assert all(text[a : a + 200] < text[b : b + 200] for a, b in zip(starts[:-1:97], starts[1::97], strict=False))


def test_suffix_array_of_an_empty_shard_is_empty(tmp_path: Path) -> None:
    write_suffix_array(array(b""), tmp_path, unigram=True)
    assert (tmp_path / "table").read_bytes() == b""
    assert (tmp_path / "unigram").read_bytes() == b""
