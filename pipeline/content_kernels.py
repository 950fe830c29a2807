"""How content sums (content.py) are made: two lanes of 64 bits, all arithmetic modulo 2^64::

    token    j of a document counts  (id + 1) * TOKEN[lane, j % 1024] * BLOCK(lane, j // 1024)
    piece    of a document, from token j on: the sum over its tokens; the pieces of a document add up to the whole
    text     of a document: a hash of its bytes in both lanes (four lanes of xxHash's round, mixed twice)
    sum      over documents: their token sums or text hashes, times PLACE(lane, unit, ordinal)

All weights are odd numbers from splitmix64 (Steele, Lea, Flood 2014), so a single changed token always changes both
lanes. What is lost, doubled or changed by accident passes unseen with a chance of 2^-64 at most and 2^-128 as a rule;
the weights are public, so this is no signature against people.

Price: measured in benchmarks/content_accounts.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable
from numpy.typing import NDArray

from corpusmill.content import ContentSum
from corpusmill.kernels import inlined, kernel
from corpusmill.words import load_byte, load_word

Words = NDArray[np.uint64]

LANES = 2
BLOCK_TOKENS = 1024  # two tables of 8 KiB: they stay in the first cache
STRIPE_BYTES = 32
WORD = ir.IntType(64)
_GOLDEN = 0x9E3779B97F4A7C15


@register_jitable
def mixed(words: Any) -> Any:
    """splitmix64's output function of each word (uint64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@register_jitable
