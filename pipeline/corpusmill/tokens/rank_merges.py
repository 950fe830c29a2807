"""A .tiktoken file as a tokenizer.json of the same ids, for the engines that read no ranks like these.

tiktoken joins, of all neighbours whose bytes together are a token, those of the lowest rank, the leftmost first, and
takes a piece that is a token as it is. A tokenizer.json lists pairs instead, and has `ignore_merges` for whole pieces.

The pair of a token is the last two parts to which its bytes alone are joined. No other pair ever becomes it: while a
stretch of text is not joined to what is beside it, its own pairs are joined in the order in which they would be without
the rest, whatever their ranks (Llama 3 has tokens that are made by way of higher ranks than their own). A token whose
bytes alone are not joined down to two parts is only ever a whole piece.

Price: 0.3 s for 128,000 tokens, and gigatoken then needs as long to read the JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel
from corpusmill.tokens.ranks import Spelling, pattern_of
from corpusmill.tokens.references import BYTE_OF_CHARACTER

LONGEST = 1024  # bytes of a token: finding its pair takes time by the square of them
ALONE, UNREACHED = 0, -1
LOW = (1 << 31) - 1  # bits for a token's place
UTF8_BYTES = {*range(0xC0), *range(0xC2, 0xF5)}
CHARACTERS = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}
UNESCAPED = CHARACTERS | {ord('"'): "\0", ord("\\"): "\1"}
"""The characters of bytes, but others for the two that JSON escapes, until the whole text is made."""


def pre_tokenizer_of(expression: str) -> dict[str, Any]:
    """A tokenizer.json's pre_tokenizer that cuts as the expression of a .tiktoken file does.

    gigatoken refuses an expression that it does not know, such as cl100k_base's. No other says the same: its first part
    for whitespace takes all of it at the end of a text, line breaks and what is behind them.
    """
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    if expression == pattern_of("r50k_base"):
        return bytes_only | {"use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, bytes_only]}


@dataclass(frozen=True)
class Pairs:
    """The tokens in the order of their ids, and the pair that becomes each; all int64 (tokens,).

    halves  bytes of the pair's left side; ALONE for a byte, or UNREACHED
    sides   the place of that side of the pair that comes later; -1 without a pair
    """

    spelling: Spelling
    halves: NDArray[np.int64]
    sides: NDArray[np.int64]


def pairs_of(spelling: Spelling) -> Pairs | str:
    """The pairs, or why (str) no list of them gives tiktoken's ids."""
    order = np.argsort(spelling.ids, kind="stable")
    ids, starts, lengths = spelling.ids[order], spelling.starts[order], spelling.lengths[order]
    if len(np.unique(ids)) < len(ids):
        return "two of its tokens have one id"
    if len(ids) and ids[-1] > 4 * len(ids) + (1 << 20):
        return "its largest id is far above the number of its tokens, which gigatoken has a table of"
    if not len(ids) or lengths.min() < 1 or lengths.max() > LONGEST:
        return f"its tokens are not all of 1 to {LONGEST:,} bytes"
    if UTF8_BYTES - set(spelling.text[starts[lengths == 1]].tolist()):
        return "it has no token for a byte that text may hold"
    text = np.array(spelling.text)  # a copy: numba compiles read-only arrays separately
    return Pairs(Spelling(ids, starts, lengths, text), *_halves(text, starts, lengths))


def as_published(spelling: Spelling, pairs: Pairs) -> bool:
    """Whether ids are 0, 1, 2 ... in order, the bytes' the first 256, and those of a merge's sides below its own.

    Of other files gigatoken's own reader leaves bytes of ids above 255 unmerged without an error, or panics.
    """
    places = np.arange(len(pairs.halves))
    return bool(
        len(places) >= 256
        and (spelling.ids == places).all()
        and spelling.lengths[:256].max() == 1
        and (pairs.halves[256:] > 0).all()
        and (pairs.sides < places).all()
    )


