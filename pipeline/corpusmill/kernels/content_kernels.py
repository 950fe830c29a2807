"""Hashes of bytes, and content sums (content.py): two lanes of 64 bits, all arithmetic modulo 2^64::

    token    j of a document counts  (id + 1) * TOKEN[lane, j % 1024] * BLOCK(lane, j // 1024)
    piece    of a document, from token j on: the sum over its tokens; the pieces of a document add up to the whole
    text     of a document: a hash of its bytes in both lanes (four lanes of xxHash's round, mixed twice)
    sum      over documents: their token sums or text hashes, times PLACE(lane, unit, ordinal)

All weights are odd numbers from splitmix64 (Steele, Lea, Flood 2014), so a single changed token always changes both
lanes. An accidental loss, duplicate or change goes unnoticed with probability at most 2^-64, usually 2^-128; the
weights are public, so a content sum does not protect against tampering.

Price: measured in benchmarks/content_accounts.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable
from numpy.typing import NDArray

from corpusmill.kernels.compiled import inlined, kernel, load_byte, load_word
from corpusmill.kernels.content import ContentSum

Words = NDArray[np.uint64]

LANES = 2
BLOCK_TOKENS = 1024  # two tables of 8 KiB, which stay in the L1 cache
STRIPE_BYTES = 32
TEXTS = 3  # hashed at a time: with fewer, multiplications stall; with more, registers run out
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
    """The odd weight of each number (uint64) in one lane."""
    return mixed((numbers + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(lane << 32)) | np.uint64(1)


TOKEN = np.stack([_weights(lane, np.arange(BLOCK_TOKENS, dtype=np.uint64)) for lane in range(LANES)])
"""uint64 (2, 1024): the weight of a token by its place in its block."""
BEFORE = np.concatenate([np.zeros((LANES, 1), np.uint64), np.cumsum(TOKEN, axis=1, dtype=np.uint64)], axis=1)
"""uint64 (2, 1025): the sum of the weights before a place, modulo 2^64."""


def placed_sum(parts: Words, unit: Words | int, ordinals: Words) -> ContentSum:
    """The content sum of parts (2, n) (see `token_sums`, `text_hashes`), each weighted by its unit (one for all, or one
    each) and its ordinal in it, uint64 (n,).

    Raises ValueError for arrays of other lengths.
    """
    units = unit if isinstance(unit, np.ndarray) else np.array([unit], np.uint64)
    if parts.shape != (LANES, len(ordinals)) or len(units) not in {1, len(ordinals)}:
        raise ValueError(f"{parts.shape} parts, {len(units)} units and {len(ordinals)} ordinals do not fit together")
    return ContentSum(*_placed_sum(*map(np.ascontiguousarray, (parts, units, ordinals))))


@kernel
def _placed_sum(parts: Any, units: Any, ordinals: Any) -> Any:
    low, high = np.uint64(0), np.uint64(0)
    for i in range(len(ordinals)):
        unit = units[min(i, len(units) - 1)]
        key = mixed(unit * np.uint64(_GOLDEN) + np.uint64(0x5851F42D4C957F2D)) + ordinals[i]
        low += parts[0, i] * _weights(2, key)
        high += parts[1, i] * _weights(3, key)
    return low, high


def records_sum(tokens: NDArray[Any], lengths: Words, units: Words | int, ordinals: Words) -> ContentSum:
    """The content sum of records laid back to back: `lengths` uint64 (n,), each weighted by its unit and ordinal."""
    ends = np.cumsum(lengths, dtype=np.uint64)
    sums = token_sums(tokens, ends - lengths, lengths, np.zeros(len(lengths), np.uint64))
    return placed_sum(sums, units, ordinals)


def texts_sum(text: NDArray[np.uint8], bounds: Words, gap: int, unit: int, first_ordinal: int) -> ContentSum:
    """The content sum of consecutive documents: document i is `text[bounds[i] + gap : bounds[i + 1]]`.

    `gap`: bytes between a bound and its document, 1 where each document follows a separator.
    """
    ordinals = np.arange(first_ordinal, first_ordinal + len(bounds) - 1, dtype=np.uint64)
    hashes = text_hashes(text, bounds[:-1] + np.uint64(gap), bounds[1:])
    return placed_sum(hashes, unit, ordinals)


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
    # Unsigned positions: a signed one could count from the end, and then the inner loop is not vectorised.
    # (id + 1) * weight = id * weight + weight, and the weights of a run are summed in advance: a fifth less time.
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


ODD_1 = np.uint64(0x9E3779B185EBCA87)
ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
ODD_3 = np.uint64(0x165667B19E3779F9)


@inlined
def stir(lane: Any, word: Any) -> Any:
    """One round of xxHash's 64-bit lane (uint64): multiply, rotate by 31, multiply."""
    lane += word * ODD_2
    return ((lane << np.uint64(31)) | (lane >> np.uint64(33))) * ODD_1


