"""Records, which the shuffle permutes: whole documents, or contexts of a fixed number of tokens cut from documents.

Contexts are planned first: which piece of which document goes where. Kernels (packing_kernels.py) copy the tokens.

A document's **slots** are its special tokens and its tokens: [EOT] [BOS] tokens [EOT], each special token if
configured. A stream is all slots of a shard's documents in order, or of a source file's. Packing gives every context as
a list of pieces (document, first slot, slots); nothing is copied until a context is filled.

    fit: cut        context c of a stream of T slots is its slice [c S, c S + L), stride S = L - overlap. There are
                    ceil(T / L) of them, with overlap 1 max(1, ceil((T - 1) / (L - 1))); only a stream's last one is
                    padded, and never one of padding alone. tail: always_pad gives floor(T / L) + 1, as tokshuf does:
                    then the last has 1 to L pads.
    fit: best_fit   slots beyond a multiple of L are an item; items go, longest first, into the context with the least
                    room that holds them (best-fit decreasing; Ding et al., "Fewer truncations improve language
                    modeling", 2024). A document of at most L slots is never split; a longer one fills whole
                    contexts, and its rest is an item.

Accounts: tokens + special + pads + repeated (by the overlap) = contexts x L.

Price: 24 bytes per piece, at most one piece per document and context; best fit is O(log L) per item.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.lazy import lazily
from corpusmill.tokens.token_shard import BOS, EOT, PADDING, TokenShard

with lazily:  # a trace plans contexts, and does without numba
    from corpusmill.kernels import content_kernels, slices
    from corpusmill.tokens import packing_kernels


Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Packing:
    """The options; see config.PackingConfig, whose defaults these are."""

    stream: str = "shard"
    eot: str = "after"
    bos: bool = False
    fit: str = "cut"
    overlap_tokens: int = 0
    tail: str = "pad"
    empty_documents: str = "skip"

    @property
    def before(self) -> tuple[str, ...]:
        """Roles of the special tokens before a document's tokens."""
        return (EOT,) * (self.eot != "after") + (BOS,) * self.bos

    @property
    def behind(self) -> tuple[str, ...]:
        """Roles of the special tokens after a document's tokens."""
        return (EOT,) * (self.eot != "before")


@dataclass(frozen=True)
class ContextPlan:
    """The contexts of one shard.

    bounds     int64 (contexts + 1,): context c consists of the pieces [bounds[c], bounds[c + 1]), then padding
    documents  int64 (pieces,): ordinal in the shard
    firsts     int64 (pieces,): first slot of the document
    sizes      int64 (pieces,): number of slots
    padded     whether its contexts have padding, or end where their pieces do
    """

    context_tokens: int
    bounds: Indices
    documents: Indices
    firsts: Indices
    sizes: Indices
    special_tokens: int
    repeated_tokens: int
    pad_tokens: int
    padded: bool = True

    @property
    def contexts(self) -> int:
        """Number of contexts."""
        return len(self.bounds) - 1

    @cached_property
    def _slots_before(self) -> Indices:
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.sizes)])

    def pieces_of(self, contexts: Indices) -> tuple[Indices, NDArray[np.uint64]]:
        """(pieces, where each begins) of some contexts that lie back to back, in slots from the first one's start."""
        counts = self.bounds[contexts + 1] - self.bounds[contexts]
        pieces = np.repeat(self.bounds[contexts] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        before = np.repeat(self._slots_before[self.bounds[contexts]], counts)
        slots = self.slots_of(contexts)
        rows = np.repeat(np.cumsum(slots) - slots, counts)
        return pieces, (rows + self._slots_before[pieces] - before).astype(np.uint64)

    def slots_of(self, contexts: Indices) -> Indices:
        """int64: slots of some contexts, with the padding if they are padded."""
        if self.padded:
            return np.full(len(contexts), self.context_tokens, np.int64)
        return self._slots_before[self.bounds[contexts + 1]] - self._slots_before[self.bounds[contexts]]

    def tokens_of(
        self, pieces: Indices, ends: NDArray[np.uint64], before: int, slots: Indices | None = None
    ) -> PieceTokens:
        """The documents' own tokens in some pieces, or in the first `slots` of each; `before`: special tokens ahead."""
        documents = self.documents[pieces]
        lengths = (ends[documents] - np.where(documents, ends[documents - 1], 0)).astype(np.int64)
        first = self.firsts[pieces]
        stop = first + (self.sizes[pieces] if slots is None else slots)
        low, high = np.maximum(first - before, 0), np.minimum(stop - before, lengths)
        return PieceTokens(
            lengths,
            np.clip(before - first, 0, self.sizes[pieces]).astype(np.uint64),
            np.minimum(low, lengths).astype(np.uint64),
            np.maximum(high - low, 0).astype(np.uint64),
        )

    def places_of(self, slots: Indices | int, pieces: Indices, begins: NDArray[np.uint64]) -> Indices:
        """int64: positions of a slot of each piece's document, in pieces that hold it; `begins`: see `pieces_of`."""
        first = self.firsts[pieces]
        held = (first <= slots) & (slots < first + self.sizes[pieces])
        places: Indices = (begins.astype(np.int64) + slots - first)[held]
        return places

    def padding_of(self, contexts: Indices) -> Indices:
        """int64: positions of the padding in contexts that are back to back."""
        filled = self._slots_before[self.bounds[contexts + 1]] - self._slots_before[self.bounds[contexts]]
        pads = self.slots_of(contexts) - filled
        rows = np.repeat(np.arange(len(contexts)) * self.context_tokens + filled, pads)
        padding: Indices = rows + np.arange(len(rows)) - np.repeat(np.cumsum(pads) - pads, pads)
        return padding

    def repeated_slots(self) -> Indices:
        """int64 (pieces,): how many slots at each piece's beginning an earlier piece of its document holds already."""
        order = np.argsort(self.documents, kind="stable")  # pieces of a document are in the order of their contexts
        documents, firsts, sizes = self.documents[order], self.firsts[order], self.sizes[order]
        covered = np.zeros(len(order), np.int64)
        same = documents[1:] == documents[:-1]
        covered[1:][same] = (firsts + sizes)[:-1][same]
        repeated = np.empty(len(order), np.int64)
        repeated[order] = np.clip(covered - firsts, 0, sizes)
        return repeated


@dataclass(frozen=True)
class PieceTokens:
    """The positions of documents' tokens in pieces, each array (pieces,).

    documents  int64: tokens of the piece's whole document
    skipped    uint64: slots of the piece ahead of its first token; all of them if it holds none
    firsts     uint64: number of that token in the document
    sizes      uint64: tokens in the piece
    """

    documents: Indices
    skipped: NDArray[np.uint64]
    firsts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]


