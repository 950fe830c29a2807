"""Records: what the shuffle permutes. Documents whole, or contexts (packing.py); kernels copy their tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.slices import copy_slices
from pipeline.tokens.packing import ContextPlan, Packing, plan_contexts
from pipeline.tokens.packing_kernels import fill_contexts
from pipeline.tokens.token_shard import PADDING, TokenShard

MIX_LOW = np.uint64(0x9E3779B97F4A7C15)  # odd constants: multiplication by them is a bijection of 64 bits
MIX_HIGH = np.uint64(0xC2B2AE3D27D4EB4F)


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
        """Tokens that stand in two contexts, because contexts overlap."""
        return self.plan.repeated_tokens if self.plan else 0

    def copy(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The tokens of some records, back to back, in the order of `chosen` (positions in `ordinals`)."""
        ends = np.asarray(self.shard.ends)
        lengths = self.lengths[chosen]
        copied = np.empty(int(lengths.sum()), self.shard.tokens.dtype)
        tokens = np.asarray(self.shard.tokens)
        if self.plan is None:
            starts = ends[self.ordinals[chosen]] - lengths
            copy_slices(tokens, starts, lengths, copied)
        else:
            plan = self.plan
            before, behind = (self._ids(roles) for roles in (self.packing.before, self.packing.behind))
            arrays = (plan.bounds, plan.documents, plan.firsts, plan.sizes)
            contexts = self.ordinals[chosen].astype(np.int64)
            pad = self.shard.special_id(PADDING)
            fill_contexts(tokens, ends, arrays, before, behind, pad, contexts, plan.context_tokens, copied)
        return copied

    def _ids(self, roles: tuple[str, ...]) -> NDArray[np.int64]:
        return np.array([self.shard.special_id(role) for role in roles], np.int64)


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


@njit(nogil=True, cache=True, inline="always")
def _pair(first: Any, second: Any) -> Any:
    return np.uint64(first) | np.uint64(second) << np.uint64(32)


@njit(nogil=True, cache=True, inline="always")
def _mixed(word: Any) -> Any:
    """A bijection of 64 bits."""
    word *= MIX_LOW
    return word ^ word >> np.uint64(29)


@njit(nogil=True, cache=True)
def record_digest(tokens: Any, lengths: Any) -> tuple[Any, Any]:
    """Order-free digest of records laid back to back: two sums mod 2^64 of two hashes of each record's tokens.

    Equal before and after a permutation of the records. A record lost or doubled shows with probability 1 - 2^-128, one
    whose tokens changed with 1 - 2^-64 at least. A record is hashed in four lanes, two tokens a step in each: a lane's
    step is a bijection of its state, so that one changed token always changes it, and no lane waits for another.
    """
    low_sum, high_sum = np.uint64(0), np.uint64(0)
    begin = np.int64(0)
    for i in range(len(lengths)):
        end = begin + np.int64(lengths[i])
        whole = end - (end - begin) % 8
        a, b, c, d = MIX_LOW, MIX_HIGH, ~MIX_LOW, ~MIX_HIGH
        for j in range(begin, whole, 8):
            a = _mixed(a ^ _pair(tokens[j], tokens[j + 1]))
            b = _mixed(b ^ _pair(tokens[j + 2], tokens[j + 3]))
            c = _mixed(c ^ _pair(tokens[j + 4], tokens[j + 5]))
            d = _mixed(d ^ _pair(tokens[j + 6], tokens[j + 7]))
        for j in range(whole, end):
            a = _mixed(a ^ np.uint64(tokens[j]))
        low = high = np.uint64(lengths[i])
        for lane in (a, b, c, d):
            low = _mixed(low ^ lane)
            high = _mixed(high + lane * MIX_HIGH)
        begin = end
        low_sum += low
        high_sum += high
    return low_sum, high_sum
