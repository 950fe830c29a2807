"""How this project compiles, and how compiled kernels read memory: by address, eight bytes at a time.

Before numba compiles or loads its first kernel it imports what other installed packages registered as extensions.
awkward, which gigatoken requires and no kernel here uses, would cost every process 0.4 s, so this is turned off; a
stage of your own that needs awkward calls `ak.numba.register()`.

The first build of an installation compiles, for half a minute in all, so that a run's progress says so (advance.py).

A kernel gets a text as one integer, the address of its first byte. That keeps one compiled version per kernel (numba
compiles read-only, writable and memory-mapped arrays separately), lets one int64 array hold any number of memory-mapped
shards, and allows unaligned loads, so that reading eight bytes costs as much as reading one.

All addresses, positions and lengths are int64 (mixing int64 and uint64 makes numba compute in float64); words are
uint64, little-endian, as on every machine numba supports. Nothing here checks bounds: every function states the bytes
it touches. Whoever takes an address keeps the array alive.

numba's cache on disk looks at a kernel's own file only: after a change here, delete the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import entrypoints, event
from numba.extending import intrinsic

from corpusmill.kernels import advance

Kernel = Callable[..., Any]

entrypoints._already_initialized = True


class _Listener(event.Listener):
    """Told of every kernel that is compiled; loading one from the cache is none."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        advance.note_compiling(1)

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        advance.note_compiling(-1)


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]


def kernel(function: Kernel) -> Kernel:
    """Compile a function on its first call, cache the machine code on disk, and release the GIL while it runs."""
    return _compiled(function)


def _compiled(function: Kernel, **options: Any) -> Kernel:
    try:
        compiled: Kernel = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the installation nor the home may be written: each process compiles
        compiled = njit(nogil=True, **options)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """The same for functions that kernels call in their inner loops."""
    return _compiled(function, inline="always")


_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _of_one(result: Any, argument: Any, emit: Callable[[Any, Any], Any]) -> Any:
    """A function of one argument: `emit(builder, argument)` gives its instructions."""

    def make(_context: Any, _argument: Any) -> Any:
        return result(argument), lambda _target, builder, _signature, arguments: emit(builder, arguments[0])

    return intrinsic(make)


def _load_word(builder: Any, address: Any) -> Any:
    word = builder.load(builder.inttoptr(address, _WORD.as_pointer()))
    word.align = 1
    return word


load_word = _of_one(types.uint64, types.int64, _load_word)
"""uint64 of the eight bytes at `address` (int64), which need not be aligned."""


def _load_byte(builder: Any, address: Any) -> Any:
    return builder.zext(builder.load(builder.inttoptr(address, _BYTE.as_pointer())), _WORD)


load_byte = _of_one(types.int64, types.int64, _load_byte)
"""int64 value of the byte at `address` (int64)."""


def _prefetch(builder: Any, address: Any) -> Any:
    pointer, flag = _BYTE.as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    # read = 0, keep in every cache level = 3, data cache = 1
    builder.call(function, [builder.inttoptr(address, pointer), flag(0), flag(3), flag(1)])
    return _WORD(0)


prefetch = _of_one(types.int64, types.int64, _prefetch)
"""Ask for the cache line at `address` (int64). Never faults, whatever the address."""


def _trailing_zeros(builder: Any, word: Any) -> Any:
    return builder.cttz(word, ir.IntType(1)(1))


trailing_zeros = _of_one(types.int64, types.uint64, _trailing_zeros)
"""int64 number of zero bits below the lowest set one of `word` (uint64, not 0)."""


def _zero_low_bytes(builder: Any, word: Any) -> Any:
    return builder.lshr(_trailing_zeros(builder, word), _WORD(3))


zero_low_bytes = _of_one(types.int64, types.uint64, _zero_low_bytes)
"""int64 number of zero bytes below the lowest non-zero one of `word` (uint64, not 0)."""


def _zero_high_bytes(builder: Any, word: Any) -> Any:
    return builder.lshr(builder.ctlz(word, ir.IntType(1)(1)), _WORD(3))


zero_high_bytes = _of_one(types.int64, types.uint64, _zero_high_bytes)
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


@kernel
def common_prefix(first: Any, second: Any, limit: Any) -> Any:
    """How many bytes from `first` and from `second` on are equal, at most `limit`. Reads `limit` bytes of each."""
    done = 0
    while done + 32 <= limit:  # four words per branch, for long matches
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
            return done + zero_low_bytes(difference)
        done += 8
    while done < limit and load_byte(first + done) == load_byte(second + done):
        done += 1
    return done


@kernel
def common_suffix(first: Any, second: Any, limit: Any) -> Any:
    """How many bytes just below `first` and `second` are equal, at most `limit`. Reads `limit` bytes below each."""
    done = 0
    while done + 8 <= limit:
        difference = load_word(first - done - 8) ^ load_word(second - done - 8)
        if difference != np.uint64(0):
            return done + zero_high_bytes(difference)
        done += 8
    while done < limit and load_byte(first - done - 1) == load_byte(second - done - 1):
        done += 1
    return done
