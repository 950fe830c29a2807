"""What the shuffle carries beside tokens, in the order of the records that it belongs to.

    pieces    of each context the slots of each of its documents, in order; uint32
    texts     of each document the bytes of the text that was tokenized, uint8

These are records like others: scatter draws their places as those of the records they belong to.

Texts are carried, not decoded from tokens: a tokenizer that normalizes, or adds a space, does not give the text back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.kernels.content_kernels import placed_sum, records_sum, text_hashes
from corpusmill.kernels.slices import copy_slices, runs, starts_of
from corpusmill.tokens.records import Packing, Records, RecordsContent, context_records, document_records
from corpusmill.tokens.token_shard import TokenShard

BATCH_BYTES = 1 << 22


@dataclass(frozen=True)
class Pieces(Records):
    """The sizes of the pieces of contexts."""

    @cached_property
    def source(self) -> NDArray[Any]:
        """uint32: the slots of all pieces of the plan."""
        assert self.plan is not None  # noqa: S101 (see piece_records)
        return self.plan.sizes.astype("<u4")

    def copy(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The sizes of the pieces of some contexts, back to back."""
        assert self.plan is not None  # noqa: S101 (see piece_records)
        return self.source[self.plan.pieces_of(self.ordinals[chosen].astype(np.int64))[0]]

    def content(self, chosen: NDArray[np.int64], copied: NDArray[Any], shard: int) -> RecordsContent:
        """The content sum of the sizes; document_tokens: all slots."""
        by_record = records_sum(copied, self.lengths[chosen], shard, self.ordinals[chosen])
        return RecordsContent(by_record, NOTHING, int(copied.sum()), 0)

    def repeated_content(self, _shard: int) -> ContentSum:
        """None: see the contexts."""
        return NOTHING


def piece_records(shard: TokenShard, context_tokens: int, packing: Packing) -> Pieces:
    """Of each context of a shard the sizes of its pieces."""
    contexts = context_records(shard, context_tokens, packing, padded=False)
    assert contexts.plan is not None  # noqa: S101 (they are contexts)
    lengths = np.diff(contexts.plan.bounds).astype(np.uint64)
    return Pieces(shard, contexts.ordinals, lengths, packing, contexts.plan)


@dataclass(frozen=True)
class Texts(Records):
    """The texts of documents, each the spans of a text shard that were not cut.

    text: uint8; starts and sizes: of all spans, uint64; bounds: int64 (documents + 1,), the spans of each document of
    the shard's files.
    """

    text: NDArray[np.uint8] = field(kw_only=True)
    starts: NDArray[np.uint64] = field(kw_only=True)
    sizes: NDArray[np.uint64] = field(kw_only=True)
    bounds: NDArray[np.int64] = field(kw_only=True)

    @property
    def source(self) -> NDArray[Any]:
        """The text of the shard."""
        return self.text

    def copy(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The texts of some documents, back to back."""
        documents = self.shard.in_files(self.ordinals[chosen]).astype(np.int64)
        counts = self.bounds[documents + 1] - self.bounds[documents]
        spans = np.repeat(self.bounds[documents] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        copied = np.empty(int(self.lengths[chosen].sum()), np.uint8)
        copy_slices(self.text, self.starts[spans], self.sizes[spans], copied)
        return copied

    def content(self, chosen: NDArray[np.int64], copied: NDArray[Any], shard: int) -> RecordsContent:
        """The content sums: by record of the bytes, and by document of the texts, as tokenize sums them."""
        lengths, ordinals = self.lengths[chosen], self.ordinals[chosen]
        starts = starts_of(lengths)
        texts = placed_sum(text_hashes(copied, starts, starts + lengths), shard, self.shard.in_files(ordinals))
        return RecordsContent(records_sum(copied, lengths, shard, ordinals), texts, len(copied), 0)

    def content_of_others(self, shard: int) -> ContentSum:
        """The content sum of the texts that are no records, because they have no tokens. Without showings."""
        lengths, content = _sums(self.sizes, self.bounds), NOTHING
        ordinals = np.setdiff1d(np.arange(len(lengths), dtype=np.uint64), self.ordinals)
        others = replace(self, ordinals=ordinals, lengths=lengths[ordinals])
        for first, last in runs(np.cumsum(others.lengths, dtype=np.uint64), BATCH_BYTES):
            chosen = np.arange(first, last)
            content += others.content(chosen, others.copy(chosen), shard).documents
        return content


def text_records(
    shard: TokenShard, text: NDArray[np.uint8], ends: NDArray[np.uint64], cuts: NDArray[np.uint64], *, keep_empty: bool
) -> Texts:
    """The texts of the records of `document_records`. Document i is `text[ends[i] + 1 : ends[i + 1]]`, less `cuts`
    (uint64 (n, 2), ascending, disjoint, each within a document).
    """
    starts = np.sort(np.concatenate((ends[:-1] + np.uint64(1), cuts[:, 1])))
    sizes = np.sort(np.concatenate((ends[1:], cuts[:, 0]))) - starts
    bounds = np.append(0, np.searchsorted(cuts[:, 0], ends[1:])) + np.arange(len(ends))
    documents = document_records(shard, keep_empty=keep_empty)
    lengths = _sums(sizes, bounds)[shard.in_files(documents.ordinals)]
    return Texts(shard, documents.ordinals, lengths, text=text, starts=starts, sizes=sizes, bounds=bounds)


def _sums(sizes: NDArray[np.uint64], bounds: NDArray[np.int64]) -> NDArray[np.uint64]:
    """uint64 (len(bounds) - 1,): the sums of sizes between bounds."""
    return np.diff(np.append(np.uint64(0), np.cumsum(sizes, dtype=np.uint64))[bounds])
