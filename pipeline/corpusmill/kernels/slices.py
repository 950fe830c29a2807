"""Copying many slices of one array into another, the inner loop of every shuffle here, and runs to stream in.

The C library's memcpy by address. Numba's own `out[a:b] = source[c:d]` copies an element at a time: 1.3 to 1.7 GB/s
for lines of text of 2 KB, memcpy 5 to 10. One compiled version serves every dtype. Raw addresses carry no bounds, so
`copy_slices` checks them first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel, load_byte, trailing_zeros

Positions = NDArray[np.uint64]


def _make_copy_bytes(_context: Any, _to: Any, _from: Any, _count: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, ir.IntType(64), ir.IntType(1)])
        function = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, ir.IntType(64)], kind)
        to, source = (builder.inttoptr(address, pointer) for address in arguments[:2])
        builder.call(function, [to, source, arguments[2], ir.IntType(1)(0)])
        return arguments[2]

    return types.int64(types.int64, types.int64, types.int64), generate


copy_bytes: Any = intrinsic(_make_copy_bytes)
"""Copy `count` bytes (int64) between addresses that do not overlap: the C library's memcpy."""


def _make_newlines(_context: Any, _address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), 64)
        bytes_there = builder.load(builder.inttoptr(arguments[0], block.as_pointer()), align=1)
        found = builder.icmp_unsigned("==", bytes_there, ir.Constant(block, [ord("\n")] * 64))
        return builder.bitcast(found, ir.IntType(64))

    return types.uint64(types.int64), generate


_newlines: Any = intrinsic(_make_newlines)
"""uint64 with a bit for each of the 64 bytes at an address (int64), the lowest for the first: 1 for a newline."""


def line_ends(data: NDArray[np.uint8]) -> Positions:
    """Where each line of whole lines ends, its newline included."""
    ends = np.empty(len(data) // 64 + 1, np.uint64)
    if (lines := _line_ends(data.ctypes.data, len(data), ends)) > len(ends):
        ends = np.empty(lines, np.uint64)
        _line_ends(data.ctypes.data, len(data), ends)
    return ends[:lines]


@kernel
def _line_ends(address: Any, size: Any, ends: Any) -> Any:
    """How many lines there are; as many ends are written as there is room for."""
    lines = 0
    for at in range(0, size, 64):
        if at + 64 <= size:
            found = _newlines(address + at)
        else:
            found = np.uint64(0)
            for k in range(size - at):
                found |= np.uint64(load_byte(address + at + k) == 10) << np.uint64(k)
        while found:
            if lines < len(ends):
                ends[lines] = at + trailing_zeros(found) + 1
            lines += 1
            found &= found - np.uint64(1)
    return lines


def starts_of(lengths: Positions) -> Positions:
    """uint64 (n,): where each slice begins if slices of these lengths lie back to back."""
    starts: Positions = np.cumsum(lengths, dtype=np.uint64) - lengths
    return starts


def copy_slices(
    source: NDArray[Any], starts: Positions, lengths: Positions, out: NDArray[Any], places: Positions | None = None
) -> None:
    """out[places[i] :][: lengths[i]] = source[starts[i] :][: lengths[i]] for every i; without `places`, back to back.

    1-D contiguous arrays of one dtype that do not overlap; starts, lengths, places uint64 in items. ValueError for a
    slice that does not lie in its array. The rest of `out` is left unchanged.
    """
    if places is None:
        places = starts_of(lengths)
    if not (source.dtype.itemsize == out.dtype.itemsize and source.flags.c_contiguous and out.flags.c_contiguous):
        raise ValueError(f"slices of {source.dtype} cannot be copied into {out.dtype}, or an array is not contiguous")
    for begins, array in ((starts, source), (places, out)):
        if not _inside(begins, lengths, np.uint64(len(array))):
            raise ValueError(f"a slice reaches beyond an array of {len(array):,} items")
    _copy(source.ctypes.data, starts, lengths, out.ctypes.data, places, source.dtype.itemsize)


class JoinedBytes:
    """Byte arrays addressed as if they were concatenated, without the copy."""

    def __init__(self, parts: list[NDArray[np.uint8]]) -> None:
        self._parts = parts  # keeps the memory at the addresses alive
        self._ends = np.cumsum([len(part) for part in parts], dtype=np.uint64)
        self._bases = np.array([part.ctypes.data for part in parts], np.uint64) - self._ends
        self._bases += np.array([len(part) for part in parts], np.uint64)
        if not all(part.dtype == np.uint8 and part.flags.c_contiguous for part in parts):
            raise ValueError("only contiguous byte arrays can be joined")

    def copy_slices(self, starts: Positions, lengths: Positions, out: NDArray[np.uint8]) -> None:
        """Copy slices back to back into `out`; ValueError for a slice that is not inside a single part."""
        part = np.searchsorted(self._ends, starts, side="right")
        part = np.minimum(part, len(self._ends) - 1)  # an empty slice behind the last byte
        if not _inside(starts, lengths, self._ends[part]) or int(lengths.sum()) > len(out):
            raise ValueError("a slice is outside the joined arrays, or they do not fit the output")
        _copy(0, self._bases[part] + starts, lengths, out.ctypes.data, starts_of(lengths), 1)


def _inside(starts: Positions, lengths: Positions, ends: Positions | np.uint64) -> bool:
    """Whether every slice ends at or before its `ends`; computed without a sum that could overflow."""
    return bool(((starts <= ends) & (lengths <= ends - starts)).all())


@kernel
def _copy(source: Any, starts: Any, lengths: Any, out: Any, places: Any, item_bytes: Any) -> None:
    for i in range(len(lengths)):
        to, first = out + np.int64(places[i]) * item_bytes, source + np.int64(starts[i]) * item_bytes
        copy_bytes(to, first, np.int64(lengths[i]) * item_bytes)


def runs(ends: NDArray[np.uint64], size: int, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Split items [first, last) into consecutive runs [a, b) of at most `size`; a larger item is a run of its own.

    `ends` are the items' cumulative ends (uint64, exclusive) in the unit of `size`.
    """
    last = len(ends) if last is None else last
    while first < last:
        start = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, np.uint64(start + size), side="right"))
        stop = min(max(stop, first + 1), last)
        yield first, stop
        first = stop