def plan_contexts(
    ends: NDArray[np.uint64], context_tokens: int, packing: Packing, source_ends: NDArray[np.uint64] | None = None
) -> ContextPlan:
    """The contexts of a shard with documents that end at `ends` (uint64, in tokens, exclusive).

    `source_ends` (uint64): documents up to the end of each source file; only stream: file needs them.
    """
    lengths = np.diff(np.asarray(ends), prepend=np.uint64(0)).astype(np.int64)
    around = len(packing.before) + len(packing.behind)
    if packing.stream == "file" and source_ends is None:
        raise ValueError("stream: file needs the ends of the source files")
    edges = [0, *np.asarray(source_ends).tolist()] if packing.stream == "file" else [0, len(lengths)]
    parts = []
    for first, last in pairwise(edges):
        kept = np.arange(first, last, dtype=np.int64)
        if packing.empty_documents == "skip":
            kept = kept[lengths[first:last] > 0]
        sizes = lengths[kept] + around
        part = _best_fit(sizes, context_tokens) if packing.fit == "best_fit" else _cut(sizes, context_tokens, packing)
        parts.append((part[0], kept[part[1]], *part[2:], len(kept)))
    pieces = np.cumsum([0, *(len(part[1]) for part in parts)])
    bounds = [np.zeros(1, np.int64), *(part[0][1:] + offset for part, offset in zip(parts, pieces[:-1], strict=True))]
    documents, firsts, sizes = (
        np.concatenate([np.empty(0, np.int64), *(part[k] for part in parts)]) for k in (1, 2, 3)
    )
    kept_documents = sum(part[4] for part in parts)
    all_bounds = np.concatenate(bounds)
    distinct = int(ends[-1]) + kept_documents * around if len(ends) else 0
    placed = int(sizes.sum())
    return ContextPlan(
        context_tokens=context_tokens,
        bounds=all_bounds,
        documents=documents,
        firsts=firsts,
        sizes=sizes,
        special_tokens=kept_documents * around,
        repeated_tokens=placed - distinct,
        pad_tokens=(len(all_bounds) - 1) * context_tokens - placed,
    )


