"""Text by address, eight bytes at a time: the primitives of the dedup kernels.

A kernel gets a memory-mapped text as one integer, the address of its first byte. That keeps one compiled version per
kernel (numba compiles read-only, writable and memory-mapped arrays separately), lets it hold any number of shards in
one int64 array, and allows the unaligned loads that make comparing eight bytes cost as much as comparing one.

All addresses, positions and lengths are int64 (mixing int64 and uint64 makes numba compute in float64); words and
hashes are uint64. Words are little-endian, as on every machine numba supports. Nothing here checks bounds: every
function states the bytes it reads.

numba's cache on disk looks at a kernel's own file only: after a change here, delete the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _make_load_word(_context: Any, _address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()))
        word.align = 1
        return word

    return types.uint64(types.int64), generate


load_word: Any = intrinsic(_make_load_word)
"""uint64 of the eight bytes at `address` (int64), which need not be aligned."""


def _make_load_byte(_context: Any, _address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], _BYTE.as_pointer())), _WORD)

    return types.int64(types.int64), generate


load_byte: Any = intrinsic(_make_load_byte)
"""int64 value of the byte at `address` (int64)."""


def _make_prefetch(_context: Any, _address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = _BYTE.as_pointer()
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # read = 0, keep in every cache level = 3, data cache = 1
        builder.call(function, [builder.inttoptr(arguments[0], pointer), flag(0), flag(3), flag(1)])
        return _WORD(0)

    return types.int64(types.int64), generate


prefetch: Any = intrinsic(_make_prefetch)
"""Ask for the cache line at `address` (int64). Never faults, whatever the address."""


def _make_equal_low_bytes(_context: Any, _difference: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.lshr(builder.cttz(arguments[0], ir.IntType(1)(1)), _WORD(3))

    return types.int64(types.uint64), generate


_equal_low_bytes: Any = intrinsic(_make_equal_low_bytes)
"""int64 number of zero bytes below the lowest non-zero one of `difference` (uint64, not 0)."""


def _make_equal_high_bytes(_context: Any, _difference: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.lshr(builder.ctlz(arguments[0], ir.IntType(1)(1)), _WORD(3))

    return types.int64(types.uint64), generate


_equal_high_bytes: Any = intrinsic(_make_equal_high_bytes)
"""int64 number of zero bytes above the highest non-zero one of `difference` (uint64, not 0)."""


@njit(nogil=True, cache=True)
def common_prefix(first: Any, second: Any, limit: Any) -> Any:
    """How many bytes from `first` and from `second` upward are equal, at most `limit`. Reads `limit` bytes of each."""
    done = 0
    while done + 32 <= limit:  # four words and one branch: the long matches live here
        difference = load_word(first + done) ^ load_word(second + done)
        difference |= load_word(first + done + 8) ^ load_word(second + done + 8)
        difference |= load_word(first + done + 16) ^ load_word(second + done + 16)
        difference |= load_word(first + done + 24) ^ load_word(second + done + 24)
        if difference != np.uint64(0):
            break
        done += 32
    while done + 8 <= limit:
        difference = load_word(first + done) ^ load_word(second + done)
        if difference != np.uint64(0):
            return done + _equal_low_bytes(difference)
        done += 8
    while done < limit and load_byte(first + done) == load_byte(second + done):
        done += 1
    return done


@njit(nogil=True, cache=True)
def common_suffix(first: Any, second: Any, limit: Any) -> Any:
    """How many bytes just below `first` and `second` are equal, at most `limit`. Reads `limit` bytes below each."""
    done = 0
    while done + 8 <= limit:
        difference = load_word(first - done - 8) ^ load_word(second - done - 8)
        if difference != np.uint64(0):
            return done + _equal_high_bytes(difference)
        done += 8
    while done < limit and load_byte(first - done - 1) == load_byte(second - done - 1):
        done += 1
    return done


_ODD_1 = np.uint64(0x9E3779B185EBCA87)
_ODD_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_ODD_3 = np.uint64(0x165667B19E3779F9)


@njit(nogil=True, cache=True)
def _stir(lane: Any, word: Any) -> Any:
    """One round of xxHash's 64-bit lane: multiply, rotate by 31, multiply."""
    lane += word * _ODD_2
    return ((lane << np.uint64(31)) | (lane >> np.uint64(33))) * _ODD_1


@njit(nogil=True, cache=True)
def bytes_hash(address: Any, length: Any) -> Any:
    """uint64 hash of `length` >= 7 bytes. Reads them, and below 8 also the one byte before them.

    Four lanes of 8 bytes as in xxHash64, so that a long gram costs about a cycle per 8 bytes; murmur3's final mix. The
    hash only finds candidates, which are compared byte for byte, so it needs speed and spread, not a standard.
    """
    total = np.uint64(length) * _ODD_3
    done = 0
    if length < 8:
        total = _stir(total, load_word(address + length - 8) >> np.uint64(64 - 8 * length))
    else:
        if length >= 32:
            one, two, three, four = _ODD_1, _ODD_2, _ODD_3, total
            while done + 32 <= length:
                one = _stir(one, load_word(address + done))
                two = _stir(two, load_word(address + done + 8))
                three = _stir(three, load_word(address + done + 16))
                four = _stir(four, load_word(address + done + 24))
                done += 32
            total = _stir(_stir(_stir(one, two), three), four)
        while done + 8 <= length:
            total = _stir(total, load_word(address + done))
            done += 8
        if done < length:  # the last word overlaps the one before it
            total = _stir(total, load_word(address + length - 8))
    total ^= total >> np.uint64(33)
    total *= np.uint64(0xFF51AFD7ED558CCD)
    total ^= total >> np.uint64(33)
    total *= np.uint64(0xC4CEB9FE1A85EC53)
    return total ^ (total >> np.uint64(33))
