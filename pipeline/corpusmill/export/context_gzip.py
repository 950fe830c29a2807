"""Gzip members of contexts: the text of context_json.py, compressed number by number instead of byte by byte.

    gzip header | one deflate block: code lengths, symbols | CRC-32 of the text, its length

A deflate stream copies earlier text or spells it. Here a copy begins and ends between numbers: two numbers or more that
came before in this order, found where their pair came last. All other numbers are spelled from a table that has each
number's digits and comma as one word of bits. The Huffman code is the same for every member, so one pass is enough:
digits, commas and distances of contexts hardly differ between vocabularies (measured: Llama 3, o200k, GPT-2, NeoX).

The stream depends on the ids alone: on no library and no batch. Where the vocabulary is above TABLE_IDS, libdeflate
compresses instead.

Price, on contexts of 2,049 ids: less than half the CPU of libdeflate 1, and members of the same size
(`benchmarks/results/gzip_members.json`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import deflate
import numpy as np
from numpy.typing import NDArray

from corpusmill.export.context_json import TABLE_IDS, TOGETHER, write_lists
from corpusmill.kernels.compiled import kernel
from corpusmill.tokens.token_shard import TokenArray

GZIP_HEADER = bytes.fromhex("1f8b08000000000004ff")  # deflate, no flags, time 0, fastest level, unknown system
LIBDEFLATE_LEVEL = 1

# Bits of the symbols, RFC 1951: of the letters of the text and the end, of lengths 3 to 258, of distances.
LETTERS = {ord(letter): 4 for letter in "023456789"} | {ord("1"): 3, ord(","): 2, ord("["): 13, ord("]"): 12, 256: 12}
LENGTHS = (0, 15, 15, 9, 8, 7, 7, 7, 7, 8, 8, 9, 8, 9, 9, 10, 9, 10, 10, 11, 11, 11, 12, 13, 13, 13, 15, 13, 15)
DISTANCES = (0, 14, 14, 7, 9, 10, 8, 7, 5, 5, 4, 4, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 4, 5, 5, 7, 11, 13, 13, 13)
CODE_LENGTHS = (3, 0, 5, 5, 3, 3, 0, 4, 4, 4, 5, 5, 5, 3, 5, 5, 0, 5, 4)  # of the symbols that state all these
CODE_LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
LONGEST_COPY, FARTHEST = 258, 1 << 15
COMMA_BITS = LETTERS[ord(",")]

PAIRS = 1 << 13  # places of pairs that are remembered
SIZE_BITS = 6  # a word of bits has their number in its lowest bits; that of a number then the letters of its text
LETTER_BITS = 4
WORD = 8
MOST_BITS = 32  # of a number, or half a copy


def write_members(contexts: TokenArray, vocabulary_size: int) -> Iterator[bytes]:
    """The gzip member of every row of a contiguous 2-D array of uint16 or uint32 ids below `vocabulary_size`."""
    texts = write_lists(contexts)
    if vocabulary_size > TABLE_IDS:
        yield from (bytes(deflate.gzip_compress(text, LIBDEFLATE_LEVEL)) for text in texts)
        return
    begin, tables = _begin(), (_numbers(vocabulary_size), *_copies())
    width = contexts.shape[1]
    streams = np.empty(TOGETHER * (len(begin[0]) + MOST_BITS // 8 * width + 2 * WORD), np.uint8)
    words, places = np.empty(width, np.uint64), np.empty(width, np.int64)
    pairs, ends = np.empty(PAIRS, np.int32), np.empty(TOGETHER, np.int64)
    for first in range(0, len(contexts), TOGETHER):
        rows = contexts[first : first + TOGETHER]
        _deflate(rows, *begin, *tables, words, places, pairs, streams, ends)
        at = 0
        for end in ends[: len(rows)].tolist():
            text = next(texts)
            yield b"".join((GZIP_HEADER, streams[at:end].data, struct.pack("<II", deflate.crc32(text), len(text))))
            at = end


def _codes(lengths: Sequence[int]) -> list[int]:
    """The canonical Huffman code of each symbol as a word of bits; deflate has its first bit lowest."""
    code, words = 0, [0] * len(lengths)
    for size in range(1, max(lengths) + 1):
        for symbol in (symbol for symbol, length in enumerate(lengths) if length == size):
            words[symbol] = int(f"{code:0{size}b}"[::-1], 2) << SIZE_BITS | size
            code += 1
        code <<= 1
    return words


def _letter_lengths() -> list[int]:
    return [LETTERS.get(symbol, 0) for symbol in range(257)] + list(LENGTHS)


@lru_cache(maxsize=1)
def _begin() -> tuple[NDArray[np.uint8], int, int]:
    """How every stream begins, [ included: whole bytes, and the bits behind them as a word; and how it ends, as a word:
    ] and the end of the block.
    """
    codes, letters = _codes(CODE_LENGTHS), _codes(_letter_lengths())
    words = [_word(1, 1), _word(2, 2), _word(len(LENGTHS), 5), _word(len(DISTANCES) - 1, 5), _word(15, 4)]
    words += [_word(CODE_LENGTHS[symbol], 3) for symbol in CODE_LENGTH_ORDER]
    for length, run in groupby([*_letter_lengths(), *DISTANCES]):
        count = len(list(run))
        while length == 0 and count > 2:
            some = min(count, 138)
            words += [codes[18], _word(some - 11, 7)] if some > 10 else [codes[17], _word(some - 3, 3)]
            count -= some
        words += [codes[length]] * count
    bits, size = _joined([*words, letters[ord("[")]])
    whole = np.frombuffer(bits.to_bytes(size // 8 + 1, "little")[: size // 8], np.uint8).copy()
    ending = _word(*_joined([letters[ord("]")], letters[256]]))
    return whole, _word(bits >> 8 * len(whole), size % 8), ending


def _word(bits: int, size: int) -> int:
    return bits << SIZE_BITS | size


def _joined(words: Sequence[int]) -> tuple[int, int]:
    """Bits and their number."""
    bits = size = 0
    for word in words:
        bits |= word >> SIZE_BITS << size
        size += word % (1 << SIZE_BITS)
    return bits, size


@lru_cache(maxsize=2)
def _numbers(vocabulary_size: int) -> NDArray[np.uint64]:
    """uint64 (ids,): of each number the bits of its digits and comma, how many letters, how many bits."""
    ids = np.arange(vocabulary_size, dtype=np.uint64)
    codes = np.array(_codes(_letter_lengths()), np.uint64)
    bits, size, letters = np.zeros_like(ids), np.zeros_like(ids), np.zeros_like(ids)

    def add(word: Any, where: Any) -> None:
        nonlocal bits, size, letters
        bits |= np.where(where, word >> np.uint64(SIZE_BITS) << size, 0)
        size += np.where(where, word % np.uint64(1 << SIZE_BITS), 0)
        letters += where

    for power in (10**place for place in reversed(range(len(str(TABLE_IDS))))):
        add(codes[ord("0") + (ids // np.uint64(power) % np.uint64(10)).astype(np.int64)], (ids >= power) | (power == 1))
    add(codes[ord(",")], np.ones(len(ids), bool))
    return bits << np.uint64(SIZE_BITS + LETTER_BITS) | letters << np.uint64(SIZE_BITS) | size


@lru_cache(maxsize=1)
def _copies() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Of each length, and of each distance, the code and the extra bits as a word."""
    lengths = _spread(_codes(_letter_lengths())[257:], [max(0, i // 4 - 1) for i in range(28)], 3)
    lengths[LONGEST_COPY] = _codes(_letter_lengths())[-1]
    return lengths, _spread(_codes(DISTANCES), [max(0, i // 2 - 1) for i in range(len(DISTANCES))], 1)


def _spread(codes: Sequence[int], extra: Sequence[int], first: int) -> NDArray[np.uint64]:
    words = [0] * first
    for code, bits in zip(codes, extra, strict=False):
        words += [_word(*_joined([code, _word(more, bits)])) for more in range(1 << bits)]
    return np.array(words, np.uint64)


@kernel
def _deflate(
    contexts: Any, begin: Any, begun: Any, ending: Any, numbers: Any, lengths: Any, distances: Any,
    words: Any, places: Any, pairs: Any, streams: Any, ends: Any,
) -> None:  # fmt: skip
    """The streams of all rows, back to back; ends[i] is where that of row i ends."""
    size_mask, letter_mask = np.uint64((1 << SIZE_BITS) - 1), np.uint64((1 << LETTER_BITS) - 1)
    size_bits, both_bits = np.uint64(SIZE_BITS), np.uint64(SIZE_BITS + LETTER_BITS)
    at, last = np.uint64(0), contexts.shape[1] - 1
    for row in range(len(contexts)):
        ids = contexts[row]
        pairs[:] = -1
        place = np.int64(1)
        for column in range(last + 1):
            words[column], places[column] = numbers[ids[column]], place
            place += np.int64(words[column] >> size_bits & letter_mask)
        for byte in begin:
            streams[at] = byte
            at += np.uint64(1)
        bits, held = np.uint64(begun) >> size_bits, np.uint64(begun) & size_mask
        column = 0
        while column <= last:
            word, size = words[column] >> both_bits, words[column] & size_mask
            copied: Any = 1
            if column + 1 < last:
                pair = _pair(ids, column)
                earlier = np.int64(pairs[pair])
                pairs[pair] = column
                if earlier >= 0 and ids[earlier] == ids[column] and ids[earlier + 1] == ids[column + 1]:
                    distance = places[column] - places[earlier]
                    if distance <= FARTHEST:
                        copied = 2
                        end = places[column] + LONGEST_COPY
                        while (
                            column + copied < last
                            and places[column + copied + 1] <= end
                            and ids[earlier + copied] == ids[column + copied]
                        ):
                            pairs[_pair(ids, column + copied - 1)] = column + copied - 1
                            copied += 1
                        length = lengths[places[column + copied] - places[column]]
                        far = distances[distance]
                        word = length >> size_bits | far >> size_bits << (length & size_mask)
                        size = (length & size_mask) + (far & size_mask)
            elif column == last:
                size -= np.uint64(COMMA_BITS)
                word &= (np.uint64(1) << size) - np.uint64(1)
                word |= np.uint64(ending) >> size_bits << size
                size += np.uint64(ending) & size_mask
            bits |= word << held
            held += size
            for byte in range(WORD):
                streams[at + np.uint64(byte)] = np.uint8(bits >> np.uint64(8 * byte))
            at += held >> np.uint64(3)
            bits >>= held & np.uint64(56)
            held &= np.uint64(7)
            column += copied
        at += np.uint64(1) if held else np.uint64(0)
        ends[row] = at


@kernel
def _pair(ids: Any, column: Any) -> Any:
    """Where the place of a number and the next one is remembered."""
    both = np.uint64(ids[column]) << np.uint64(32) | np.uint64(ids[column + 1])
    return np.int64((both * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(51))