def _cut(sizes: Indices, context_tokens: int, packing: Packing) -> tuple[Indices, Indices, Indices, Indices]:
    """(bounds, position in `sizes`, first slot, slots) of a stream's contexts."""
    slots = int(sizes.sum())
    stride = context_tokens - packing.overlap_tokens
    if packing.tail == "always_pad":
        contexts = slots // context_tokens + 1
    elif packing.overlap_tokens:
        contexts = max(1, -(-(slots - 1) // stride)) if slots else 0
    else:
        contexts = -(-slots // context_tokens)
    ends = np.cumsum(sizes)
    starts = np.arange(contexts, dtype=np.int64) * stride
    stops = np.minimum(starts + context_tokens, slots)
    # A context holds the documents from the first that ends after its start to the first that reaches its stop.
    first = np.searchsorted(ends, starts, side="right")
    counts = np.where(starts < stops, np.searchsorted(ends, stops, side="left") + 1 - first, 0)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    context = np.repeat(np.arange(contexts), counts)
    documents = np.arange(len(context)) - (bounds[:-1] - first)[context]
    begins = np.concatenate([np.zeros(1, np.int64), ends])[documents]
    low, high = np.maximum(starts[context], begins), np.minimum(stops[context], ends[documents])
    return bounds, documents, low - begins, high - low


def _best_fit(sizes: Indices, context_tokens: int) -> tuple[Indices, Indices, Indices, Indices]:
    """(bounds, position in `sizes`, first slot, slots): whole contexts of long documents, then the packed items."""
    whole, rest = np.divmod(sizes, context_tokens)
    long = np.repeat(np.arange(len(sizes)), whole)
    # 0, 1, 2 ... within each document: running count minus the count at its document's first.
    within = np.arange(len(long)) - np.repeat(np.cumsum(whole) - whole, whole)
    items = np.flatnonzero(rest)
    order = items[np.argsort(-rest[items], kind="stable")]
    placed, opened = packing_kernels.best_fit(rest[order], context_tokens)
    by_context = np.argsort(placed, kind="stable")
    packed = order[by_context]
    documents = np.concatenate([long, packed])
    firsts = np.concatenate([within * context_tokens, whole[packed] * context_tokens])
    lengths = np.concatenate([np.full(len(long), context_tokens), rest[packed]])
    counts = np.concatenate(
        [np.zeros(1, np.int64), np.ones(len(long), np.int64), np.bincount(placed, minlength=opened)]
    )
    return np.cumsum(counts), documents, firsts, lengths


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
    def source(self) -> NDArray[Any]:
        """What `copy` copies from, in the dtype of its copies."""
        return self.shard.tokens

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
        copied = np.empty(int(lengths.sum()), self.source.dtype)
        tokens, starts = np.asarray(self.shard.tokens), self.shard.starts
        if self.plan is None:
            starts = starts[self.ordinals[chosen]]
            slices.copy_slices(tokens, starts, lengths, copied)
        else:
            plan = self.plan
            before, behind = (self._ids(roles) for roles in (self.packing.before, self.packing.behind))
            arrays = (plan.bounds, plan.documents, plan.firsts, plan.sizes)
            contexts = self.ordinals[chosen].astype(np.int64)
            pad = self.shard.special_id(PADDING)
            ends = np.asarray(self.shard.ends)
            least = plan.context_tokens if plan.padded else 0
            packing_kernels.fill_contexts(tokens, starts, ends, arrays, before, behind, pad, contexts, least, copied)
        return copied

    def content(self, chosen: NDArray[np.int64], copied: NDArray[Any], shard: int) -> RecordsContent:
        """The content sums of the `copied` tokens of some records: by record, and by the documents whose pieces they
        are.
        """
        lengths, ordinals = self.lengths[chosen], self.ordinals[chosen]
        by_record = content_kernels.records_sum(copied, lengths, shard, ordinals)
        if self.plan is None:
            shown = self.shard.shown is not None
            in_files = self.shard.in_files(ordinals)
            by_document = content_kernels.records_sum(copied, lengths, shard, in_files) if shown else by_record
            return RecordsContent(by_record, by_document, len(copied), 0)
        plan, before, behind = self.plan, self.packing.before, self.packing.behind
        pieces, begins = plan.pieces_of(ordinals.astype(np.int64))
        tokens = plan.tokens_of(pieces, np.asarray(self.shard.ends), len(before))
        sums = content_kernels.token_sums(copied, begins + tokens.skipped, tokens.sizes, tokens.firsts)
        in_files = self.shard.in_files(plan.documents[pieces].astype(np.uint64))
        by_document = content_kernels.placed_sum(sums, shard, in_files)
        special = 0
        places_of: list[tuple[str, Indices | int]] = [(role, slot) for slot, role in enumerate(before)]
        places_of += [(role, tokens.documents + len(before) + slot) for slot, role in enumerate(behind)]
        for role, slots in places_of:
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
        sums = content_kernels.token_sums(np.asarray(self.shard.tokens), starts, tokens.sizes, tokens.firsts)
        return content_kernels.placed_sum(sums, shard, self.shard.in_files(plan.documents.astype(np.uint64)))

    def _ids(self, roles: tuple[str, ...]) -> NDArray[np.int64]:
        return np.array([self.shard.special_id(role) for role in roles], np.int64)


def document_records(shard: TokenShard, *, keep_empty: bool = False) -> Records:
    """Every document that has tokens, or with `keep_empty` every document, whole, without special tokens."""
    lengths = _lengths(shard.ends)
    ordinals = (np.arange(len(lengths)) if keep_empty else np.flatnonzero(lengths)).astype(np.uint64)
    return Records(shard, ordinals, lengths[ordinals])


def context_records(
    shard: TokenShard, context_tokens: int, packing: Packing | None = None, *, padded: bool = True
) -> Records:
    """The shard's documents packed into contexts, which without padding have at most `context_tokens`."""
    packing = packing or Packing()
    plan = plan_contexts(np.asarray(shard.ends), context_tokens, packing, shard.source_ends)
    if not padded:
        plan = replace(plan, padded=False, pad_tokens=0)
    contexts = np.arange(plan.contexts)
    return Records(shard, contexts.astype(np.uint64), plan.slots_of(contexts).astype(np.uint64), packing, plan)


def _lengths(ends: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.diff(np.asarray(ends), prepend=np.uint64(0)).astype(np.uint64, copy=False)
