"""Splits texts into words: the hash of each word, and its place in the text's bytes.

A word is a run of letters, digits and marks, folded (characters.py); a character of a script without spaces is a word
by itself, with the marks behind it. A word continues across

* a hyphen or an apostrophe between two letters (well-known, it's),
* a comma or a point between two digits (80,000),
* a hyphen at the end of a line, with the space behind it and the next line's indentation.

So line breaks, missing punctuation, typography, markdown and case change no word. Characters outside words are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.decontamination.characters import (
    APOSTROPHE,
    CHARACTER,
    CODE_POINTS,
    DIGIT,
    HYPHEN,
    KIND_MASK,
    KINDS,
    LENGTH_SHIFT,
    LETTER,
    MARK,
    NEWLINE,
    NOTHING,
    NUMBER_MARK,
    SPACE,
    VALUE_BITS,
    VALUE_MASK,
)
from corpusmill.kernels.compiled import inlined, kernel
from corpusmill.kernels.words import load_byte

Places = NDArray[np.uint64]

MOST_WORDS_A_BYTE = 2  # U+3316, three bytes, stands for six characters of Katakana
LARGEST_BATCH = 1 << 31

# The state of the word after each character. A transition holds the next state, _PART if the character belongs to a
# word, and _FIRST if it begins one.
STATES = 9
_CLOSED, _INSIDE, _IN_NUMBER, _HYPHEN, _APOSTROPHE, _MARK, _HYPHEN_SPACE, _HYPHEN_NEWLINE, _CHARACTER = range(STATES)
_PART, _FIRST = 16, 32
_STATE_MASK = 15


def _transitions() -> NDArray[np.int64]:
    """int64 (STATES, KINDS)."""
    table = np.full((STATES, KINDS), _CLOSED)
    open_states = [_INSIDE, _IN_NUMBER]
    table[:, LETTER] = _INSIDE | _PART | _FIRST
    table[:, DIGIT] = _IN_NUMBER | _PART | _FIRST
    table[:, CHARACTER] = _CHARACTER | _PART | _FIRST
    for state in (*open_states, _HYPHEN, _APOSTROPHE, _HYPHEN_NEWLINE):
        table[state, [LETTER, DIGIT]] = [_INSIDE | _PART, _IN_NUMBER | _PART]
    table[_MARK, DIGIT] = _IN_NUMBER | _PART
    for state in (*open_states, _CHARACTER):
        table[state, MARK] = state | _PART
    table[open_states, HYPHEN] = _HYPHEN
    table[open_states, APOSTROPHE] = _APOSTROPHE
    table[_IN_NUMBER, NUMBER_MARK] = _MARK
    table[[_HYPHEN, _HYPHEN_SPACE], SPACE] = _HYPHEN_SPACE
    table[_HYPHEN_NEWLINE, SPACE] = _HYPHEN_NEWLINE
    table[[_HYPHEN, _HYPHEN_SPACE, _HYPHEN_NEWLINE], NEWLINE] = _HYPHEN_NEWLINE
    return table


TRANSITIONS = _transitions()

_BASIS = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)
_ODD = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of consecutive texts.

    `hashes`  uint64 (words,); odd for a word that is a character of a script without spaces
    `begins`, `ends`  uint32 (words,): the bytes of each, counted from the first text's first byte
    `first`   int64 (texts + 1,): the words of text i are those from `first[i]` to `first[i + 1]`
    """

    hashes: NDArray[np.uint64]
    begins: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    first: NDArray[np.int64]


