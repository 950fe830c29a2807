"""Texts to ids, piece by piece: cutting, the table of pieces, BPE.

    slots   (word, row + 1)                    uint64 [SLOTS, 2], by hash; row + 1 is 0 where the slot is free
            word of a short piece              up to 7 bytes as they are, in the highest byte 8 + their number
            word of a longer one               its hash >> 2, + 1 << 62; its bytes are compared with its key
            + 1 << 63                          where a mark comes before it that is not in the text
    rows    (end of its key, end of its ids)   int64 [ROWS + 1, 2]; row r's begin where row r - 1's end
    pairs   left << 42 | right << 21 | rank    uint64 [a power of 2], by hash of the two sides; ABSENT where it is free

A token is a number below 2**21 here, its place in the vocabulary, so that a merge is one word; `numbers` has its id.

Merging is that of `tokenizers`: of all pairs that have a merge, that of the lowest rank is joined, and of several the
leftmost. A heap of rank << 32 | place finds it; entries of pairs that no longer exist are skipped.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from corpusmill.kernels.compiled import inlined, kernel, load_byte, load_word
from corpusmill.tokens.characters import character_at
from corpusmill.tokens.fitness import MOST_TOKENS

SPACE = 0x20
START = 256  # stands for the byte before a stretch of text
CUT, MAY_BE_ADDED = 1, 2
NO_TOKEN = 0xFFFFFFFF
ABSENT = np.uint64(0xFFFFFFFFFFFFFFFF)
TOKEN_BITS = 21  # of MOST_TOKENS
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio

SLOTS = 1 << 20
PROBES = 64  # a piece without a free slot this near is not kept, so that crafted words cannot make every search long
FEW = 32  # up to this many symbols, scanning them all finds the lowest merge sooner than a heap
KEPT_BYTES = 64  # longer pieces rarely repeat
PADDING = 8  # an 8-byte word that begins in a text may end after it


@kernel
def encode_texts(joined: Any, ends: Any, prepends: Any, cutting: Any, merging: Any, table: Any) -> Any:
    """(ids of all texts back to back, ids of each) of texts that end at `ends`, PADDING bytes behind them."""
    cuts, trie, added_ids = cutting
    slots, rows, keys, ids, _size = table
    numbers, singles = merging[0], merging[1]  # a character of one byte has the number of that byte
    text, kept = np.int64(joined.ctypes.data), np.int64(keys.ctypes.data)
    total = np.int64(len(joined) - PADDING)
    tokens = np.empty(2 * total, np.uint32)  # a token per byte, and a mark before each stretch of text
    lengths = np.empty(len(ends), np.int64)
    symbols = np.empty((total + 1, 4), np.int64)
    heap = [np.uint64(0)]
    place, at = np.int64(0), np.int64(0)
    for document in range(len(ends)):
        end, first = ends[document], place
        start, marked, before = at, prepends, np.int64(START)
        while start < end:
            kind, number, size = np.uint8(CUT), np.int64(-1), np.int64(0)
            if at < end:
                byte = load_byte(text + at)
                kind = cuts[before, byte]
                if kind == 0:
                    before = byte
                    at += 1
                    continue
                before = byte
                if kind & MAY_BE_ADDED:
                    number, size = _added_at(text, at, end, trie)
            ends_piece = at > start and (kind & CUT or number >= 0)
            if ends_piece and at - start == 1 and not marked and singles[load_byte(text + start)] != NO_TOKEN:
                tokens[place] = numbers[singles[load_byte(text + start)]]
                place += 1
                start = at
            elif ends_piece:
                row, slot, word = _look_up(text + start, at - start, marked, slots, rows, kept)
                if row >= 0:
                    for i in range(rows[row, 1], rows[row + 1, 1]):
                        tokens[place] = ids[i]
                        place += 1
                else:
                    first_new = place
                    place = _merge(joined, start, at, marked, merging, symbols, heap, tokens, place)
                    _keep(joined, start, at, tokens[first_new:place], word, slot, table)
                start, marked = at, False
            if number >= 0:
                tokens[place] = added_ids[number]
                place += 1
                at += size
                start, marked, before = at, prepends, np.int64(START)
            elif at < end:
                at += 1
        lengths[document] = place - first
    return tokens[:place].copy(), lengths


@kernel
def _added_at(text: Any, at: Any, end: Any, trie: Any) -> Any:
    """(number of the longest string at a place, its bytes); (-1, 0) if there is none."""
    number, size = np.int64(-1), np.int64(0)
    node, place = np.int64(0), at
    while place < end:
        byte = load_byte(text + place)
        node = np.int64(trie[node, 1])
        while node and trie[node, 0] != byte:
            node = np.int64(trie[node, 2])
        if node == 0:
            break
        place += 1
        if trie[node, 3] >= 0:
            number, size = np.int64(trie[node, 3]), place - at
    return number, size


@inlined
def _look_up(text: Any, length: Any, marked: Any, slots: Any, rows: Any, keys: Any) -> Any:
    """(a piece's row or -1, a free slot for it or -1, its word)."""
    word = _piece_word(text, length, marked)
    hashed = word * FACTOR
    slot, row = np.int64((hashed ^ hashed >> np.uint64(32)) & np.uint64(SLOTS - 1)), np.int64(-1)
    left = PROBES if length <= KEPT_BYTES else 0
    while left and row < 0 and slots[slot, 1]:
        row = np.int64(slots[slot, 1]) - 1
        key = rows[row, 0]
        if slots[slot, 0] != word or (
            length >= 8 and (rows[row + 1, 0] - key != length or not _equal(text, keys + key, length))
        ):
            slot, row = (slot + 1) & np.int64(SLOTS - 1), np.int64(-1)
            left -= 1
    return row, slot if left else np.int64(-1), word


@inlined
def _piece_word(text: Any, length: Any, marked: Any) -> Any:
    """A piece's word in `slots`."""
    if length < 8:
        word = _word(text, length) | np.uint64(8 + length) << np.uint64(56)
    else:
        word = np.uint64(length)
        for i in range(0, min(length, KEPT_BYTES), 8):
            word = (word ^ _word(text + i, length - i)) * FACTOR
            word ^= word >> np.uint64(32)
        word = word >> np.uint64(2) | np.uint64(1) << np.uint64(62)
    return word | np.uint64(marked) << np.uint64(63)


@kernel
def _keep(joined: Any, start: Any, end: Any, tokens: Any, word: Any, slot: Any, table: Any) -> None:
    """Put a piece with its ids into a free slot (-1: none), or empty the table if it is full."""
    if slot < 0:
        return
    slots, rows, keys, ids, size = table
    row = size[0]
    key, first = rows[row, 0], rows[row, 1]
    key_end, id_end = key + (end - start if end - start >= 8 else 0), first + len(tokens)
    if row + 1 == len(rows) or key_end + PADDING > len(keys) or id_end > len(ids):
        slots[:] = 0
        size[0] = 0
        return
    if key_end > key:
        keys[key:key_end] = joined[start:end]
    ids[first:id_end] = tokens
    rows[row + 1, 0], rows[row + 1, 1] = key_end, id_end
    slots[slot, 0], slots[slot, 1] = word, np.uint64(row + 1)
    size[0] = row + 1


@inlined
def _equal(text: Any, other: Any, length: Any) -> Any:
    """Whether the texts at two addresses are equal."""
    i = np.int64(0)
    while i < length and _word(text + i, length - i) == _word(other + i, length - i):
        i += 8
    return i >= length


@inlined
def _word(address: Any, length: Any) -> Any:
    """The eight bytes at an address, those from `length` on as 0."""
    word = load_word(address)
    if length < 8:
        word &= (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
    return word


@kernel
def fill_pairs(merges: Any, ranks: Any) -> Any:
    """`pairs` of merges (left, right), uint64 (merges, 2), and their ranks; of equal ones the last counts."""
    slots = 2
    while slots < len(merges) * 3 // 2:
        slots *= 2
    pairs = np.full(slots, ABSENT, np.uint64)
    for place in range(len(merges)):
        pair = merges[place, 0] << np.uint64(TOKEN_BITS) | merges[place, 1]
        pairs[_pair_slot(pair, pairs)] = pair << np.uint64(TOKEN_BITS) | np.uint64(ranks[place])
    return pairs


@inlined
def _pair_slot(pair: Any, pairs: Any) -> Any:
    """The slot of a pair, or the free slot for it."""
    hashed = pair * FACTOR
    last = np.int64(len(pairs) - 1)
    slot = np.int64(hashed >> np.uint64(32)) & last
    while pairs[slot] != ABSENT and pairs[slot] >> np.uint64(TOKEN_BITS) != pair:
        slot = (slot + 1) & last
    return slot


@kernel
def _merge(
    joined: Any, start: Any, end: Any, marked: Any, merging: Any, symbols: Any, heap: Any, tokens: Any, place: Any
) -> Any:
    """Encode a piece: write its ids to `tokens` from `place` on; returns the next free place.

    `symbols` is scratch, a row per character or byte: token, rank of its merge with the next (or -1), next, previous.
    """
    numbers, characters, byte_tokens, pairs, results = merging
    count = _spell(joined, start, end, marked, characters, byte_tokens, symbols)
    few = count <= FEW
    heap.clear()
    for i in range(count):
        symbols[i, 2], symbols[i, 3] = i + 1, i - 1
        symbols[i, 1] = _merge_of(symbols, i, count, pairs)
        if not few and symbols[i, 1] >= 0:
            heap.append(np.uint64(symbols[i, 1] << 32 | i))
    heapify(heap)
    while True:
        i = _lowest(symbols, count) if few else _next_of(heap, symbols)
        if i < 0:
            break
        gone, previous = symbols[i, 2], symbols[i, 3]
        symbols[i, 0] = results[symbols[i, 1]]
        symbols[i, 2] = symbols[gone, 2]
        symbols[gone, 1] = -1
        if symbols[i, 2] < count:
            symbols[symbols[i, 2], 3] = i
        for changed in (i, previous):
            if changed >= 0:
                symbols[changed, 1] = _merge_of(symbols, changed, count, pairs)
                if not few and symbols[changed, 1] >= 0:
                    heappush(heap, np.uint64(symbols[changed, 1] << 32 | changed))
    i = 0
    while i < count:
        tokens[place] = numbers[symbols[i, 0]]
        place += 1
        i = symbols[i, 2]
    return place


@inlined
def _spell(joined: Any, start: Any, end: Any, marked: Any, characters: Any, byte_tokens: Any, symbols: Any) -> Any:
    """Write the tokens of a piece's characters, or of their bytes, to `symbols`; returns their number."""
    count = np.int64(0)
    if marked:
        symbols[0, 0] = characters[SPACE]
        count = np.int64(1)
    at = start
    while at < end:
        character, size = character_at(joined, at)
        number = characters[np.int64(character)]
        for i in range(1 if number != NO_TOKEN else size):
            symbols[count, 0] = number if number != NO_TOKEN else byte_tokens[joined[at + i]]
            count += 1
        at += size
    return count


@inlined
def _merge_of(symbols: Any, i: Any, count: Any, pairs: Any) -> Any:
    """The rank of the merge of a symbol with the next one; -1 if there is none."""
    after = symbols[i, 2]
    if after >= count:
        return np.int64(-1)
    pair = np.uint64(symbols[i, 0]) << np.uint64(TOKEN_BITS) | np.uint64(symbols[after, 0])
    entry = pairs[_pair_slot(pair, pairs)]
    return np.int64(-1) if entry == ABSENT else np.int64(entry & np.uint64(MOST_TOKENS))


@inlined
def _lowest(symbols: Any, count: Any) -> Any:
    """The leftmost symbol of the lowest merge; -1 if there is none."""
    best, place = np.int64(MOST_TOKENS), np.int64(-1)
    for i in range(count):
        if 0 <= symbols[i, 1] < best:
            best, place = np.int64(symbols[i, 1]), np.int64(i)
    return place


@inlined
def _next_of(heap: Any, symbols: Any) -> Any:
    """As `_lowest`, by a heap of rank << 32 | symbol, which may have outdated entries."""
    while len(heap):
        top = np.int64(heappop(heap))
        i = top & 0xFFFFFFFF
        if symbols[i, 1] == top >> 32:
            return i
    return np.int64(-1)
