"""Finds characters of texts by their Unicode properties (numbers, and what normalization may change), and the documents
that hold one of a tokenizer's added or special strings.

Uses Python's tables. Characters that these do not have may be anything in newer tables: nothing is assumed of them.
Assigned characters are stable: Unicode never changes how they normalize.

Price of strings: a nanosecond a byte of text, whatever their number, unless text often begins as a string does.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import inlined, kernel, load_byte, load_word, zero_low_bytes

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

NUMBER, UNASSIGNED = 1, 2
CHARACTERS = sys.maxunicode + 1
PLANES = range(0x40000), range(0xE0000, 0xF0000)  # those between are empty, the others all for private use
WORD_BYTES = 8
NOT_ASCII = np.uint64(0x8080808080808080)
ONES = np.uint64(0x0101010101010101)
HANGUL_VOWELS_AND_TAILS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))  # they compose by rule, not by table


@cache
def number_kinds() -> NDArray[np.uint8]:
    """uint8 (0x110000,): NUMBER (Unicode's Nd, Nl, No), UNASSIGNED, or 0."""
    kinds = {"Nd": NUMBER, "Nl": NUMBER, "No": NUMBER, "Cn": UNASSIGNED}
    by_character = np.full(CHARACTERS, UNASSIGNED, np.uint8)
    by_character[PLANES[-1].stop :] = 0
    for plane in PLANES:
        categories = map(unicodedata.category, map(chr, plane))
        by_character[plane.start : plane.stop] = [kinds.get(category, 0) for category in categories]
    return by_character


@cache
def changing_kinds(form: Form) -> NDArray[np.uint8]:
    """uint8 (0x110000,): 0 for characters that normalization does not change in any context of others with a 0.

    Those are not decomposed, do not move (combining class 0) and do not compose with preceding characters.
    """
    kinds = np.ones(CHARACTERS, np.uint8)
    composing = set(HANGUL_VOWELS_AND_TAILS)
    for number in np.flatnonzero(number_kinds() != UNASSIGNED).tolist():
        character = chr(number)
        parts = unicodedata.decomposition(character).split()
        if len(parts) > 1 and not parts[0].startswith("<"):
            composing.update(int(part, 16) for part in parts[1:])
        kinds[number] = bool(unicodedata.combining(character)) or not unicodedata.is_normalized(form, character)
    kinds[sorted(composing)] = 1
    return kinds


def holding_kind(texts: list[bytes], kinds: NDArray[np.uint8], kind: int) -> NDArray[np.bool_]:
    """bool per text (UTF-8): whether it holds a character of `kind`; ASCII has no such character."""
    held = np.zeros(len(texts), np.bool_)
    text = np.frombuffer(b"".join([*texts, bytes(WORD_BYTES)]), np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    _mark_kind(text, text.ctypes.data, ends, kinds, kind, held)
    return held


def runs_of_kind(texts: list[bytes], kinds: NDArray[np.uint8], kind: int) -> NDArray[np.int64]:
    """(text, start, end) of each run of characters of a kind in texts (valid UTF-8), with the character before it."""
    text = np.frombuffer(b"".join(texts), np.uint8)
    runs: NDArray[np.int64] = _runs(text, np.cumsum([len(text) for text in texts], dtype=np.int64), kinds, kind)
    return runs


def cut_at_numbers(
    text: NDArray[np.uint8], ends: NDArray[np.int64], *, each: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(bounds of the pieces, pieces up to the end of each document) of documents (valid UTF-8) that end at `ends`.

    Piece i is `text[bounds[i] : bounds[i + 1]]`. `each`: every number is a piece; else numbers in a row are one.
    """
    bounds = np.zeros(len(text) + 1, np.int64)
    counts = np.zeros(len(ends), np.int64)
    pieces = _cut(text, ends, number_kinds(), each, bounds, counts)
    return bounds[: pieces + 1].copy(), counts


@inlined
def character_at(text: Any, at: Any) -> Any:
    """(number, bytes) of the character at a place of valid UTF-8."""
    lead = np.uint32(text[at])
    if lead < 0x80:
        return lead, 1
    second = np.uint32(text[at + 1]) & np.uint32(0x3F)
    if lead < 0xE0:
        return (lead & np.uint32(0x1F)) << np.uint32(6) | second, 2
    third = np.uint32(text[at + 2]) & np.uint32(0x3F)
    if lead < 0xF0:
        return (lead & np.uint32(0x0F)) << np.uint32(12) | second << np.uint32(6) | third, 3
    fourth = np.uint32(text[at + 3]) & np.uint32(0x3F)
    high = (lead & np.uint32(0x07)) << np.uint32(18) | second << np.uint32(12)
    return high | third << np.uint32(6) | fourth, 4


@kernel
def _mark_kind(text: Any, address: Any, ends: Any, kinds: Any, kind: Any, held: Any) -> None:
    """Reads eight bytes behind the last document."""
    end = np.int64(0)
    for document in range(len(ends)):
        at, end = end, ends[document]
        while at < end:
            others = load_word(address + at) & NOT_ASCII
            at += zero_low_bytes(others) if others else WORD_BYTES
            if at >= end or not others:
                continue
            character, size = character_at(text, at)
            if character < len(kinds) and kinds[character] == kind:
                held[document] = True
                at = end
            else:
                at += size


@kernel
def _runs(text: Any, ends: Any, kinds: Any, kind: Any) -> Any:
    runs = np.empty((len(text), 3), np.int64)
    count = 0
    start = np.int64(0)
    for document in range(len(ends)):
        end = ends[document]
        before, at, inside = start, start, False
        while at < end:
            character, size = character_at(text, at)
            is_kind = kinds[character] == kind
            if is_kind and not inside:
                runs[count, 0], runs[count, 1] = document, before - start
                count += 1
            if is_kind:
                runs[count - 1, 2] = at + size - start
            inside = is_kind
            before = at
            at += size
        start = end
    return runs[:count].copy()


@kernel
def _cut(text: Any, ends: Any, kinds: Any, each: Any, bounds: Any, counts: Any) -> Any:
    pieces = 0
    at = 0
    for document in range(len(ends)):
        start, end = at, ends[document]
        was_number = False
        while at < end:
            character, size = character_at(text, at)
            is_number = kinds[character] == NUMBER
            if at > start and (is_number != was_number or (each and is_number)):
                pieces += 1
                bounds[pieces] = at
            was_number = is_number
            at += size
        if at > start:
            pieces += 1
            bounds[pieces] = at
        counts[document] = pieces
    return pieces


PREFIX_BYTES = 8  # strings with the same first eight bytes are compared one by one


class StringFinder:
    """Finds documents that hold at least one of some strings, as bytes, anywhere."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = sorted({string.encode() for string in strings if string})
        prefixes = sorted({string[:PREFIX_BYTES] for string in self._strings})
        self._firsts = np.array(sorted({prefix[0] for prefix in prefixes}), np.uint64) * ONES
        self._words = np.array([int.from_bytes(prefix, "little") for prefix in prefixes], np.uint64)
        self._masks = np.array([(1 << 8 * len(prefix)) - 1 for prefix in prefixes], np.uint64)
        firsts = np.array([prefix[0] for prefix in prefixes], np.int64)
        self._bounds = np.searchsorted(firsts, np.arange(257)).astype(np.int64)

    def __bool__(self) -> bool:
        return bool(self._strings)

    def holding(self, texts: list[bytes]) -> NDArray[np.bool_]:
        """bool per text: whether it holds one of the strings."""
        held = np.zeros(len(texts), np.bool_)
        if not self._strings:
            return held
        joined = np.frombuffer(b"".join([*texts, bytes(PREFIX_BYTES)]), np.uint8)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        mark_prefixes(joined.ctypes.data, ends, self._firsts, self._bounds, self._words, self._masks, held)
        for place in np.flatnonzero(held).tolist():
            held[place] = any(string in texts[place] for string in self._strings)
        return held


@kernel
def mark_prefixes(text: Any, ends: Any, firsts: Any, bounds: Any, words: Any, masks: Any, held: Any) -> None:
    """Set `held` for documents in which some prefix begins; reads eight bytes behind the last document.

    `firsts` (uint64) are the bytes with which prefixes begin, each in all eight bytes of a word;
    `words[bounds[b] : bounds[b + 1]]` are the prefixes that begin with byte b, `masks` mark which of their bytes count.
    """
    end = np.int64(0)
    for document in range(len(ends)):
        at, end = end, ends[document]
        while at < end and not held[document]:
            word, begins = load_word(text + at), np.uint64(0)
            for first in firsts:  # the lowest high bit that is set marks the first byte that is `first`
                others = word ^ first
                begins |= (others - ONES) & ~others & NOT_ASCII
            if not begins:
                at += WORD_BYTES
                continue
            at += zero_low_bytes(begins)
            if at >= end:
                break
            byte, word = load_byte(text + at), load_word(text + at)
            for k in range(bounds[byte], bounds[byte + 1]):
                if word & masks[k] == words[k]:
                    held[document] = True
            at += 1
