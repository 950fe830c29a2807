"""An engine for BPE over marked spaces (Llama 2, Gemma): cuts texts where no token can cross, and remembers pieces.

Such a tokenizer merges a whole document as one word. But BPE joins two neighbours only by a merge, and of every token
that merges make, each two adjacent characters were once the last and the first of a merge's two sides. If no merge
has these two characters at its seam, no token ever covers both, the merges on either side do not depend on the other,
and the ids of the two sides are those of the whole::

    text      s p e e d ,   a n d   " g r i p " \\n
    pieces   |         | |       | | |       | |  |       in Llama 2 no merge joins d and a comma, n and g do join

`safe_cuts` derives that from the merges, for pairs of bytes: the last of one character and the first of the next.
`why_not_pieces` (fitness.py) decides which tokenizers qualify. A table remembers the ids of short pieces and is emptied
when it is full; it changes no id, because a missing piece is merged again (piece_kernels.py).

Price: 10 ns per byte, and 2 microseconds per new piece; memory is 60 MB, and 40 bytes per byte of the longest piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.tokens.characters import CHARACTERS
from corpusmill.tokens.fitness import BYTE_TOKENS, MARK
from corpusmill.tokens.piece_kernels import (
    CUT,
    MAY_BE_ADDED,
    NO_TOKEN,
    PADDING,
    SLOTS,
    SPACE,
    START,
    encode_texts,
    fill_pairs,
)

ROWS = 1 << 19
KEYS_BYTES = 8 << 20
KEPT_IDS = 4 << 20

Rows = tuple[NDArray[np.uint32], NDArray[np.int64]]  # tokens back to back, tokens of each text


def safe_cuts(merges: Iterable[tuple[str, str]]) -> NDArray[np.uint8]:
    """uint8 (257, 256): CUT at [a, b] if no merge joins a character that ends in byte a to one that begins with b.

    A mark is spelled as itself or as a space. Row START, of what precedes the first byte, has no CUT.
    """
    cuts = np.full((START + 1, 256), CUT, np.uint8)
    for last, first in {(left[-1], right[0]) for left, right in merges}:
        lasts = [character.encode()[-1] for character in _spellings(last)]
        firsts = [character.encode()[0] for character in _spellings(first)]
        cuts[np.ix_(lasts, firsts)] = 0
    cuts[:, 0x80:0xC0] = 0  # within a character
    cuts[START] = 0
    return cuts


def _spellings(character: str) -> str:
    return f"{MARK} " if character == MARK else character


def trie_of(strings: Iterable[bytes]) -> NDArray[np.int32]:
    """int32 (nodes, 4): byte, first child, next sibling (0: none), the number of the string that ends here (-1: none).

    Node 0 is the root.
    """
    nodes = [[0, 0, 0, -1]]
    places: dict[tuple[int, int], int] = {}
    for number, string in enumerate(strings):
        node = 0
        for byte in string:
            place = places.setdefault((node, byte), len(nodes))
            if place == len(nodes):
                nodes.append([byte, 0, nodes[node][1], -1])
                nodes[node][1] = place
            node = place
        nodes[node][3] = number
    return np.array(nodes, np.int32)


class PieceTable:
    """The remembered ids of pieces, filled and emptied by encode_texts."""

    def __init__(self) -> None:
        self.slots = np.zeros((SLOTS, 2), np.uint64)
        self.rows = np.zeros((ROWS + 1, 2), np.int64)
        self.keys = np.zeros(KEYS_BYTES + PADDING, np.uint8)
        self.ids = np.empty(KEPT_IDS, np.uint32)
        self.size = np.zeros(1, np.int64)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays, in the order of the kernels' argument `table`."""
        return self.slots, self.rows, self.keys, self.ids, self.size


class PieceEngine:
    """Encodes texts whose spaces become marks.

    `added` maps the strings that are tokens wherever they occur, the longest of those that begin at a place, to their
    ids. `prepends`: a mark is put before every stretch of text between two of them. `ranks`: those of the merges, where
    several that make one token share a rank, int64; by default they are in order. Threads may share an engine.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: list[tuple[str, str]],
        added: Mapping[str, int],
        *,
        prepends: bool,
        ranks: NDArray[np.int64] | None = None,
    ) -> None:
        ranks = np.arange(len(merges)) if ranks is None else ranks
        self._prepends = prepends
        tokens = {token: place for place, token in enumerate(vocabulary)}
        self._numbers = np.array(list(vocabulary.values()), np.uint32)
        self._characters = np.full(CHARACTERS, NO_TOKEN, np.uint32)
        for token, place in tokens.items():
            if len(token) == 1:
                self._characters[ord(token)] = place
        self._characters[SPACE] = self._characters[ord(MARK)]
        self._bytes = np.array([tokens.get(token, NO_TOKEN) for token in BYTE_TOKENS], np.uint32)
        sides = np.array([(tokens[left], tokens[right]) for left, right in merges], np.uint64)
        self._pairs = fill_pairs(sides.reshape(-1, 2), ranks)
        self._results = np.zeros(ranks.max(initial=-1) + 1, np.uint32)
        self._results[ranks] = [tokens[left + right] for left, right in merges]
        strings = [string.encode() for string in added]
        self._cuts = safe_cuts(merges)
        self._cuts[:, [string[0] for string in strings]] |= MAY_BE_ADDED
        self._trie = trie_of(strings)
        self._added_ids = np.array(list(added.values()), np.uint32)
        self._idle: list[PieceTable] = []

    def __call__(self, texts: list[bytes]) -> Rows:
        """(tokens back to back, tokens of each text). UnicodeDecodeError, as from the reference library."""
        for text in texts:
            text.decode()
        table = self._idle.pop() if self._idle else PieceTable()
        joined = np.frombuffer(b"".join([*texts, bytes(PADDING)]), np.uint8)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        encoded: Rows = encode_texts(
            joined,
            ends,
            self._prepends,
            (self._cuts, self._trie, self._added_ids),
            (self._numbers, self._characters, self._bytes, self._pairs, self._results),
            table.arrays(),
        )
        self._idle.append(table)
        return encoded
