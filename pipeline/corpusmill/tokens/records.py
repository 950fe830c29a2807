"""Records, which the shuffle permutes: whole documents, or contexts (packing.py); kernels copy their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import placed_sum, records_sum, token_sums
from corpusmill.kernels.slices import copy_slices
from corpusmill.tokens.packing import ContextPlan, Indices, Packing, PieceTokens, plan_contexts
from corpusmill.tokens.packing_kernels import fill_contexts
from corpusmill.tokens.token_shard import PADDING, TokenShard


@dataclass(frozen=True)
class RecordsContent:
    """The content sums of copied records (content.py).

    `records` weighs every token by its place in its record; `documents` weighs the documents' own tokens by their
    place in the document, wherever its pieces are. All other slots are `special_tokens` if special tokens and padding
    are in their places: then document_tokens + special_tokens = slots.
    """

    records: ContentSum = NOTHING
    documents: ContentSum = NOTHING
    document_tokens: int = 0
    special_tokens: int = 0

    def __add__(self, other: RecordsContent) -> RecordsContent:
        return RecordsContent(
            self.records + other.records,
            self.documents + other.documents,
            self.document_tokens + other.document_tokens,
            self.special_tokens + other.special_tokens,
        )


@dataclass(frozen=True)
class Records:
    """The records of one token shard, not yet copied: `ordinals` uint64[n] and `lengths` uint64[n] in tokens.

    For documents an ordinal is the document's in the shard; for contexts it is the context's in `plan`.
    """

    shard: TokenShard
    ordinals: NDArray[np.uint64]
    lengths: NDArray[np.uint64]
    packing: Packing = field(default_factory=Packing)
    plan: ContextPlan | None = None  # None: records are whole documents

    @property
    def special_tokens(self) -> int:
        """EOT and BOS in all records."""
        return self.plan.special_tokens if self.plan else 0

    @property
    def pad_tokens(self) -> int:
        """Padding in all records."""
        return self.plan.pad_tokens if self.plan else 0

    @property
    def repeated_tokens(self) -> int:
        """Tokens that are in two contexts, because contexts overlap."""
        return self.plan.repeated_tokens if self.plan else 0

    def copy(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The tokens of some records, back to back, in the order of `chosen` (positions in `ordinals`)."""
        lengths = self.lengths[chosen]
        copied = np.empty(int(lengths.sum()), self.shard.tokens.dtype)
        tokens, starts = np.asarray(self.shard.tokens), self.shard.starts
        if self.plan is None:
            starts = starts[self.ordinals[chosen]]
            copy_slices(tokens, starts, lengths, copied)
        else:
            plan = self.plan
            before, behind = (self._ids(roles) for roles in (self.packing.before, self.packing.behind))
            arrays = (plan.bounds, plan.documents, plan.firsts, plan.sizes)
            contexts = self.ordinals[chosen].astype(np.int64)
            pad = self.shard.special_id(PADDING)
            ends = np.asarray(self.shard.ends)
            fill_contexts(tokens, starts, ends, arrays, before, behind, pad, contexts, plan.context_tokens, copied)
        return copied

    def content(self, chosen: NDArray[np.int64], copied: NDArray[Any], shard: int) -> RecordsContent:
        """The content sums of the `copied` tokens of some records: by record, and by the documents whose pieces they
        are.
        """
        lengths, ordinals = self.lengths[chosen], self.ordinals[chosen]
        by_record = records_sum(copied, lengths, shard, ordinals)
        if self.plan is None:
            shown = self.shard.shown is not None
            by_document = records_sum(copied, lengths, shard, self.shard.in_files(ordinals)) if shown else by_record
            return RecordsContent(by_record, by_document, len(copied), 0)
        plan, before, behind = self.plan, self.packing.before, self.packing.behind
        pieces, begins = plan.pieces_of(ordinals.astype(np.int64))
        tokens = plan.tokens_of(pieces, np.asarray(self.shard.ends), len(before))
        sums = token_sums(copied, begins + tokens.skipped, tokens.sizes, tokens.firsts)
        by_document = placed_sum(sums, shard, self.shard.in_files(plan.documents[pieces].astype(np.uint64)))
        special = 0
        ahead: list[tuple[str, Indices | int]] = [(role, slot) for slot, role in enumerate(before)]
        for role, slots in (*ahead, *_behind(behind, tokens, len(before))):
            places = plan.places_of(slots, pieces, begins)
            special += int(np.count_nonzero(copied[places] == self.shard.special_id(role)))
        pads = plan.padding_of(ordinals.astype(np.int64))
        special += int(np.count_nonzero(copied[pads] == self.shard.special_id(PADDING)))
        return RecordsContent(by_record, by_document, int(tokens.sizes.sum()), special)

    def repeated_content(self, shard: int) -> ContentSum:
        """The content sum of tokens that are in two contexts, because contexts overlap; read from the token shard."""
        if self.plan is None or not self.plan.repeated_tokens:
            return NOTHING
        plan, ends = self.plan, np.asarray(self.shard.ends)
        pieces = np.arange(len(plan.documents))
        tokens = plan.tokens_of(pieces, ends, len(self.packing.before), plan.repeated_slots())
        starts = self.shard.starts[plan.documents] + tokens.firsts
        sums = token_sums(np.asarray(self.shard.tokens), starts, tokens.sizes, tokens.firsts)
        return placed_sum(sums, shard, self.shard.in_files(plan.documents.astype(np.uint64)))

    def _ids(self, roles: tuple[str, ...]) -> NDArray[np.int64]:
        return np.array([self.shard.special_id(role) for role in roles], np.int64)


def _behind(roles: tuple[str, ...], tokens: PieceTokens, before: int) -> Iterator[tuple[str, Indices]]:
    """(role, its slot in every piece's document) of the special tokens behind a document's own."""
    for number, role in enumerate(roles):
        yield role, tokens.documents + before + number


def document_records(shard: TokenShard, *, keep_empty: bool = False) -> Records:
    """Every document that has tokens, or with `keep_empty` every document, whole, without special tokens."""
    lengths = _lengths(shard.ends)
    ordinals = (np.arange(len(lengths)) if keep_empty else np.flatnonzero(lengths)).astype(np.uint64)
    return Records(shard, ordinals, lengths[ordinals])


def context_records(shard: TokenShard, context_tokens: int, packing: Packing | None = None) -> Records:
    """The shard's documents packed into contexts (packing.py)."""
    packing = packing or Packing()
    plan = plan_contexts(np.asarray(shard.ends), context_tokens, packing, shard.source_ends)
    lengths = np.full(plan.contexts, context_tokens, np.uint64)
    return Records(shard, np.arange(plan.contexts, dtype=np.uint64), lengths, packing, plan)


def _lengths(ends: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.diff(np.asarray(ends), prepend=np.uint64(0)).astype(np.uint64, copy=False)
