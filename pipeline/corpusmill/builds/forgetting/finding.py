"""Search for many byte strings at once: a rolling hash of their first WIDTH bytes, then a comparison of all bytes.

    hash of bytes b[0..WIDTH)   sum of b[i] * BASE^(WIDTH - 1 - i), modulo 2^64

After Karp and Rabin 1987. A bitmap of 2^22 bits filters the hashes before they are looked up. What is searched for are
stretches of a text, in every form in which files of a build hold text.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel

if TYPE_CHECKING:
    from corpusmill.tokens.tokenizer import Tokenizer


STRETCH_BYTES = 48  # of text, at least
STRETCH_TOKENS = 12  # at least: 24 bytes as ids of two bytes each
STRETCH_CHANGES = 12  # of one byte to the next, at least: the padding of files has runs of one byte, too
PLACES = 8  # stretches of a text, evenly spaced, and one at its end


@dataclass(frozen=True)
class Stretch:
    """A piece of the text of forgotten document number `document`: its bytes, and their forms in files."""

    document: int
    text: bytes
    forms: tuple[bytes, ...]


def stretches_of(document: int, text: bytes, tokenizer: Tokenizer) -> Iterator[Stretch]:
    """The stretches of a text, and of its tokens, from its beginning to its end; none if it is too short."""
    for at in _places(len(text), STRETCH_BYTES):
        whole = text[at : at + 2 * STRETCH_BYTES].decode(errors="ignore").encode()[: 2 * STRETCH_BYTES]
        if len(whole) >= STRETCH_BYTES and whole in text and _is_distinctive(whole):
            yield Stretch(document, whole, _as_text(whole))
    ids, _ = tokenizer.encode([text])
    for at in _places(len(ids), STRETCH_TOKENS):
        last = at + STRETCH_TOKENS
        while len(piece := tokenizer.decode(ids[at:last])) < STRETCH_BYTES and last < len(ids):
            last += 1
        if len(piece) >= STRETCH_BYTES and piece in text and _is_distinctive(piece):
            yield Stretch(document, piece, _as_tokens(ids[at:last].astype(np.uint32)))


def _is_distinctive(piece: bytes) -> bool:
    """Whether a piece is more than some runs of one byte, such as the spaces that end the header of a .npy file."""
    changes = (True for before, after in pairwise(piece) if before != after)
    return any(islice(changes, STRETCH_CHANGES - 1, None))


def _places(length: int, least: int) -> list[int]:
    last = length - least
    return sorted({last * place // PLACES for place in range(PLACES + 1)}) if last >= 0 else []


def _as_text(text: bytes) -> tuple[bytes, ...]:
    words = text.decode()
    escaped = (json.dumps(words, ensure_ascii=ascii_only)[1:-1].encode() for ascii_only in (True, False))
    return tuple(dict.fromkeys([text, *escaped, html.escape(words).encode(), html.escape(words, quote=False).encode()]))


def _as_tokens(ids: np.ndarray) -> tuple[bytes, ...]:
    forms = [ids.astype("<u4").tobytes(), *(sign.join(map(str, ids.tolist())).encode() for sign in (",", ", "))]
    return (*forms, ids.astype("<u2").tobytes()) if int(ids.max(initial=0)) < 1 << 16 else tuple(forms)


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
