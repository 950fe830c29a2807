"""Splits texts into words: the hash of each word, and its place in the text's bytes. There are two rules, each a table.

**Equivalent spellings** (character_table), for benchmark items. A word is a run of letters, digits and marks, folded; a
character of a script without spaces is a word by itself, with the marks behind it. A word continues across

* a hyphen or an apostrophe between two letters (well-known, it's),
* a comma or a point between two digits (80,000),
* a hyphen at the end of a line, with the space behind it and the next line's indentation.

So line breaks, missing punctuation, typography, markdown and case change no word. Characters outside words are skipped.

The part that each character plays in words is one number per code point, from Python's Unicode tables. A character is
replaced by the compatibility decomposition (NFKD) of its case folding, character by character, so that NFC, NFD, NFKC
and NFKD of a text, in any case, give the same words:

    bits 0 to 20    the character itself, folded; or where its expansion begins in `expansions`
    bits 21 to 24   its kind: LETTER, MARK, ...
    bits 25 to 31   how many characters its expansion has; 0: one, in bits 0 to 20

**Runs of letters** (letter_table), for near-duplicates. The text is normalised to NFC, then case folded
(`str.casefold`), and not normalised again; it is cut at every character whose category is neither L, M nor Nd. A letter
of a script without spaces is a word by itself, with the marks behind it; marks keep their order, and those with no
letter before them begin a word. The table folds case; `in_normal_form` normalises the few texts that a check of their
characters does not clear.

A table depends on the Unicode version of the Python that made it, so it is stored with the seeds or named in a
step's settings: texts are compared only if they were read with one table.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import inlined, kernel, load_byte, load_word

CODE_POINTS = 0x110000
VALUE_BITS, KIND_BITS = 21, 4
VALUE_MASK, KIND_MASK = (1 << VALUE_BITS) - 1, (1 << KIND_BITS) - 1
LENGTH_SHIFT = VALUE_BITS + KIND_BITS

Places = NDArray[np.uint64]

KINDS = 11
OTHER, SPACE, NEWLINE, HYPHEN, APOSTROPHE, NUMBER_MARK, LETTER, DIGIT, CHARACTER, MARK, ORDERED_MARK = range(KINDS)
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
    (0xFF66, 0xFF9F),  # halfwidth Katakana
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


ASSIGNED = (*range(0x40000), *range(0xE0000, 0xE1000))  # planes with characters of their own


@cache
def letter_table() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The tables, as of character_table, of the second rule, for texts in NFC."""
    table, expansions = np.zeros(CODE_POINTS, np.uint32), list[int]()
    for code, character in zip(ASSIGNED, map(chr, ASSIGNED), strict=True):
        folded = character.casefold()
        if len(folded) == 1:
            table[code] = _letter_entry(folded)
        else:
            table[code] = len(folded) << LENGTH_SHIFT | len(expansions)
            expansions += map(_letter_entry, folded)
    return table, np.array(expansions, np.uint32)


def _letter_entry(character: str) -> int:
    code, category = ord(character), unicodedata.category(character)
    if category[0] == "L":
        kind = CHARACTER if _BY_CHARACTERS[code] else LETTER
    else:
        kind = ORDERED_MARK if category[0] == "M" else LETTER if category == "Nd" else OTHER
    return kind << VALUE_BITS | code


def _span(text: NDArray[np.uint8], starts: Places, ends: Places) -> tuple[int, int]:
    """Where the first of some texts begins, and the last ends; ValueError if raw addresses must not follow them."""
    in_order = not len(starts) or bool((starts <= ends).all() and (ends[:-1] <= starts[1:]).all())
    base, stop = (int(starts[0]), int(ends[-1])) if len(starts) else (0, 0)
    if not in_order or stop > len(text) or stop - base > LARGEST_BATCH or not text.flags.c_contiguous:
        raise ValueError(f"{len(starts):,} texts in bytes {base:,} to {stop:,} of {len(text):,}")
    return base, stop


_NOT_CLEARED = 255


@cache
def _normal_form_table() -> NDArray[np.uint8]:
    """uint8 (CODE_POINTS,): the canonical combining class of each character; _NOT_CLEARED if NFC may change it, because
    it is not in NFC by itself or may be composed with a character before it.
    """
    table = np.zeros(CODE_POINTS, np.uint8)
    table[[*ASSIGNED]] = [*map(unicodedata.combining, map(chr, ASSIGNED))]
    for code in ASSIGNED:
        parts = unicodedata.decomposition(chr(code)).split()
        if parts and parts[0][0] != "<":
            table[code] = table[code] if unicodedata.normalize("NFC", chr(code)) == chr(code) else _NOT_CLEARED
            table[int(parts[-1], 16)] = _NOT_CLEARED if len(parts) == 2 else table[int(parts[-1], 16)]
    table[0x1161:0x1176] = table[0x11A8:0x11C3] = _NOT_CLEARED  # of Hangul, which is composed by arithmetic
    return table


def in_normal_form(text: NDArray[np.uint8], starts: Places, ends: Places) -> tuple[NDArray[np.uint8], Places, Places]:
    """The same texts in NFC: unchanged if all are, else copied. ValueError as of WordFinder.find."""
    _span(text, starts, ends)
    places = [bounds.astype(np.int64) for bounds in (starts, ends)]
    cleared = np.empty(len(starts), np.bool_)
    _clear(text.ctypes.data, *places, _normal_form_table(), cleared)
    if cleared.all():
        return text, starts, ends
    texts = [text[first:last].tobytes() for first, last in zip(*(bounds.tolist() for bounds in places), strict=True)]
    for at in np.flatnonzero(~cleared).tolist():
        texts[at] = unicodedata.normalize("NFC", texts[at].decode()).encode()
    last = np.cumsum([len(of) for of in texts], dtype=np.uint64)
    return np.frombuffer(b"".join(texts), np.uint8), np.concatenate([np.zeros(1, np.uint64), last[:-1]]), last


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
    table[:, ORDERED_MARK] = _INSIDE | _PART | _FIRST
    for state in (_INSIDE, _CHARACTER):
        table[state, ORDERED_MARK] = state | _PART
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
_NOT_ASCII = np.uint64(0x8080808080808080)


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
        base, stop = _span(text, starts, ends)
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


@kernel
def _clear(address: Any, starts: Any, ends: Any, table: Any, cleared: Any) -> None:
    """Whether each text is in NFC by the quick check of Unicode's annex 15: combining classes do not fall, and no
    character is one that NFC may change.
    """
    for i in range(len(starts)):
        at, stop, before = starts[i], ends[i], np.int64(0)
        cleared[i] = True
        while at < stop:
            if at + 8 <= stop and load_word(address + at) & _NOT_ASCII == np.uint64(0):
                at, before = at + 8, np.int64(0)
                continue
            code, size = load_byte(address + at), np.int64(1)
            if code >= 0x80:
                code, size = _code_point(address, at, stop)
            then = np.int64(table[code])
            if then == _NOT_CLEARED or (then and then < before):
                cleared[i] = False
                break
            at, before = at + size, then


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
    address: Any, starts: Any, ends: Any, table: Any, expansions: Any, hashes: Any, word_begins: Any, word_ends: Any,
    first: Any,
) -> None:  # fmt: skip
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
