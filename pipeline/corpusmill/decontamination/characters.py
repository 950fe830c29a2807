"""The part that each character plays in words: one number per code point, from Python's Unicode tables.

A character is replaced by the compatibility decomposition (NFKD) of its case folding, character by character, so that
NFC, NFD, NFKC and NFKD of a text, in any case, give the same words:

    bits 0 to 20    the character itself, folded; or where its expansion begins in `expansions`
    bits 21 to 24   its kind: LETTER, MARK, ...
    bits 25 to 31   how many characters its expansion has; 0: one, in bits 0 to 20

The table depends on the Unicode version of the Python that made it, so it is stored with the seeds: a text is always
read with the table that the benchmarks were read with.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

CODE_POINTS = 0x110000
VALUE_BITS, KIND_BITS = 21, 4
VALUE_MASK, KIND_MASK = (1 << VALUE_BITS) - 1, (1 << KIND_BITS) - 1
LENGTH_SHIFT = VALUE_BITS + KIND_BITS

KINDS = 10
OTHER, SPACE, NEWLINE, HYPHEN, APOSTROPHE, NUMBER_MARK, LETTER, DIGIT, CHARACTER, MARK = range(KINDS)
IGNORED = -1  # an expansion of no characters, whose only entry is NOTHING
NOTHING = (1 << 32) - 1

_KINDS = {
    **dict.fromkeys("-\u00ad\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", HYPHEN),  # including the soft hyphen
    **dict.fromkeys("'\u2018\u2019\u02bc\u2032\uff07", APOSTROPHE),
    **dict.fromkeys("\n\r\v\f\u0085\u2028\u2029", NEWLINE),
    **dict.fromkeys("0123456789", DIGIT),
    **dict.fromkeys(",.", NUMBER_MARK),
    "\t": SPACE,
}

# Scripts that put no space between words: each character is a word, together with the marks behind it.
SCRIPTS_BY_CHARACTERS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x2E80, 0x2FDF),  # radicals of Han
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0xA4CF),  # Han, Yi
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAADF),
    (0xF900, 0xFAFF),
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),
)

_BY_CHARACTERS = bytearray(CODE_POINTS)
for _first, _last in SCRIPTS_BY_CHARACTERS:
    _BY_CHARACTERS[_first : _last + 1] = b"\1" * (_last + 1 - _first)


def fold(character: str) -> str:
    """The characters that replace a character in a word."""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())


def kind_of(character: str) -> int:
    """The kind of a character, one of KINDS, or IGNORED."""
    kind = _KINDS.get(character)
    if kind is not None:
        return kind
    category = unicodedata.category(character)
    if category[0] == "M":
        return IGNORED if _is_variation_selector(character) else MARK
    if category[0] in "LN":
        return CHARACTER if _BY_CHARACTERS[ord(character)] and category != "Nd" else LETTER
    return {"Zs": SPACE, "Cf": IGNORED}.get(category, OTHER)


def _is_variation_selector(character: str) -> bool:
    return 0xFE00 <= ord(character) <= 0xFE0F or 0xE0100 <= ord(character) <= 0xE01EF or character == "\u034f"


@cache
def character_table() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """`table` uint32 (CODE_POINTS,) and `expansions` uint32 (n,): table entries of single characters, as above.

    Surrogates, which UTF-8 never holds, and unassigned code points are OTHER.
    """
    table = np.zeros(CODE_POINTS, np.uint32)
    expansions: list[int] = []
    for code in range(CODE_POINTS):
        character = chr(code)
        if unicodedata.category(character) in ("Cn", "Co", "Cs"):
            continue
        folded = character if character in _KINDS else fold(character)
        if len(folded) == 1 and kind_of(folded) != IGNORED:
            table[code] = _entry(folded)
        else:
            parts = [_entry(part) for part in folded if kind_of(part) != IGNORED]
            table[code] = max(len(parts), 1) << LENGTH_SHIFT | len(expansions)
            expansions += parts or [NOTHING]
    return table, np.array(expansions, np.uint32)


def _entry(character: str) -> int:
    return kind_of(character) << VALUE_BITS | ord(character)