def _weights(lane: int, numbers: Any) -> Any:
    """Odd weights of some numbers (uint64) in one lane."""
    return mixed((numbers + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(lane << 32)) | np.uint64(1)


TOKEN = np.stack([_weights(lane, np.arange(BLOCK_TOKENS, dtype=np.uint64)) for lane in range(LANES)])
"""uint64 (2, 1024): the weight of a token by its place in its block."""
BEFORE = np.concatenate([np.zeros((LANES, 1), np.uint64), np.cumsum(TOKEN, axis=1, dtype=np.uint64)], axis=1)
"""uint64 (2, 1025): the sum of the weights before a place, modulo 2^64."""


def place_weights(unit: Words | int, ordinals: Words) -> Words:
    """uint64 (2, n): the weight of each part by its unit (one for all, or one each) and its ordinal in it."""
    units = np.broadcast_to(np.asarray(unit, np.uint64), ordinals.shape)
    weights = np.empty((LANES, len(ordinals)), np.uint64)
    _place_weights(np.ascontiguousarray(units), np.ascontiguousarray(ordinals), weights)
    return weights


@kernel
def _place_weights(units: Any, ordinals: Any, weights: Any) -> None:
    for i in range(len(ordinals)):
        key = mixed(units[i] * np.uint64(_GOLDEN) + np.uint64(0x5851F42D4C957F2D)) + ordinals[i]
        weights[0, i] = _weights(2, key)
        weights[1, i] = _weights(3, key)


def weighted_sum(parts: Words, weights: Words) -> ContentSum:
    """The content sum of parts (2, n) (see `token_sums`, `text_hashes`) under their weights (2, n)."""
    low, high = (parts * weights).sum(axis=1, dtype=np.uint64).tolist()
    return ContentSum(low, high)


def records_sum(tokens: NDArray[Any], lengths: Words, units: Words | int, ordinals: Words) -> ContentSum:
    """The content sum of records laid back to back: `lengths` uint64 (n,), each weighted by its unit and ordinal."""
    ends = np.cumsum(lengths, dtype=np.uint64)
    sums = token_sums(tokens, ends - lengths, lengths, np.zeros(len(lengths), np.uint64))
    return weighted_sum(sums, place_weights(units, ordinals))


def texts_sum(text: NDArray[np.uint8], bounds: Words, gap: int, unit: int, first_ordinal: int) -> ContentSum:
    """The content sum of consecutive documents: document i is `text[bounds[i] + gap : bounds[i + 1]]`.

    `gap`: bytes between a bound and its document, 1 where each document stands behind a separator.
    """
    ordinals = np.arange(first_ordinal, first_ordinal + len(bounds) - 1, dtype=np.uint64)
    hashes = text_hashes(text, bounds[:-1] + np.uint64(gap), bounds[1:])
    return weighted_sum(hashes, place_weights(unit, ordinals))


def token_sums(tokens: NDArray[Any], starts: Words, sizes: Words, firsts: Words) -> Words:
    """uint64 (2, n): the token sum of every piece `tokens[start : start + size]`, whose first token is number `first`.

    Raises IndexError for a piece that leaves `tokens`.
    """
    stops = starts + sizes
    if len(starts) and (int(stops.max()) > len(tokens) or bool((stops < starts).any())):
        raise IndexError(f"a piece ends at token {int(stops.max()):,} of {len(tokens):,}")
    sums = np.empty((LANES, len(starts)), np.uint64)
    if tokens.dtype.kind == "i":  # Megatron's int32 holds no negative id
        tokens = tokens.view(np.dtype(f"u{tokens.dtype.itemsize}"))
    _token_sums(np.ascontiguousarray(tokens), starts, sizes, firsts, *TOKEN, *BEFORE, sums)
    return sums


@kernel
def _token_sums(
    tokens: Any, starts: Any, sizes: Any, firsts: Any, low: Any, high: Any, low_before: Any, high_before: Any, sums: Any
) -> None:
    # Unsigned positions: a signed one might count from the end, and the loop over a block would not be vectorised.
    # (id + 1) * weight = id * weight + weight, and the weights of a run are added up already: a fifth less time.
    block_tokens = np.uint64(BLOCK_TOKENS)
    for piece in range(len(starts)):
        position, left, number = np.uint64(starts[piece]), np.uint64(sizes[piece]), np.uint64(firsts[piece])
        low_sum, high_sum = np.uint64(0), np.uint64(0)
        while left:
            block, place = number // block_tokens, number % block_tokens
            run = min(left, block_tokens - place)
            low_run = low_before[place + run] - low_before[place]
            high_run = high_before[place + run] - high_before[place]
            for j in range(run):
                token = np.uint64(tokens[position + j])
                low_run += token * low[place + j]
                high_run += token * high[place + j]
            low_sum += low_run * _weights(4, block)
            high_sum += high_run * _weights(5, block)
            position += run
            number += run
            left -= run
        sums[0, piece] = low_sum
        sums[1, piece] = high_sum


def text_hashes(text: NDArray[np.uint8], starts: Words, ends: Words) -> Words:
    """uint64 (2, n): two hashes of the bytes of every text `text[start:end]`; of an empty one too.

    Raises IndexError for a text that leaves the array.
    """
    if len(starts) and (int(ends.max()) > len(text) or bool((ends < starts).any())):
        raise IndexError(f"a text ends at byte {int(ends.max()):,} of {len(text):,}")
    hashes = np.empty((LANES, len(starts)), np.uint64)
    _text_hashes(np.ascontiguousarray(text).ctypes.data, starts.astype(np.int64), ends.astype(np.int64), hashes)
    return hashes


_ODD_1 = np.uint64(0x9E3779B185EBCA87)
_ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_ODD_3 = np.uint64(0x165667B19E3779F9)


@inlined
def _stir(lane: Any, word: Any) -> Any:
    lane += word * _ODD_2
    return ((lane << np.uint64(31)) | (lane >> np.uint64(33))) * _ODD_1


def _make_stir_stripes(_context: Any, _lanes: Any, _address: Any, _stripes: Any) -> Any:
    vector = ir.VectorType(WORD, 4)

    def all_four(number: int) -> Any:
        return ir.Constant(vector, [number] * 4)

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        lanes, address, stripes = arguments
        start = ir.Constant(vector, ir.Undefined)
        for lane in range(4):
            start = builder.insert_element(start, builder.extract_value(lanes, lane), WORD(lane))
        pointer = builder.inttoptr(address, vector.as_pointer())
        before = builder.block
        loop, behind = builder.append_basic_block(), builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        number, state = builder.phi(WORD), builder.phi(vector)
        words = builder.load(builder.gep(pointer, [number]), align=1)
        added = builder.add(state, builder.mul(words, all_four(int(_ODD_2))))
        turned = builder.or_(builder.shl(added, all_four(31)), builder.lshr(added, all_four(33)))
        stirred, next_number = builder.mul(turned, all_four(int(_ODD_1))), builder.add(number, WORD(1))
        for value, first, later in ((number, WORD(0), next_number), (state, start, stirred)):
            value.add_incoming(first, before)
            value.add_incoming(later, loop)
        builder.cbranch(builder.icmp_unsigned("<", next_number, stripes), loop, behind)
        builder.position_at_end(behind)
        end = ir.Constant(ir.ArrayType(WORD, 4), ir.Undefined)
        for lane in range(4):
            end = builder.insert_value(end, builder.extract_element(stirred, WORD(lane)), lane)
        return end

    four = types.UniTuple(types.uint64, 4)  # type: ignore[no-untyped-call]
    return four(four, types.int64, types.int64), generate


_stir_stripes: Any = intrinsic(_make_stir_stripes)
"""`_stir` of four lanes with four words at a time, for at least one stripe from an address on.

As vectors, which LLVM does not make of the same loop: 0.05 ns a byte instead of 0.1.
"""


@inlined
def _finished(word: Any) -> Any:
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xFF51AFD7ED558CCD)
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))


@kernel
def _text_hashes(address: Any, starts: Any, ends: Any, hashes: Any) -> None:
    """Reads each text and nothing beside it."""
    for i in range(len(starts)):
        at, stop = address + starts[i], address + ends[i]
        first, second, third = _ODD_1, _ODD_2, _ODD_3
        fourth = np.uint64(stop - at) * _ODD_3
        if at + STRIPE_BYTES <= stop:
            stripes = (stop - at) // STRIPE_BYTES
            first, second, third, fourth = _stir_stripes((first, second, third, fourth), at, stripes)
            at += STRIPE_BYTES * stripes
        while at + 8 <= stop:
            first = _stir(first, load_word(at))
            at += 8
        last = np.uint64(0)
        while at < stop:
            last = last << np.uint64(8) | np.uint64(load_byte(at))
            at += 1
        second = _stir(second, last)
        low, high = first, fourth
        for lane in (second, third, fourth):
            low = _stir(low, lane)
        for lane in (third, second, first):
            high = _stir(high, lane)
        hashes[0, i] = _finished(low)
        hashes[1, i] = _finished(high)