def json_of(pairs: Pairs, pre_tokenizer: dict[str, Any]) -> str:
    """The tokenizer.json, without special tokens. Its lists are written as text: as objects they would take three times
    as long.
    """
    spelling = pairs.spelling
    characters = spelling.text.tobytes().decode("latin-1").translate(UNESCAPED)
    ends = spelling.starts + spelling.lengths
    words = [characters[start:end] for start, end in zip(spelling.starts.tolist(), ends.tolist(), strict=True)]
    vocabulary = ",".join([f'"{word}":{number}' for word, number in zip(words, spelling.ids.tolist(), strict=True)])
    halves = zip(words, pairs.halves.tolist(), strict=True)
    merges = ",".join([f'["{word[:half]}","{word[half:]}"]' for word, half in halves if half > 0])
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
    }
    around: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": model,
    }
    lists = f'"vocab": {{{vocabulary}}}, "merges": [{merges}]}}}}'.replace("\0", '\\"').replace("\1", "\\\\")
    return f"{json.dumps(around)[:-2]}, {lists}"


@kernel
def _halves(text: Any, starts: Any, lengths: Any) -> Any:
    """Pairs.halves and Pairs.sides. Tokens are in the order of their ranks, differ, and have at least a byte each."""
    count, longest = len(starts), np.max(lengths)
    size = np.int64(1)
    while size < 2 * count:
        size *= 2
    table = np.full(size, -1, np.int64)  # tokens, and the high bits of the hashes of their bytes
    for token in range(count):
        value = _hash(text, starts[token], starts[token] + lengths[token])
        slot = value & (size - 1)
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = value & ~LOW | token
    halves, sides = np.full(count, ALONE, np.int64), np.full(count, -1, np.int64)
    bounds, ranks = np.empty(longest + 1, np.int64), np.empty(longest, np.int64)
    for token in range(count):
        if lengths[token] > 1:
            halves[token] = _half(text, starts, lengths, table, token, bounds, ranks)
        if halves[token] > 0:
            start, middle, end = starts[token], starts[token] + halves[token], starts[token] + lengths[token]
            left = _find(text, starts, lengths, table, start, middle)
            sides[token] = max(left, _find(text, starts, lengths, table, middle, end))
    return halves, sides


@kernel
def _half(text: Any, starts: Any, lengths: Any, table: Any, token: Any, bounds: Any, ranks: Any) -> Any:
    """Joins the bytes of a token down to two parts, or as far as that goes; ranks[i] is that of parts i and i + 1."""
    start, parts = starts[token], lengths[token]
    for place in range(parts + 1):
        bounds[place] = start + place
    for place in range(parts - 1):
        ranks[place] = _find(text, starts, lengths, table, bounds[place], bounds[place + 2])
    while parts > 2:
        best = np.int64(-1)
        for place in range(parts - 1):
            if ranks[place] >= 0 and (best < 0 or ranks[place] < ranks[best]):
                best = np.int64(place)
        if best < 0:
            return UNREACHED
        parts -= 1
        for place in range(best + 1, parts + 1):
            bounds[place] = bounds[place + 1]
        for place in range(best, parts - 1):
            ranks[place] = ranks[place + 1]
        for place in range(best - (best > 0), best + (best < parts - 1)):
            ranks[place] = _find(text, starts, lengths, table, bounds[place], bounds[place + 2])
    return bounds[1] - start


@kernel
def _hash(text: Any, start: int, end: Any) -> Any:
    """FNV-1a of bytes, without the sign; the low bits depend on the high ones."""
    value = np.uint64(0xCBF29CE484222325)
    for place in range(start, end):
        value = (value ^ np.uint64(text[place])) * np.uint64(0x100000001B3)
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@kernel
def _find(text: Any, starts: Any, lengths: Any, table: Any, start: int, end: Any) -> Any:
    """The token of bytes [start, end), or -1."""
    value = _hash(text, start, end)
    slot = value & (len(table) - 1)
    while table[slot] >= 0:
        token = table[slot] & LOW
        if (table[slot] ^ value) <= LOW and lengths[token] == end - start:
            at = starts[token]
            same = True
            for place in range(end - start):
                same &= text[at + place] == text[start + place]
            if same:
                return token
        slot = (slot + 1) & (len(table) - 1)
    return -1
