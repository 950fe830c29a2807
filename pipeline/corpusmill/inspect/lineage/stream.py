"""Arithmetic between a record's positions and a document's tokens, and between its kept and its original bytes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError
from corpusmill.inspect.lineage.facts import BOS, EOT, PADDING, Span
from corpusmill.tokens.records import ContextPlan, Packing


@dataclass(frozen=True)
class Stretch:
    """Positions [first, last) of a record: tokens of a document from `document_first` on, or special ones.

    For a document without tokens it is empty, at the place where they would be.
    """

    first: int
    last: int
    ordinal: int = -1
    document_first: int = 0
    special: str = ""


class Stream:
    """One shard's documents with tokens, in order.

    Built from a token shard's `ends` by one comparison per document (10 million take 20 ms); positions are then found
    by bisection, so nothing else of a mapped `ends` is read.
    """

    def __init__(self, ends: NDArray[np.uint64]) -> None:
        self._ends = ends
        without_tokens = np.flatnonzero(ends[1:] == ends[:-1]) + 1
        self._empty: list[int] = ([0] if len(ends) and ends[0] == 0 else []) + without_tokens.tolist()

    def tokens(self, ordinal: int) -> int:
        """Number of tokens of a document."""
        return int(self._ends[ordinal]) - (int(self._ends[ordinal - 1]) if ordinal else 0)

    def rank(self, ordinal: int) -> int:
        """The number of documents with tokens before this one."""
        return ordinal - bisect_left(self._empty, ordinal)


def context_stretches(plan: ContextPlan, packing: Packing, ends: NDArray[np.uint64], context: int) -> list[Stretch]:
    """The stretches of a context, in order; only padding tokens are merged into one stretch."""
    stretches: list[Stretch] = []
    position = 0
    before = len(packing.before)
    for piece in range(int(plan.bounds[context]), int(plan.bounds[context + 1])):
        ordinal, first, size = int(plan.documents[piece]), int(plan.firsts[piece]), int(plan.sizes[piece])
        tokens = int(ends[ordinal]) - (int(ends[ordinal - 1]) if ordinal else 0)
        start = position - first  # where the document's slot 0 would be
        specials = [*packing.before, *packing.behind]
        slots = [*range(before), *(before + tokens + place for place in range(len(packing.behind)))]
        held = [
            Stretch(start + slot, start + slot + 1, special=what)
            for slot, what in zip(slots, specials, strict=True)
            if first <= slot < first + size
        ]
        stretches += [stretch for stretch in held if stretch.first < start + before]
        stretches += _tokens_within(ordinal, tokens, start + before, position, position + size)
        stretches += [stretch for stretch in held if stretch.first >= start + before]
        position += size
    if position < plan.context_tokens:
        stretches.append(Stretch(position, plan.context_tokens, special=PADDING))
    return stretches


def document_stretches(ordinal: int, tokens: int, *, bos: bool = False, eot: bool = True) -> list[Stretch]:
    """A record that is a whole document (Megatron, Nanoset), with its BOS and EOT, if any."""
    document = _tokens_within(ordinal, tokens, int(bos), 0, tokens + bos)
    return [
        *([Stretch(0, 1, special=BOS)] if bos else []),
        *document,
        *([Stretch(tokens + bos, tokens + bos + 1, special=EOT)] if eot else []),
    ]


def file_stretches(ordinal: int, tokens: int, eot: int, size: int) -> list[Stretch]:
    """A document with its EOT before it, at position `eot` of a file of `size` positions, cut to the file.

    `eot` is negative when the file before this one holds the beginning.
    """
    if not 0 <= eot < size:
        return _tokens_within(ordinal, tokens, eot + 1, 0, size) if tokens else []
    return [Stretch(eot, eot + 1, special=EOT), *_tokens_within(ordinal, tokens, eot + 1, 0, size)]


def cut_stretches(stretches: list[Stretch], first: int, last: int) -> list[Stretch]:
    """The stretches of a record, cut to its positions [first, last), which are not empty."""
    cut = []
    for stretch in stretches:
        low, high = max(first, stretch.first), min(last, stretch.last)
        if low < high or first <= stretch.first == stretch.last < last:
            cut.append(
                replace(stretch, first=low, last=high, document_first=stretch.document_first + low - stretch.first)
            )
    return cut


def _tokens_within(ordinal: int, tokens: int, start: int, first: int, last: int) -> list[Stretch]:
    """The tokens of a document that begins at position `start`, cut to [first, last)."""
    if not tokens:
        place = min(max(start, first), last)
        return [Stretch(place, place, ordinal)]
    low, high = max(start, first), min(start + tokens, last)
    return [Stretch(low, high, ordinal, low - start)] if low < high else []


def kept_spans(text_bytes: int, removed: list[Span]) -> list[Span]:
    """The spans of a text without `removed` (ascending, disjoint)."""
    edges = [0, *(edge for span in removed for edge in span), text_bytes]
    return [(first, last) for first, last in list(pairwise(edges))[::2] if first < last]


def original_spans(kept: list[Span], first: int, last: int) -> tuple[Span, ...]:
    """Bytes [first, last) of the kept text, as spans of the original. CorruptDataError if the kept text is shorter."""
    spans = []
    begin = 0  # where the kept span begins in the kept text
    for low, high in kept:
        end = begin + high - low
        if max(first, begin) < min(last, end):
            spans.append((low + max(first, begin) - begin, low + min(last, end) - begin))
        begin = end
    if last > begin:
        raise CorruptDataError(
            "locate.tokens_exceed_text: a document's tokens are longer than its text",
            expected=f"tokens for at most {begin:,} bytes of text",
            got=f"tokens up to byte {last:,}",
            next_step="verify the text shard and the token shard: one of them was changed",
        )
    return tuple(spans)
