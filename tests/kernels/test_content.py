"""Content sums against the oracle, and what they must see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.inspect.verify import exports as independent
from corpusmill.kernels.content import NOTHING, ContentSum, add_up
from corpusmill.kernels.content_kernels import placed_sum, records_sum, text_hashes, texts_sum, token_sums
from tests.oracles import content as oracle

DTYPES = st.sampled_from([np.uint16, np.uint32, np.int32])
TOKENS = st.lists(st.integers(0, 60_000), max_size=40)


@given(rows=st.lists(TOKENS, max_size=8), unit=st.integers(0, 1 << 40), dtype=DTYPES)
def test_records_sum_any_records_equal_the_oracle_and_the_independent_reader(rows, unit, dtype) -> None:
    tokens = np.array([token for row in rows for token in row], dtype)
    lengths = np.array([len(row) for row in rows], np.uint64)
    ordinals = np.arange(5, 5 + len(rows), dtype=np.uint64)
    wanted = oracle.records((unit, ordinal, row) for ordinal, row in enumerate(rows, 5))
    assert records_sum(tokens, lengths, unit, ordinals) == wanted
    assert independent.weigh(independent.piece_sums(tokens, lengths), unit, ordinals) == wanted


@given(length=st.integers(0, 3000), cuts=st.lists(st.integers(0, 3000), max_size=5))
def test_token_sums_pieces_of_a_document_add_up_to_the_whole(length, cuts) -> None:
    tokens = np.random.default_rng(length).integers(0, 1 << 31, length).astype(np.uint32)
    bounds = np.array([0, *sorted(min(cut, length) for cut in cuts), length], np.uint64)
    pieces = token_sums(tokens, bounds[:-1], np.diff(bounds), bounds[:-1])
    assert pieces.sum(axis=1, dtype=np.uint64).tolist() == oracle.tokens_of(tokens.tolist())


@given(texts=st.lists(st.binary(max_size=90), max_size=6), shard=st.integers(0, 9), gap=st.integers(0, 1))
def test_texts_sum_any_texts_equal_the_oracle(texts, shard, gap) -> None:
    joined = np.frombuffer(b"".join(b"\xff" * gap + text for text in texts) + b"tail", np.uint8)
    bounds = np.cumsum([0, *(len(text) + gap for text in texts)]).astype(np.uint64)
    assert texts_sum(joined, bounds, gap, shard, 3) == oracle.texts(shard, texts, 3)


def test_text_hashes_of_every_length_wherever_it_begins_equal_the_oracle() -> None:
    text = np.random.default_rng(1).integers(0, 256, 20_000).astype(np.uint8)
    sizes = np.array([*range(140), 4096, 9999], np.uint64)
    starts = np.arange(len(sizes), dtype=np.uint64) * np.uint64(7)
    hashes = text_hashes(text, starts, starts + sizes)
    for start, size, own in zip(starts.tolist(), sizes.tolist(), hashes.T.tolist(), strict=True):
        assert own == oracle.text_hash(text[start : start + size].tobytes())


@given(rows=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=2, max_size=6), data=st.data())
def test_records_sum_sees_what_counts_cannot(rows, data) -> None:
    """A record lost while another is doubled, two exchanged, one token changed, a border moved."""

    def summed(changed: list[list[int]]) -> ContentSum:
        flat = np.array([token for row in changed for token in row], np.uint16)
        lengths = np.array([len(row) for row in changed], np.uint64)
        return records_sum(flat, lengths, 1, np.arange(len(changed), dtype=np.uint64))

    i, j = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=2, max_size=2, unique=True))
    doubled = [*rows]
    doubled[i] = rows[j]
    exchanged = [*rows]
    exchanged[i], exchanged[j] = rows[j], rows[i]
    if rows[i] != rows[j]:
        assert summed(doubled) != summed(rows)
        assert summed(exchanged) != summed(rows)
    other = [*rows]
    other[i] = [rows[i][0] + 1, *rows[i][1:]]
    assert summed(other) != summed(rows)
    moved = [*rows]
    moved[0], moved[1] = rows[0] + rows[1][:1], rows[1][1:]
    assert summed(moved) != summed(rows)


@given(parts=st.lists(st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))))
def test_content_sum_adds_subtracts_and_reads_back(parts) -> None:
    sums = [ContentSum(*part) for part in parts]
    total = add_up(sums)
    assert add_up(str(part) for part in sums) == total == ContentSum.parse(str(total))
    for part in sums:
        total -= part
    assert total == NOTHING
    assert not total


def test_content_sum_of_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="32"):
        ContentSum.parse("12")


def test_kernels_refuse_what_leaves_the_array() -> None:
    item, two = np.array([1], np.uint64), np.array([2], np.uint64)
    with pytest.raises(IndexError):
        token_sums(np.zeros(2, np.uint16), item, two, item)
    with pytest.raises(IndexError):
        text_hashes(np.zeros(1, np.uint8), item, two)


def test_placed_sum_of_nothing_is_nothing() -> None:
    none = np.empty(0, np.uint64)
    assert placed_sum(np.empty((2, 0), np.uint64), 3, none) == NOTHING


@pytest.mark.parametrize(("parts", "units", "ordinals"), [(1, 2, 2), (2, 3, 2), (2, 2, 3), (2, 0, 2)])
def test_placed_sum_of_arrays_that_do_not_fit_together_is_refused(parts: int, units: int, ordinals: int) -> None:
    with pytest.raises(ValueError, match="do not fit together"):
        placed_sum(np.zeros((2, parts), np.uint64), np.zeros(units, np.uint64), np.zeros(ordinals, np.uint64))
