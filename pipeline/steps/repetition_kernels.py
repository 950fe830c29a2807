"""How much of a text repeats itself: lines, paragraphs and n-grams of words, met again in a table of hashes.

The table (`keys`, `stamps`, `counts`, the same power of two entries) is cleared by its stamp; what is hashed to the
same 64 bits counts as equal.
"""

from __future__ import annotations

import numpy as np

from corpusmill.kernels import inlined, kernel
from corpusmill.steps.text_kernels import NEWLINE, SPACE, character
from corpusmill.words import load_byte

TOP, DUPLICATED = (2, 3, 4), (5, 6, 7, 8, 9, 10)  # lengths of n-grams
LINE_SHARE, PARAGRAPH_SHARE, LINE_CHARACTERS, PARAGRAPH_CHARACTERS, FIRST_TOP = range(5)
FIRST_DUPLICATED = FIRST_TOP + len(TOP)
SHARES = FIRST_DUPLICATED + len(DUPLICATED)
PRIME = np.uint64(0x100000001B3)
MIX = np.uint64(0xBF58476D1CE4E5B9)
START = np.uint64(0xCBF29CE484222325)


@inlined
def met(key, stamp, mask, keys, stamps, counts):  # type: ignore[no-untyped-def]
    """How often a key was met under this stamp, this time included."""
    mixed = (key ^ (key >> np.uint64(30))) * MIX
    place = np.int64((mixed ^ (mixed >> np.uint64(27))) & np.uint64(mask))
    while stamps[place] == stamp and keys[place] != key:
        place = (place + 1) & mask
    if stamps[place] != stamp:
        stamps[place], keys[place], counts[place] = stamp, key, 0
    counts[place] += 1
    return counts[place]


@inlined
def mask_for(entries):  # type: ignore[no-untyped-def]
    """Of a table with room for so many entries."""
    size = 1
    while size < entries:
        size *= 2
    return size - 1


@kernel
def repeated_stretches(address, start, end, breaks, stamp, mask, keys, stamps, counts):  # type: ignore[no-untyped-def]
    """(stretches, those met before, their characters, all characters of the text) of a text that is divided by at least
    `breaks` line breaks in a row; stretches of white space alone do not count."""
    stretches = repeated = repeated_characters = all_characters = 0
    at = start
    while at < end:
        key, newlines, length, own, filled = START, 0, 0, 0, False
        while at < end:
            byte = load_byte(address + at)
            at += 1
            own += byte & 0xC0 != 0x80
            if byte == NEWLINE:
                newlines += 1
                continue
            if newlines >= breaks:
                own -= 1
                at -= 1
                break
            for _ in range(newlines if length else 0):  # inside of a paragraph
                key = (key ^ np.uint64(NEWLINE)) * PRIME
                length += 1
            newlines = 0
            filled |= byte > 32
            length += byte & 0xC0 != 0x80
            key = (key ^ np.uint64(byte)) * PRIME
        all_characters += own
        if filled:
            stretches += 1
            if met(key, stamp, mask, keys, stamps, counts) > 1:
                repeated += 1
                repeated_characters += length
    return stretches, repeated, repeated_characters, all_characters


@kernel
def words_of(address, start, end, table, hashes, lengths):  # type: ignore[no-untyped-def]
    """Fill `hashes` (uint64) and `lengths` (int64, characters) of a text's words; their number."""
    words = length = 0
    key = START
    at = start
    while at < end:
        code, size = character(address, at)
        at += size
        if table[code] == SPACE:
            if length:
                hashes[words], lengths[words] = key, length
                words += 1
                length = 0
                key = START
            continue
        length += 1
        key = (key ^ np.uint64(code)) * PRIME
    if length:
        hashes[words], lengths[words] = key, length
        words += 1
    return words


@kernel
def top_share(words, n, hashes, lengths, stamp, mask, keys, stamps, counts):  # type: ignore[no-untyped-def]
    """The characters of the most frequent n-gram's occurrences, of several the longest's; 0 if none repeats."""
    best_count, best_length = 1, 0
    for first in range(words - n + 1):
        key, length = START, 0
        for place in range(first, first + n):
            key = (key ^ hashes[place]) * MIX
            length += lengths[place]
        count = met(key, stamp, mask, keys, stamps, counts)
        if count > best_count or (count == best_count > 1 and length > best_length):
            best_count, best_length = count, length
    return best_count * best_length if best_count > 1 else 0


@kernel
def duplicated(words, n, hashes, lengths, stamp, mask, keys, stamps, counts):  # type: ignore[no-untyped-def]
    """The characters of words that lie in an n-gram that was there before, each word once."""
    characters, covered = 0, 0
    for first in range(words - n + 1):
        key = START
        for place in range(first, first + n):
            key = (key ^ hashes[place]) * MIX
        if met(key, stamp, mask, keys, stamps, counts) > 1:
            for place in range(max(first, covered), first + n):
                characters += lengths[place]
            covered = first + n
    return characters


@kernel
def repetition(address, starts, ends, table, hashes, lengths, keys, stamps, counts, shares):  # type: ignore[no-untyped-def]
    """Fill `shares`, float64 (texts, SHARES), of texts that are `[starts[i], ends[i])` behind an address.

    `hashes` uint64 and `lengths` int64 have an entry for every two bytes of the longest text; the table has a power of
    two entries, more than bytes of that text.
    """
    stamp = 0
    for text in range(len(starts)):
        start, end = starts[text], ends[text]
        mask = mask_for(end - start + 2)
        for kind in range(2):
            stamp += 1
            stretches, repeated, characters, whole = repeated_stretches(
                address, start, end, kind + 1, stamp, mask, keys, stamps, counts
            )
            if stretches:
                shares[text, LINE_SHARE + kind] = repeated / stretches
                shares[text, LINE_CHARACTERS + kind] = characters / whole
        words = words_of(address, start, end, table, hashes, lengths)
        whole = lengths[:words].sum()
        if whole == 0:
            continue
        mask = mask_for(2 * words)
        for place in range(len(TOP)):
            stamp += 1
            found = top_share(words, TOP[place], hashes, lengths, stamp, mask, keys, stamps, counts)
            if found == 0:  # what holds a longer one twice holds the shorter one twice
                break
            shares[text, FIRST_TOP + place] = found / whole
        for place in range(len(DUPLICATED)):
            stamp += 1
            found = duplicated(words, DUPLICATED[place], hashes, lengths, stamp, mask, keys, stamps, counts)
            if found == 0:
                break
            shares[text, FIRST_DUPLICATED + place] = found / whole
