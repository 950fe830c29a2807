"""Which documents a budget shows, against lists that are sorted as a whole."""

from __future__ import annotations

import tracemalloc
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.config.epochs import MOST_EPOCHS, epochs_of, parse_amount
from corpusmill.kernels.content import ContentSum
from corpusmill.kernels.content_kernels import records_sum
from corpusmill.shuffle import budget
from corpusmill.shuffle.budget import (
    Documents,
    difference_of,
    draw_documents,
    share_out,
    shares_of_documents,
    shown_documents,
)
from corpusmill.tokens.token_shard import TokenShard
from tests.oracles.budget import Drawn, times_shown

AMOUNTS = st.sampled_from(["1 token", "17 tokens", "300 tokens", "0.3 epochs", "1 epoch", "2 epochs", "2.5 epochs"])
SHARDS = st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30), min_size=1, max_size=4)


@given(SHARDS, st.lists(AMOUNTS, min_size=3, max_size=3), st.integers(0, 9), st.sampled_from([0, 2, 1 << 20]))
def test_share_out_any_documents_and_amounts_is_the_oracles_choice(
    shards, amounts, seed: int, most_sorted: int
) -> None:
    parts = []
    for number, rows in enumerate(shards):
        sources, tokens = np.array(rows, np.int64).reshape(-1, 2).T
        parts.append(Documents(sources, draw_documents(seed, number, len(rows)), tokens.astype(np.uint64)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "MOST_SORTED", most_sorted)  # 0: every bit of the draws is looked at
        shares = share_out([parse_amount(amount) for amount in amounts], lambda: iter(parts))
    for source, (amount, share) in enumerate(zip(amounts, shares, strict=True)):
        drawn = [
            Drawn(int(draw), int(tokens), (number, ordinal))
            for number, part in enumerate(parts)
            for ordinal, (of, draw, tokens) in enumerate(zip(*part, strict=True))
            if of == source
        ]
        assert share.there == (sum(item.tokens for item in drawn), len(drawn), sum(not item.tokens for item in drawn))
        if not share.there.tokens:
            continue
        expected = times_shown(drawn, amount)
        shown = {item.name: share.whole + (share.last is not None and item.draw <= share.last) for item in drawn}
        assert shown == expected
        assert share.shown() == (
            sum(expected[item.name] * item.tokens for item in drawn),
            sum(expected.values()),
            sum(expected[item.name] for item in drawn if not item.tokens),
        )


def test_share_out_takes_the_memory_of_a_shard_however_many_there_are() -> None:
    def peak(shards: int) -> int:
        def read():
            for number in range(shards):
                draws = draw_documents(1, number, 50_000)
                yield Documents(np.arange(50_000) % 2, draws, draws % np.uint64(100))

        share_out([parse_amount("0.3 epochs"), parse_amount("2.5 epochs")], read)
        tracemalloc.reset_peak()
        share_out([parse_amount("0.3 epochs"), parse_amount("2.5 epochs")], read)
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        few, many = peak(4), peak(40)
    finally:
        tracemalloc.stop()
    assert few > 50_000 * 24  # a shard is there
    assert many < 1.1 * few


FILES = st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 3), st.booleans()), max_size=5)


@given(FILES, st.integers(0, 9))
def test_shown_documents_any_shares_are_those_of_every_epoch_in_order(files, seed: int) -> None:
    lengths = [length for of_file, _, _ in files for length in of_file]
    draws = draw_documents(seed, 0, len(lengths))
    median = sorted(draws.tolist())[len(lengths) // 2] if lengths else 0
    shares = [(whole, median if partial else None) for _, whole, partial in files]
    ends = np.array(list(accumulate(len(of_file) for of_file, _, _ in files)), np.uint64)
    shown, source_ends = shown_documents(shares, shares_of_documents(ends, None), ends, draws)
    expected, expected_ends = [], []
    for epoch in range(max((whole for whole, _ in shares), default=0) + 1):
        ordinal = 0
        for (of_file, _, _), (whole, last) in zip(files, shares, strict=True):
            for _ in of_file:
                if epoch < whole or (epoch == whole and last is not None and int(draws[ordinal]) <= last):
                    expected.append(ordinal)
                ordinal += 1
            expected_ends.append(len(expected))
    assert shown.tolist() == expected
    assert source_ends.tolist() == expected_ends

    tokens = np.arange(sum(lengths), dtype="<u2")
    shard = TokenShard(tokens, np.cumsum(lengths, dtype=np.uint64), "test", "0" * 64, 100, 98, 99, source_ends=ends)
    as_shown = shard.as_shown(shown, source_ends)
    for place, ordinal in enumerate(expected):
        assert as_shown.document(place).tolist() == shard.document(ordinal).tolist()

    def content(ordinals: list[int]) -> ContentSum:
        whole = np.concatenate([tokens[:0], *(shard.document(ordinal) for ordinal in ordinals)])
        sizes = np.array([lengths[ordinal] for ordinal in ordinals], np.uint64)
        return records_sum(whole, sizes, 7, np.array(ordinals, np.uint64))

    difference = difference_of(shard, as_shown, 7)
    everything = list(range(len(lengths)))
    left_out = [item for item in everything if item not in expected]
    assert difference.left_out == (
        sum(lengths[item] for item in left_out), len(left_out), sum(not lengths[item] for item in left_out)
    )  # fmt: skip
    assert difference.left_out_content == content(left_out)
    assert content(everything) + difference.again_content == content(expected) + difference.left_out_content
    assert len(everything) + difference.again.documents == len(expected) + difference.left_out.documents


@pytest.mark.parametrize(
    ("there", "amount", "whole", "rest"),
    [
        (10, "2.5 epochs", 2, 5),
        (10, "0.31 epochs", 0, 4),
        (10, "1.99 epochs", 2, 0),
        (3, "0.1 epochs", 0, 1),
        (10, "30 tokens", 3, 0),
        (10, "1k tokens", 100, 0),
        (3, "9999.5 epochs", 9999, 2),
        (7 * 10**12, "20.0000000001T tokens", 2, 6 * 10**12 + 100),
    ],
)
def test_epochs_of_an_amount_are_whole_ones_and_a_rest_without_rounding(there, amount, whole, rest) -> None:
    epochs = epochs_of(there, parse_amount(amount).of(there))
    assert (epochs.whole, epochs.rest) == (whole, rest)


@pytest.mark.parametrize(
    "text",
    ["", "1", "epochs", "0 epochs", "0 tokens", "-1 epochs", "2.5", "2,5 epochs", "1e9 tokens", "nan epochs",
     "2M epochs",
     f"{MOST_EPOCHS + 1} epochs", "9999999999T tokens", "1 epoch ", "٣ epochs", "1  epoch"],
)  # fmt: skip
def test_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"looks like|at most"):
        parse_amount(text)
