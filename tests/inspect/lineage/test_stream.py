from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.inspect.lineage.shards import (
    Stream,
    Stretch,
    context_stretches,
    document_stretches,
    file_stretches,
    kept_spans,
    original_spans,
)
from corpusmill.tokens.records import Packing, plan_contexts
from tests.raising import raises

Slot = tuple[int, int] | str  # (document, token of it), "EOT" or "padding"

lengths_of_documents = st.lists(st.integers(0, 5), max_size=12)


def slots_of(stretches: list[Stretch]) -> list[Slot]:
    """What stands at each position, from the first stretch's on; fails if stretches leave a gap."""
    slots: list[Slot] = []
    for stretch in stretches:
        assert stretch.first == stretches[0].first + len(slots)
        held = range(stretch.last - stretch.first)
        slots += [stretch.special or (stretch.ordinal, stretch.document_first + place) for place in held]
    return slots


def stream_slots(lengths: list[int]) -> list[Slot]:
    return [
        slot
        for number, length in enumerate(lengths)
        if length
        for slot in [*((number, token) for token in range(length)), "EOT"]
    ]


def stream_of(lengths: list[int]) -> Stream:
    return Stream(np.cumsum(lengths, dtype=np.uint64) if lengths else np.empty(0, np.uint64))


@given(lengths_of_documents, st.integers(2, 20))
def test_context_stretches_equal_the_slots_written_out(lengths: list[int], size: int) -> None:
    slots = stream_slots(lengths)
    ends = np.cumsum(lengths, dtype=np.uint64)
    plan = plan_contexts(ends, size, Packing())
    for context in range(plan.contexts):
        expected = slots[context * size : (context + 1) * size]
        expected += ["padding"] * (size - len(expected))
        assert slots_of(context_stretches(plan, Packing(), ends, context)) == expected


@given(lengths_of_documents)
def test_stream_ranks_and_sizes_of_documents_equal_those_counted(lengths: list[int]) -> None:
    stream = stream_of(lengths)
    for number, length in enumerate(lengths):
        assert stream.tokens(number) == length
        assert stream.rank(number) == sum(1 for length in lengths[:number] if length)


@given(st.integers(0, 9), st.integers(-12, 12), st.integers(1, 12))
def test_file_stretches_are_the_part_of_the_document_in_the_file(tokens: int, eot: int, size: int) -> None:
    slots = {eot: "EOT", **{eot + 1 + token: (3, token) for token in range(tokens)}}
    expected = [slots[position] for position in range(size) if position in slots]
    stretches = file_stretches(3, tokens, eot, size)
    assert slots_of(stretches) == expected
    assert not stretches or stretches[0].first == max(eot, 0)


def test_document_stretches_end_with_eot() -> None:
    assert slots_of(document_stretches(3, 2)) == [(3, 0), (3, 1), "EOT"]


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """(bytes of a text, ranges of it that are removed: ascending, disjoint)"""
    size = draw(st.integers(0, 40))
    edges = sorted(draw(st.sets(st.integers(0, size), max_size=8)))
    return size, list(zip(edges[::2], edges[1::2], strict=False))


@given(cuts(), st.integers(0, 40), st.integers(0, 40))
def test_original_spans_hold_the_kept_bytes(cut: tuple[int, list[tuple[int, int]]], low: int, high: int) -> None:
    size, removed = cut
    left = [place for place in range(size) if not any(first <= place < last for first, last in removed)]
    kept = kept_spans(size, removed)
    assert [place for span in kept for place in range(*span)] == left
    first, last = sorted((min(low, len(left)), min(high, len(left))))
    spans = original_spans(kept, first, last)
    assert [place for span in spans for place in range(*span)] == left[first:last]
    assert all(begin < end for begin, end in spans)


def test_original_spans_beyond_the_text_are_refused() -> None:
    with raises("locate.tokens_exceed_text"):
        original_spans([(0, 3), (5, 6)], 2, 5)
