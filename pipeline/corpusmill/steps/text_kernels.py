"""Counts words and lines of texts, for gopher.py and repetition.py.

Words are what `str.split()` gives; a letter is a character with `str.isalpha()`. Both come from a table of this
Python's characters. Positions are int64; nothing here checks bounds: texts are UTF-8 and lie inside of their array,
and no byte behind a text's end is read.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import inlined, kernel, load_byte, load_word

SPACE, LETTER = 1, 2
WORDS, CHARACTERS, LETTER_WORDS, STOP_WORDS, HASHES, ELLIPSES, LINES, BULLETS, ELLIPSIS_LINES = range(9)
FACTS = 9
LOW_BITS, HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)  # of eight bytes
MIX = np.uint64(0xBF58476D1CE4E5B9)
START = np.uint64(0xCBF29CE484222325)
NEWLINE, DOT, HASH, ELLIPSIS = 10, 46, 35, 0x2026
STOPS = ("the", "be", "to", "of", "and", "that", "have", "with")


@cache
def character_table() -> NDArray[np.uint8]:
    """uint8 (0x110000,): SPACE, LETTER or 0 of every code point."""
    kinds = bytearray(0x110000)
    for code in range(0x110000):
        sign = chr(code)
        kinds[code] = SPACE if sign.isspace() else LETTER if sign.isalpha() else 0
    return np.frombuffer(bytes(kinds), np.uint8)


@cache
def stop_keys() -> NDArray[np.int64]:
    """int64 (8,): the bytes of each of STOPS as a number, as word_facts packs them."""
    return np.array([int.from_bytes(word.encode(), "big") for word in STOPS], np.int64)


@inlined
def character(address, at):  # type: ignore[no-untyped-def]
    """(code point, bytes) of the UTF-8 character at `at`."""
    first = load_byte(address + at)
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | load_byte(address + at + 1) & 0x3F, 2
    second = load_byte(address + at + 1) & 0x3F
    third = load_byte(address + at + 2) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | load_byte(address + at + 3) & 0x3F, 4


@inlined
def characters_in(word):  # type: ignore[no-untyped-def]
    """How many of the eight bytes of a word do not continue a character."""
    continuing = (word & (~word << np.uint64(1)) & HIGH_BITS) >> np.uint64(7)
    return 8 - np.int64((continuing * LOW_BITS) >> np.uint64(56))


@inlined
def hashed(address, first, last, end):  # type: ignore[no-untyped-def]
    """(hash of bytes [first, last), uint64, their characters); bytes up to `end` may be read."""
    key, characters = START ^ np.uint64(last - first), 0
    at = first
    while at < last:
        size = min(8, last - at)
        if at + 8 <= end:
            word = load_word(address + at) << np.uint64(8 * (8 - size))
        else:
            word = np.uint64(0)
            for place in range(size):
                word |= np.uint64(load_byte(address + at + place)) << np.uint64(8 * (8 - size + place))
        key = (key ^ word) * MIX
        key ^= key >> np.uint64(29)
        characters += characters_in(word) - (8 - size)
        at += 8
    return key, characters


@kernel
def word_facts(address, starts, ends, table, stops, bullets, facts):  # type: ignore[no-untyped-def]
    """Count the words and lines of each text.

    `address`  of the first byte of the array in which the texts are `[starts[i], ends[i])`, int64 (n,)
    `bullets`  int64 (b,): code points that begin a bullet line;  `facts`  int64 (n, FACTS): is filled
    A line counts if it is not blank. STOP_WORDS counts the different ones, in any case.
    """
    for document in range(len(starts)):
        words = characters = letter_words = stop_bits = hashes = ellipses = lines = bullet_lines = ellipsis_lines = 0
        length = key = dots = line_dots = 0
        letters = False
        first = last = -1  # of the line, of what is no space
        at, end = starts[document], ends[document]
        while at <= end:
            code, size = NEWLINE, 1  # behind the text ends its last line
            if at < end:
                code, size = character(address, at)
            at += size
            if table[code] == SPACE:
                if length:
                    words += 1
                    characters += length
                    letter_words += letters
                    if length <= 4:
                        for place in range(len(stops)):
                            if stops[place] == key:
                                stop_bits |= 1 << place
                    length = key = 0
                    letters = False
                dots = 0
                if code == NEWLINE and first >= 0:
                    lines += 1
                    for place in range(len(bullets)):
                        bullet_lines += bullets[place] == first
                    ellipsis_lines += last == ELLIPSIS or line_dots >= 3
                    first = last = -1
                    line_dots = 0
                continue
            length += 1
            letters |= table[code] == LETTER
            key = key << 8 | (code + 32 if 65 <= code <= 90 else code) if length <= 4 and code < 128 else -1
            hashes += code == HASH
            dots = dots + 1 if code == DOT else 0
            ellipses += code == ELLIPSIS or (dots > 0 and dots % 3 == 0)
            if first < 0:
                first = code
            last, line_dots = code, dots
        different = 0
        while stop_bits:
            stop_bits &= stop_bits - 1
            different += 1
        facts[document, WORDS], facts[document, CHARACTERS] = words, characters
        facts[document, LETTER_WORDS], facts[document, STOP_WORDS] = letter_words, different
        facts[document, HASHES], facts[document, ELLIPSES] = hashes, ellipses
        facts[document, LINES], facts[document, BULLETS] = lines, bullet_lines
        facts[document, ELLIPSIS_LINES] = ellipsis_lines
