"""Ranges: merged, stored, aligned to characters and cut out as the oracles say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.dedup.ranges import (
    align_ranges,
    count_documents,
    read_ranges,
    remove_ranges_from,
    union_ranges,
    write_ranges,
)
from tests.oracles.dedup import align, cut, merge, text_of
from tests.raising import raises

Rows = list[tuple[int, int]]


def array(rows: Rows) -> np.ndarray:
    return np.array(rows, np.uint64).reshape(-1, 2)


def shard(documents: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    text, offsets = text_of(documents)
    return np.frombuffer(text, np.uint8), np.array(offsets, np.uint64)


@st.composite
def shards_with_ranges(draw: st.DrawFn, alphabet: str = "ab-é中😀") -> tuple[list[bytes], Rows]:
    """Documents, and ranges inside them, ascending and disjoint."""
    texts = draw(st.lists(st.text(st.sampled_from(alphabet), max_size=12), max_size=6))
    documents = [text.encode() for text in texts]
    rows: Rows = []
    for document, offset in zip(documents, text_of(documents)[1], strict=True):
        edges = sorted(draw(st.sets(st.integers(0, len(document)), max_size=6)))
        pairs = zip(edges[::2], edges[1::2], strict=False)
        rows += [(offset + 1 + start, offset + 1 + end) for start, end in pairs]
    return documents, rows


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair)))))
def test_union_ranges_equals_the_oracle(rows: Rows) -> None:
    assert union_ranges(array(rows)).tolist() == [list(row) for row in merge(rows)]


@given(shards_with_ranges())
def test_ranges_written_are_read_back(corpus: tuple[list[bytes], Rows]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "remove_ranges"
        write_ranges(path, array(corpus[1]))
        assert path.stat().st_size == 16 * len(corpus[1])
        assert read_ranges(path).tolist() == [list(row) for row in corpus[1]]


@pytest.mark.parametrize("data", [b"x", np.array([5, 5], "<u8").tobytes(), np.array([1, 9, 8, 12], "<u8").tobytes()])
def test_read_ranges_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "remove_ranges").write_bytes(data)
    with raises("ranges.damaged"):
        read_ranges(tmp_path / "remove_ranges")


@given(shards_with_ranges())
def test_align_ranges_equals_the_oracle_and_keeps_valid_text(corpus: tuple[list[bytes], Rows]) -> None:
    documents, rows = corpus
    text, offsets = shard(documents)
    expected = []
    for start, end in rows:
        document = int(np.searchsorted(offsets, start)) - 1
        begin = int(offsets[document]) + 1
        actual = align(documents[document], start - begin, end - begin)
        expected += [] if actual is None else [[begin + actual[0], begin + actual[1]]]
    aligned = align_ranges(text, offsets, array(rows))
    assert aligned.tolist() == expected
    for kept in cut(*text_of(documents), [(start, end) for start, end in aligned.tolist()]):
        kept.decode()


@pytest.mark.parametrize("rows", [[(0, 2)], [(2, 5)], [(4, 5)], [(6, 8)], [(3, 3)]])
def test_align_ranges_outside_a_document_is_refused(rows: Rows) -> None:
    text, offsets = shard([b"abc", b"de"])
    with raises("ranges.outside_document"):
        align_ranges(text, offsets, array(rows))


@given(shards_with_ranges(), st.data())
def test_remove_ranges_from_equals_the_oracle(corpus: tuple[list[bytes], Rows], data: st.DataObject) -> None:
    documents, rows = corpus
    first = data.draw(st.integers(0, len(documents)))
    last = data.draw(st.integers(first, len(documents)))
    text, offsets = shard(documents)
    kept, kept_offsets = remove_ranges_from(text, offsets, array(rows), first, last)
    bounds = kept_offsets.tolist()
    pieces = [kept[start:end].tobytes() for start, end in pairwise(bounds)]
    assert pieces == cut(*text_of(documents), rows)[first:last]
    assert bounds[-1] == kept.size


@pytest.mark.parametrize("rows", [[(2, 6)], [(1, 2), (1, 3)], [(2, 99)], [(4, 5)]])
def test_remove_ranges_from_ranges_that_do_not_fit_are_refused(rows: Rows) -> None:
    text, offsets = shard([b"abc", b"de"])
    with raises("ranges.outside_document"):
        remove_ranges_from(text, offsets, array(rows), 0, 2)


@given(shards_with_ranges())
def test_count_documents_equals_a_count_one_by_one(corpus: tuple[list[bytes], Rows]) -> None:
    documents, rows = corpus
    text, offsets = shard(documents)
    kept = cut(*text_of(documents), rows)
    assert count_documents(array(rows), offsets, text.size) == {
        "documents_touched": sum(len(document) != len(left) for document, left in zip(documents, kept, strict=True)),
        "documents_emptied": sum(bool(document) and not left for document, left in zip(documents, kept, strict=True)),
    }
