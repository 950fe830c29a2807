"""Contexts as text: the compact JSON list of ints inside a WebDataset member, written and read without Python ints.

    [50,256,0]      no spaces, no signs, no leading zeros, at least one number, numbers below 2^32

Reading accepts exactly what writing produces: one text for each context, one context for each text.

Price, on contexts of 2,049 cl100k ids, one core, million tokens a second: the kernel writes 460 to 730, one load of
eight bytes from a table of all numbers and one store for each (orjson 67 to 112; a compiled loop over digits 55,
because it mispredicts the end of every number); the kernel reads 50, orjson and numpy.array 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel
from corpusmill.tokens.token_shard import TokenArray

_OPEN, _CLOSE, _COMMA, _ZERO, _NINE = (ord(letter) for letter in "[],09")
_LARGEST = (1 << 32) - 1


TABLE_IDS = 1 << 19  # 4 MiB of table; larger ids use orjson
TOGETHER = 64  # contexts, 1 MiB of text, which is still in the cache when it is compressed
PLACES = 8  # bytes: at most six digits of an id below TABLE_IDS, its comma, and the byte that holds their number


def write_lists(contexts: TokenArray) -> Iterator[bytes | memoryview]:
    """The text of every row of a contiguous 2-D array of uint16 or uint32 ids; each is valid until the next one is
    requested.

    The text is the same as write_list's.
    """
    largest = int(contexts.max(initial=0))
    if largest >= TABLE_IDS:
        yield from map(write_list, contexts)
        return
    table = _numbers(max(16, largest.bit_length()))
    text = np.empty(TOGETHER * (1 + PLACES * contexts.shape[1]) + PLACES, np.uint8)
    ends = np.empty(TOGETHER, np.int64)
    for first in range(0, len(contexts), TOGETHER):
        rows = contexts[first : first + TOGETHER]
        _write(rows, table, text, ends)
        begin = 0
        for end in ends[: len(rows)].tolist():
            yield text[begin:end].data
            begin = end


@lru_cache(maxsize=2)
def _numbers(bits: int) -> NDArray[np.uint64]:
    """uint64 (2^bits,): of each number its digits, a comma, zeros, and in the highest byte the count of digits and
    comma.
    """
    ids = np.arange(1 << bits)
    digits = 1 + np.searchsorted(10 ** np.arange(1, PLACES - 1), ids, side="right")
    table = np.zeros((len(ids), PLACES), np.uint8)
    for place in range(PLACES - 1):
        digit = ids // 10 ** np.maximum(digits - 1 - place, 0) % 10
        table[:, place] = np.where(place < digits, digit + _ZERO, 0)
    table[ids, digits] = _COMMA
    table[:, PLACES - 1] = digits + 1
    return table.view("<u8").astype(np.uint64, copy=False).ravel()


@kernel
def _write(contexts: Any, table: Any, text: Any, ends: Any) -> None:
    """Write all rows back to back; ends[i] (int64) is where row i ends. `text` has PLACES bytes to spare.

    Positions are unsigned: for signed ones numba checks at every byte for negative indexes, and then the eight bytes do
    not become one store, which is four times as fast.
    """
    at, one = np.uint64(0), np.uint64(1)
    for row in range(len(contexts)):
        text[at] = _OPEN
        at += one
        for column in range(contexts.shape[1]):
            word = table[contexts[row, column]]
            for place in range(PLACES):
                text[at + np.uint64(place)] = np.uint8(word >> np.uint64(8 * place))
            at += word >> np.uint64(8 * (PLACES - 1))
        text[at - one] = _CLOSE
        ends[row] = at


def write_list(ids: TokenArray) -> bytes:
    """The text of a contiguous 1-D array of uint16 or uint32 ids."""
    return orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY)


def read_list(text: bytes) -> tuple[NDArray[np.uint32], int | None]:
    """The ids of `text`, and None; or the ids before the first invalid byte, and its position."""
    numbers = np.empty(len(text) // 2 + 1, np.uint32)
    count, wrong_at = _read(np.frombuffer(text, np.uint8), numbers)
    return numbers[:count], None if wrong_at < 0 else int(wrong_at)


def _read_kernel(text, numbers):  # type: ignore[no-untyped-def]
    """Fill `numbers` (uint32); returns the count of numbers read and the position of the first wrong byte, or -1."""
    size = text.size
    if size == 0 or text[0] != _OPEN:
        return 0, 0
    at = 1
    count = 0
    while True:
        start = at
        value = 0
        while at < size and _ZERO <= text[at] <= _NINE and value <= _LARGEST:
            value = 10 * value + text[at] - _ZERO
            at += 1
        if value > _LARGEST or (at - start > 1 and text[start] == _ZERO):
            return count, start
        ends_well = at > start and at < size and (text[at] == _COMMA or text[at] == _CLOSE)
        if not ends_well:
            return count, at
        numbers[count] = value
        count += 1
        at += 1
        if text[at - 1] == _CLOSE:
            return count, -1 if at == size else at


_read = kernel(_read_kernel)