class WordFinder:
    """Finds words with the table of one index, in reused buffers: the Words of a call are valid until the next call."""

    def __init__(self, table: NDArray[np.uint32], expansions: NDArray[np.uint32]) -> None:
        self.characters, self.expansions = table.view(), expansions.view()
        for array in (self.characters, self.expansions):
            array.flags.writeable = False  # as in a mapped index: numba compiles for each kind
        self._hashes = np.empty(0, np.uint64)
        self._places = np.empty((2, 0), np.uint32)

    def find(self, text: NDArray[np.uint8], starts: Places, ends: Places) -> Words:
        """The words of the texts `text[starts[i] : ends[i]]`, UTF-8, in text order.

        Raises ValueError for texts that are not in order, leave the array or take more than 2 GiB.
        """
        in_order = not len(starts) or bool((starts <= ends).all() and (ends[:-1] <= starts[1:]).all())
        base, stop = (int(starts[0]), int(ends[-1])) if len(starts) else (0, 0)
        if not in_order or stop > len(text) or stop - base > LARGEST_BATCH or not text.flags.c_contiguous:
            raise ValueError(f"{len(starts):,} texts in bytes {base:,} to {stop:,} of {len(text):,}")
        most = (stop - base) * MOST_WORDS_A_BYTE
        if most > len(self._hashes):
            self._hashes, self._places = np.empty(most, np.uint64), np.empty((2, most), np.uint32)
        first = np.zeros(len(starts) + 1, np.int64)
        places = [(bounds - np.uint64(base)).astype(np.int64) for bounds in (starts, ends)]
        _find_words(
            text.ctypes.data + base, *places, self.characters, self.expansions, self._hashes, *self._places, first
        )
        filled = slice(0, int(first[-1]))
        return Words(self._hashes[filled], self._places[0, filled], self._places[1, filled], first)


@inlined
def _code_point(address: Any, at: Any, stop: Any) -> Any:
    """(code point, bytes) of the character at `address + at`; (0, 1) for truncated UTF-8."""
    lead = load_byte(address + at)
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if lead < 0xC0 or at + size > stop:
        return np.int64(0), np.int64(1)
    code = lead & (0x7F >> size)
    for i in range(1, size):
        code = code << 6 | (load_byte(address + at + i) & 0x3F)
    return (code, np.int64(size)) if code < CODE_POINTS else (np.int64(0), np.int64(1))


@inlined
def _longer(word: Any, entry: Any) -> Any:
    return (word ^ np.uint64(entry & VALUE_MASK)) * _PRIME


@inlined
def _marked(word: Any, entry: Any) -> Any:
    """Add marks on one letter, because their order may differ between equivalent texts."""
    return word + np.uint64(entry & VALUE_MASK) * _ODD


@inlined
def _finished(word: Any, single: Any) -> Any:
    word = (word ^ (word >> np.uint64(32))) * _ODD
    return ((word ^ (word >> np.uint64(29))) & ~np.uint64(1)) | single


@kernel
def _find_words(  # noqa: PLR0912 (a loop over every byte is one function)
    address: Any,
    starts: Any,
    ends: Any,
    table: Any,
    expansions: Any,
    hashes: Any,
    word_begins: Any,
    word_ends: Any,
    first: Any,
) -> None:
    words, word, single = np.int64(-1), _BASIS, np.uint64(0)  # the word that was begun last
    for i in range(len(starts)):
        at, stop, state = starts[i], ends[i], _CLOSED
        while at < stop:
            code, size = load_byte(address + at), np.int64(1)
            if state == _INSIDE:  # most of a text: letters of ASCII within a word
                while code < 0x80 and np.int64(table[code]) >> VALUE_BITS == LETTER:
                    word = _longer(word, np.int64(table[code]))
                    at += 1
                    word_ends[words] = at
                    if at == stop:
                        break
                    code = load_byte(address + at)
                if at == stop:
                    break
            if code >= 0x80:
                code, size = _code_point(address, at, stop)
            entry = np.int64(table[code])
            parts, place = entry >> LENGTH_SHIFT, entry & VALUE_MASK
            for part in range(parts if parts else 1):
                if parts:
                    entry = np.int64(expansions[place + part])
                    if entry == NOTHING:
                        break
                kind = entry >> VALUE_BITS & KIND_MASK
                then = TRANSITIONS[state, kind]
                state = then & _STATE_MASK
                if then & _FIRST:
                    if words >= 0:
                        hashes[words] = _finished(word, single)
                    words, word, single = words + 1, _BASIS, np.uint64(kind == CHARACTER)
                    word_begins[words] = at
                if then & _PART:
                    word = _marked(word, entry) if kind == MARK else _longer(word, entry)
                    word_ends[words] = at + size
            at += size
        if words >= 0:
            hashes[words] = _finished(word, single)
        first[i + 1] = words + 1
