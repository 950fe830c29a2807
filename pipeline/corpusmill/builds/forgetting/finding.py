"""Search for many byte strings at once: a rolling hash of their first WIDTH bytes, then a comparison of all bytes.

    hash of bytes b[0..WIDTH)   sum of b[i] * BASE^(WIDTH - 1 - i), modulo 2^64

After Karp and Rabin 1987. A bitmap of 2^22 bits filters the hashes before they are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel

WIDTH = 24
BASE = 0x9E3779B97F4A7C15
BITS = 22
MOST = 1 << 14  # the most places that one call of the kernel records
_POWER = np.uint64(pow(BASE, WIDTH, 1 << 64))
_BASE, _MIX, _SHIFT = np.uint64(BASE), np.uint64(0xD6E8FEB86659FD93), np.uint64(64 - BITS)


@kernel
def _find(data: Any, begin: Any, hashes: Any, bitmap: Any, places: Any) -> Any:
    """Record where WIDTH bytes with a hash in `hashes` begin, from `begin` on; returns (number of places, where to go
    on).
    """
    rolling, count = np.uint64(0), 0
    for at in range(begin, len(data)):
        rolling = rolling * _BASE + np.uint64(data[at])
        if at >= begin + WIDTH:
            rolling -= np.uint64(data[at - WIDTH]) * _POWER
        if at + 1 >= begin + WIDTH:
            slot = (rolling * _MIX) >> _SHIFT
            if (bitmap[slot >> np.uint64(3)] >> (slot & np.uint64(7))) & np.uint64(1):
                place = np.searchsorted(hashes, rolling)
                if place < len(hashes) and hashes[place] == rolling:
                    places[count] = at + 1 - WIDTH
                    count += 1
                    if count == len(places):
                        return count, at + 2 - WIDTH
    return count, len(data)


class Finder:
    """Looks for byte strings of at least WIDTH bytes; `longest` is the longest one's length."""

    def __init__(self, wanted: Iterable[bytes]) -> None:
        self._by_start: dict[bytes, list[bytes]] = {}
        for string in sorted(set(wanted)):
            if len(string) < WIDTH:
                raise ValueError(f"a string of {len(string)} bytes is too short to search for: {WIDTH} at least")
            self._by_start.setdefault(string[:WIDTH], []).append(string)
        self.longest = max((len(string) for rest in self._by_start.values() for string in rest), default=WIDTH)
        hashes = [_hash(start) for start in self._by_start]
        self._hashes = np.array(sorted(set(hashes)), np.uint64)
        bits = np.zeros(1 << BITS, np.uint8)
        bits[((self._hashes * _MIX) >> _SHIFT).astype(np.int64)] = 1
        self._bitmap = np.packbits(bits, bitorder="little").astype(np.uint64)

    def find(self, data: NDArray[np.uint8]) -> set[bytes]:
        """The strings that `data` contains."""
        strings: set[bytes] = set()
        places, begin = np.empty(MOST, np.int64), 0
        while begin + WIDTH <= len(data):
            count, begin = _find(data, begin, self._hashes, self._bitmap, places)
            for at in places[:count].tolist():
                around = data[at : at + self.longest].tobytes()
                strings.update(string for string in self._by_start.get(around[:WIDTH], ()) if around.startswith(string))
        return strings


def _hash(data: bytes) -> int:
    rolling = 0
    for byte in data:
        rolling = (rolling * BASE + byte) & ((1 << 64) - 1)
    return rolling
