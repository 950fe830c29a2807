"""Slices: the windows that an anchor owns, cut at fixed distances from the anchor, and the bytes that each part shares.

A slice is the windows of an anchor that start n x w to n x w + w - 1 bytes before it, w being a power of two. All of
them contain its gram: the L - w + 1 bytes from n x w before the anchor on. Equal windows have equal anchors at equal
offsets, so they are in slices of equal grams at equal n; what else a window holds is less than w bytes, its borders.

    place       position << 20 | before << 10 | windows - 1                 an anchor (anchors.py)
    border      position << 20 | left << 10 | right     a slice of an anchor: where its gram begins, and how many bytes
                                                        its windows reach beyond the gram on either side

Of the window that starts j bytes before the gram, j bytes are left of it and w - 1 - j right of it; the slice has the
windows j from w - 1 - right to left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchors import kgram_bytes
from corpusmill.kernels.compiled import kernel
from corpusmill.kernels.content_kernels import bytes_hash

_PARTS = 4


@dataclass(frozen=True)
class Slicing:
    """How windows of `minimum_bytes` are cut into slices of `width`, a power of two."""

    minimum_bytes: int
    width: int

    @property
    def gram_bytes(self) -> int:
        """The number of bytes that all windows of a slice share."""
        return self.minimum_bytes - self.width + 1


def slicing_of(minimum_bytes: int) -> Slicing:
    """Slices of the largest power of two up to a quarter of the windows that an anchor can own.

    Narrower slices mean more hashes, wider ones longer borders. Half the width costs as much: 0.10 bytes per byte of
    text at L = 500 and 0.55 at 100 (hashes, borders and the answers to them).
    """
    quarter = (minimum_bytes - kgram_bytes(minimum_bytes) + 1) // _PARTS
    return Slicing(minimum_bytes, 1 << max(0, quarter.bit_length() - 1))


def positions_of(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64 positions of places or borders."""
    return (rows >> np.uint64(20)).astype(np.int64)


def highs_of(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """`before` of places, `left` of borders."""
    return (rows >> np.uint64(10)).astype(np.int64) & 1023


def lows_of(rows: NDArray[np.uint64]) -> NDArray[np.int64]:
    """`windows - 1` of places, `right` of borders."""
    return rows.astype(np.int64) & 1023


def count_slices(places: NDArray[np.uint64], width: int) -> NDArray[np.int64]:
    """How many slices of w = `width` windows each anchor has."""
    before = highs_of(places)
    return before // width - (before - lows_of(places)) // width + 1


def hash_slices(
    text: NDArray[np.uint8], origin: int, places: NDArray[np.uint64], slicing: Slicing
) -> NDArray[np.uint32]:
    """uint32 hashes of the grams of all slices of some anchors, anchor by anchor, the highest n first.

    text[0] is byte `origin` of the shard's text, and `text` holds every window that the anchors own. The hash includes
    n. It only proposes candidates: slices with equal hashes are compared.
    """
    hashes = np.empty(int(count_slices(places, slicing.width).sum()), np.uint32)
    _hash_slices(text.ctypes.data - origin, places, slicing.gram_bytes, slicing.width, hashes)
    return hashes


def borders_of(
    places: NDArray[np.uint64], width: int, marked: NDArray[np.uint8], owned: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The borders of the marked slices, ascending. `marked`: of all slices of `places`; `owned`: count_slices."""
    anchor = np.repeat(np.arange(len(places)), owned)
    begins = np.cumsum(owned) - owned
    before, windows = highs_of(places), lows_of(places)
    kept = np.flatnonzero(marked)
    anchor = anchor[kept]
    start = (before[anchor] // width - (kept - begins[anchor])) * width
    left = np.minimum(before[anchor] - start, width - 1)
    least = np.maximum(before[anchor] - windows[anchor] - start, 0)
    borders = (positions_of(places[anchor]) - start) << 20 | left << 10 | (width - 1 - least)
    return np.sort(borders.astype(np.uint64), kind="stable")  # nearly ascending


@kernel
def _hash_slices(text: Any, places: Any, gram_bytes: Any, width: Any, hashes: Any) -> None:
    filled = 0
    for row in range(len(places)):
        position = np.int64(places[row] >> np.uint64(20))
        before = np.int64(places[row] >> np.uint64(10)) & 1023
        least = before - (np.int64(places[row]) & 1023)
        for number in range(before // width, least // width - 1, -1):
            value = bytes_hash(text + position - number * width, gram_bytes)
            value = (value ^ np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
            hashes[filled] = np.uint32(value >> np.uint64(32))
            filled += 1