def _make_stir_stripes(_context: Any, _lanes: Any, _places: Any, _stripes: Any) -> Any:
    vector = ir.VectorType(WORD, 4)

    def all_four(number: int) -> Any:
        return ir.Constant(vector, [number] * 4)

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        lanes, places, stripes = arguments

        def at(address: Any, text: int, size_bytes: int, kind: Any) -> Any:
            return builder.inttoptr(builder.add(address, WORD(size_bytes * text)), kind.as_pointer())

        texts = range(TEXTS)
        pointers = [builder.inttoptr(builder.load(at(places, text, 8, WORD)), vector.as_pointer()) for text in texts]
        starts = [builder.load(at(lanes, text, STRIPE_BYTES, vector), align=8) for text in texts]
        before = builder.block
        loop, after = builder.append_basic_block(), builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        number, *states = builder.phi(WORD), *[builder.phi(vector) for _ in texts]
        stirred = []
        for pointer, state in zip(pointers, states, strict=True):
            words = builder.load(builder.gep(pointer, [number]), align=1)
            added = builder.add(state, builder.mul(words, all_four(int(ODD_2))))
            turned = builder.or_(builder.shl(added, all_four(31)), builder.lshr(added, all_four(33)))
            stirred.append(builder.mul(turned, all_four(int(ODD_1))))
        next_number = builder.add(number, WORD(1))
        for value, first, later in ((number, WORD(0), next_number), *zip(states, starts, stirred, strict=True)):
            value.add_incoming(first, before)
            value.add_incoming(later, loop)
        builder.cbranch(builder.icmp_unsigned("<", next_number, stripes), loop, after)
        builder.position_at_end(after)
        for text in texts:
            builder.store(stirred[text], at(lanes, text, STRIPE_BYTES, vector), align=8)
        return WORD(0)

    return types.int64(types.int64, types.int64, types.int64), generate


_stir_stripes: Any = intrinsic(_make_stir_stripes)
"""`stir` of four lanes of TEXTS texts with four words each at a time, for at least one stripe of each. Addresses:
uint64[TEXTS, 4 lanes]; int64[TEXTS], where each text's stripes begin.

Vectors, because LLVM does not vectorise the same loop; several texts, because one text stalls on its own
multiplications: 0.07 ns a byte instead of 0.13.
"""


@inlined
def _finished(word: Any) -> Any:
    """murmur3's final mix."""
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xFF51AFD7ED558CCD)
    word ^= word >> np.uint64(33)
    word *= np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))


@kernel
def _text_hashes(address: Any, starts: Any, ends: Any, hashes: Any) -> None:
    """Hashes TEXTS texts at a time and reads no byte outside a text. When the stripes of a text end, the next text
    takes its lanes; when there is none, the lanes repeat a busy text and the result is dropped.
    """
    lanes, places, left = np.empty((TEXTS, 4), np.uint64), np.empty(TEXTS, np.int64), np.zeros(TEXTS, np.int64)
    texts = np.full(TEXTS, -1, np.int64)
    waiting, busy = 0, 0
    while busy >= 0:
        busy = -1
        for k in range(TEXTS):
            while left[k] == 0:
                if texts[k] >= 0:
                    _finish_text(lanes[k], places[k], address + ends[texts[k]], hashes[:, texts[k]])
                    texts[k] = -1
                if waiting == len(starts):
                    break
                texts[k] = waiting
                size = ends[waiting] - starts[waiting]
                lanes[k, 0], lanes[k, 1], lanes[k, 2] = ODD_1, ODD_2, ODD_3
                lanes[k, 3] = np.uint64(size) * ODD_3
                places[k], left[k] = address + starts[waiting], size // STRIPE_BYTES
                waiting += 1
            if left[k] and (busy < 0 or left[k] < left[busy]):
                busy = k
        if busy >= 0:
            stripes = left[busy]
            for k in range(TEXTS):
                if not left[k]:
                    places[k] = places[busy]
            _stir_stripes(lanes.ctypes.data, places.ctypes.data, stripes)
            for k in range(TEXTS):
                places[k] += STRIPE_BYTES * stripes
                left[k] = max(left[k] - stripes, 0)


@inlined
def _finish_text(lanes: Any, at: Any, stop: Any, hashes: Any) -> None:
    """Stir in the bytes behind the last whole stripe of a text, and write its two hashes."""
    first, second, third, fourth = lanes[0], lanes[1], lanes[2], lanes[3]
    while at + 8 <= stop:
        first = stir(first, load_word(at))
        at += 8
    last = np.uint64(0)
    while at < stop:
        last = last << np.uint64(8) | np.uint64(load_byte(at))
        at += 1
    second = stir(second, last)
    low, high = first, fourth
    for lane in (second, third, fourth):
        low = stir(low, lane)
    for lane in (third, second, first):
        high = stir(high, lane)
    hashes[0] = _finished(low)
    hashes[1] = _finished(high)


@kernel
def bytes_hash(address: Any, length: Any) -> Any:
    """uint64 hash of `length` >= 7 bytes. Reads them, and below 8 also the one byte before them.

    Four lanes of 8 bytes as in xxHash64, so that a long gram costs about a cycle per 8 bytes; murmur3's final mix. The
    hash only finds candidates, which are compared byte for byte, so it needs speed and spread, not a standard.
    """
    total = np.uint64(length) * ODD_3
    done = 0
    if length < 8:
        total = stir(total, load_word(address + length - 8) >> np.uint64(64 - 8 * length))
    else:
        if length >= 32:
            one, two, three, four = ODD_1, ODD_2, ODD_3, total
            while done + 32 <= length:
                one = stir(one, load_word(address + done))
                two = stir(two, load_word(address + done + 8))
                three = stir(three, load_word(address + done + 16))
                four = stir(four, load_word(address + done + 24))
                done += 32
            total = stir(stir(stir(one, two), three), four)
        while done + 8 <= length:
            total = stir(total, load_word(address + done))
            done += 8
        if done < length:  # the last word overlaps the one before it
            total = stir(total, load_word(address + length - 8))
    return _finished(total)
