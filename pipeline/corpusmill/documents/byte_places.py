"""Finds the positions of a byte, comparing 32 bytes at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel, load_byte

STEP = 32


def find_bytes(data: NDArray[np.uint8], byte: int) -> NDArray[np.int64]:
    """int64 (n,): the places of a byte in contiguous `data`, ascending."""
    room = len(data) // 16
    while True:
        places = np.empty(room, np.int64)
        count = _find(data.ctypes.data, len(data), byte, places)
        if count <= room:
            return places[:count]
        room = count


def _compared_bits(comparison: str) -> Any:
    def make(_context: Any, _address: Any, _byte: Any) -> Any:
        vector, mask, word = ir.VectorType(ir.IntType(8), STEP), ir.IntType(STEP), ir.IntType(64)

        def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            address, byte = arguments
            some = builder.load(builder.inttoptr(address, vector.as_pointer()), align=1)
            one = builder.trunc(byte, ir.IntType(8))
            first = builder.insert_element(ir.Constant(vector, ir.Undefined), one, mask(0))
            every = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(mask, STEP), [0] * STEP))
            return builder.zext(builder.bitcast(builder.icmp_unsigned(comparison, some, every), mask), word)

        return types.uint64(types.int64, types.int64), generate

    return intrinsic(make)


equal_bits = _compared_bits("==")
"""uint64 whose bit i tells whether byte i of the 32 at `address` (int64) equals `byte` (int64)."""
lower_bits = _compared_bits("<")
"""uint64 whose bit i tells whether byte i of the 32 at `address` (int64) is lower than `byte` (int64)."""


def _make_lowest(_context: Any, _bits: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


lowest_bit: Any = intrinsic(_make_lowest)
"""int64 index of the lowest set bit of `bits`, which is not 0."""


@kernel
def _find(address: Any, size: Any, byte: Any, places: Any) -> Any:
    """Count the byte, and fill `places` as far as it reaches."""
    count, whole, room = 0, size - size % STEP, len(places)
    for at in range(0, whole, STEP):
        bits = equal_bits(address + at, byte)
        while bits:
            if count < room:
                places[count] = at + lowest_bit(bits)
            count += 1
            bits &= bits - np.uint64(1)
    for at in range(whole, size):
        if load_byte(address + at) == byte:
            if count < room:
                places[count] = at
            count += 1
    return count
