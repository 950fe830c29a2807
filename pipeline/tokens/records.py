"""Records: what the shuffle permutes. Packing is arithmetic on a token shard's ends; kernels copy the tokens.

Stream of a shard: every document with tokens, in order, each followed by EOT. Context c of L tokens is the stream's
slice [c L, (c + 1) L); only a shard's last context may be short, and is filled with padding. So with T tokens in D
documents there are ceil((T + D) / L) contexts, and never one of padding alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.tokens.token_shard import TokenShard

MIX_LOW = np.uint64(0x9E3779B97F4A7C15)  # odd constants: multiplication by them is a bijection of 64 bits
MIX_HIGH = np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class Records:
    """The records of one token shard, not yet copied: `ordinals` uint64[n] and `lengths` uint64[n] in tokens.

    For documents an ordinal is the document's in the shard; for contexts it is the context's.
    """

    shard: TokenShard
    ordinals: NDArray[np.uint64]
    lengths: NDArray[np.uint64]
    context_tokens: int | None  # None: records are whole documents
    special_tokens: int
    pad_tokens: int

    def copy(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """The tokens of some records, back to back, in the order of `chosen` (positions in `ordinals`)."""
        ends = np.asarray(self.shard.ends)
        lengths = self.lengths[chosen]
        copied = np.empty(int(lengths.sum()), self.shard.tokens.dtype)
        tokens = np.asarray(self.shard.tokens)
        if self.context_tokens is None:
            starts = ends[self.ordinals[chosen]] - lengths
            copy_slices(tokens, starts, lengths, copied)
        else:
            starts, stream_ends = _stream(ends)
            eot = self.shard.eot_id
            fill_contexts(tokens, starts, stream_ends, self.ordinals[chosen], self.context_tokens, eot, eot, copied)
        return copied


def document_records(shard: TokenShard) -> Records:
    """Every document that has tokens, whole, without special tokens."""
    lengths = _lengths(shard.ends)
    ordinals = np.flatnonzero(lengths).astype(np.uint64)
    return Records(shard, ordinals, lengths[ordinals], None, special_tokens=0, pad_tokens=0)


def context_records(shard: TokenShard, context_tokens: int) -> Records:
    """The stream of the shard cut into contexts; padding uses the EOT id and is counted."""
    _, stream_ends = _stream(np.asarray(shard.ends))
    stream_tokens = int(stream_ends[-1]) if len(stream_ends) else 0
    contexts = -(-stream_tokens // context_tokens)
    ordinals = np.arange(contexts, dtype=np.uint64)
    lengths = np.full(contexts, context_tokens, np.uint64)
    pads = contexts * context_tokens - stream_tokens
    return Records(shard, ordinals, lengths, context_tokens, special_tokens=len(stream_ends), pad_tokens=pads)


def _stream(ends: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(first token in the shard, position after its EOT in the stream) of each document that has tokens."""
    lengths = _lengths(ends)
    kept = lengths > 0
    return (ends - lengths)[kept], np.cumsum(lengths[kept] + np.uint64(1), dtype=np.uint64)


def _lengths(ends: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.diff(np.asarray(ends), prepend=np.uint64(0)).astype(np.uint64, copy=False)


@njit(nogil=True, cache=True)
def copy_slices(tokens: Any, starts: Any, lengths: Any, out: Any) -> None:
    """out = tokens[starts[0] : +lengths[0]], tokens[starts[1] : +lengths[1]], ... back to back."""
    position = np.int64(0)
    for i in range(len(starts)):
        first, count = np.int64(starts[i]), np.int64(lengths[i])
        out[position : position + count] = tokens[first : first + count]
        position += count


@njit(nogil=True, cache=True)
def fill_contexts(
    tokens: Any, starts: Any, stream_ends: Any, contexts: Any, context_tokens: Any, eot: Any, pad: Any, out: Any
) -> None:
    """Write the chosen contexts of a shard's stream back to back into `out`.

    starts[d]: first token of document d in `tokens`; stream_ends[d]: stream position after its EOT.
    """
    documents = len(stream_ends)
    written = 0
    for i in range(len(contexts)):
        position = np.int64(contexts[i]) * context_tokens
        stop = position + context_tokens
        document = np.searchsorted(stream_ends, np.uint64(position), side="right")
        while position < stop:
            if document == documents:
                out[written : written + stop - position] = pad
                written += stop - position
                break
            document_end = np.int64(stream_ends[document])
            document_start = np.int64(stream_ends[document - 1]) if document > 0 else np.int64(0)
            bare = min(stop, document_end - 1) - position
            if bare > 0:
                first = np.int64(starts[document]) + position - document_start
                out[written : written + bare] = tokens[first : first + bare]
                position += bare
                written += bare
            if position < stop:
                out[written] = eot
                position += 1
                written += 1
                document += 1


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
