"""Memory by address, eight bytes at a time: how compiled kernels read text.

A kernel gets a text as one integer, the address of its first byte. That keeps one compiled version per kernel (numba
compiles read-only, writable and memory-mapped arrays separately), and allows unaligned loads, so that reading eight
bytes costs as much as reading one.

All addresses, positions and lengths are int64 (mixing int64 and uint64 makes numba compute in float64); words are
uint64, little-endian, as on every machine numba supports. Nothing here checks bounds: every function states the bytes
it touches. Whoever takes an address keeps the array alive.

numba's cache on disk looks at a kernel's own file only: after a change here, delete the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from corpusmill.kernels.compiled import inlined

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


def _make_zero_low_bytes(_context: Any, _word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.lshr(builder.cttz(arguments[0], ir.IntType(1)(1)), _WORD(3))

    return types.int64(types.uint64), generate


zero_low_bytes: Any = intrinsic(_make_zero_low_bytes)
"""int64 number of zero bytes below the lowest non-zero one of `word` (uint64, not 0)."""


def _make_zero_high_bytes(_context: Any, _word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.lshr(builder.ctlz(arguments[0], ir.IntType(1)(1)), _WORD(3))

    return types.int64(types.uint64), generate


zero_high_bytes: Any = intrinsic(_make_zero_high_bytes)
"""int64 number of zero bytes above the highest non-zero one of `word` (uint64, not 0)."""


@inlined
def equal_bytes(first: Any, second: Any, length: Any) -> Any:
    """Whether `length` bytes at two addresses (int64) are equal: all are compared, several words at a time."""
    differing = np.uint64(0)
    for k in range(0, length - 7, 8):
        differing |= load_word(first + k) ^ load_word(second + k)
    for k in range(length - length % 8, length):
        differing |= np.uint64(load_byte(first + k) ^ load_byte(second + k))
    return differing == np.uint64(0)
