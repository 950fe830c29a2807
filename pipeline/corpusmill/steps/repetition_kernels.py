"""Measures how much of a text repeats itself: lines, paragraphs and n-grams of words, counted in a table of hashes.

The table (`keys`, `marks`, the same power of two entries) is cleared by its stamp: a mark is `stamp << 32 | times met`.
Equal 64-bit hashes count as equal strings.

An n-gram is met again only if both (n-1)-grams in it are. So every length examines only the places that the length
before kept: all of them for n = 2, and soon almost none. Counting by some bits of a key gives upper bounds of shares
for a tenth of the table's work; if a bound is below the rule's limit, so is the share. Texts are read eight bytes at a
time.
"""

from __future__ import annotations

import numpy as np

from corpusmill.kernels.compiled import inlined, kernel, load_byte, load_word, zero_low_bytes
from corpusmill.steps.text_kernels import HIGH_BITS, LOW_BITS, MIX, NEWLINE, SPACE, START, character, hashed

TOP, DUPLICATED = (2, 3, 4), (5, 6, 7, 8, 9, 10)  # lengths of n-grams
LINE_SHARE, PARAGRAPH_SHARE, LINE_CHARACTERS, PARAGRAPH_CHARACTERS, FIRST_TOP = range(5)
FIRST_DUPLICATED = FIRST_TOP + len(TOP)
SHARES = FIRST_DUPLICATED + len(DUPLICATED)
NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
FIRST_PRINTED = np.uint64(0x2121212121212121)
TIMES = 0xFFFFFFFF  # of a mark


@inlined
def met_at(key, stamp, mask, keys, marks):  # type: ignore[no-untyped-def]
    """The slot of a key in the table, after counting it once more under this stamp."""
    place = np.int64((key ^ (key >> np.uint64(32))) & np.uint64(mask))
    while marks[place] >> 32 == stamp and keys[place] != key:
        place = (place + 1) & mask
    if marks[place] >> 32 != stamp:
        marks[place], keys[place] = stamp << 32, key
    marks[place] += 1
    return place


@inlined
def mask_for(entries):  # type: ignore[no-untyped-def]
    """The mask of a table with room for that many entries."""
    size = 1
    while size < entries:
        size *= 2
    return size - 1


@inlined
def newline_from(address, at, end):  # type: ignore[no-untyped-def]
    """The first line break in [at, end), or `end`."""
    while at + 8 <= end:
        other = load_word(address + at) ^ NEWLINES
        breaks = (other - LOW_BITS) & ~other & HIGH_BITS  # the lowest bit that is set is that of a line break
        if breaks:
            return at + zero_low_bytes(breaks)
        at += 8
    while at < end and load_byte(address + at) != NEWLINE:
        at += 1
    return at


@kernel
def lines_of(address, start, end, hashes, lengths, breaks):  # type: ignore[no-untyped-def]
    """Fill `hashes` (uint64), `lengths` (int64, characters) and `breaks` of a text's lines but for empty ones; (their
    number, all characters of the text). `breaks` (int64) is twice the line breaks behind a line, and 1 more for a line
    that has more than white space."""
    lines, at, characters = 0, start, 0
    while at < end:
        stop = newline_from(address, at, end)
        if stop > at:
            hashes[lines], lengths[lines] = hashed(address, at, stop, end)
            characters += lengths[lines]
            while at < stop and load_byte(address + at) <= 32:
                at += 1
            breaks[lines] = at < stop
            lines += 1
        at = stop
        while at < end and load_byte(address + at) == NEWLINE:
            at += 1
        characters += at - stop
        if lines:
            breaks[lines - 1] += 2 * (at - stop)
    return lines, characters


@kernel
def repeated_lines(lines, hashes, lengths, breaks, apart, stamp, mask, keys, marks):  # type: ignore[no-untyped-def]
    """(stretches of lines with fewer than `apart` line breaks between them, those met before, their characters);
    stretches of white space alone do not count."""
    stretches = repeated = repeated_characters = 0
    key, length, filled = START, 0, False
    for line in range(lines):
        key = (key ^ hashes[line]) * MIX
        length += lengths[line]
        filled |= breaks[line] & 1 == 1
        if breaks[line] >> 1 < apart and line < lines - 1:
            length += breaks[line] >> 1
            continue
        if filled:
            stretches += 1
            if marks[met_at(key, stamp, mask, keys, marks)] & TIMES > 1:
                repeated += 1
                repeated_characters += length
        key, length, filled = START, 0, False
    return stretches, repeated, repeated_characters


@kernel
def words_of(address, start, end, table, hashes, lengths):  # type: ignore[no-untyped-def]
    """Fill `hashes` (uint64) and `lengths` (int64, characters) of a text's words; their number."""
    words, at, first = 0, start, start
    while at < end:
        if at + 8 <= end:
            word = load_word(address + at)
            # Bytes up to 32 and from 128 on; the lowest bit that is set is that of one.
            special = ((word - FIRST_PRINTED) & ~word | word) & HIGH_BITS
            if not special:
                at += 8
                continue
            at += zero_low_bytes(special)
        code, size = character(address, at)
        if table[code] == SPACE:
            if at > first:
                hashes[words], lengths[words] = hashed(address, first, at, end)
                words += 1
            first = at + size
        at += size
    if end > first:
        hashes[words], lengths[words] = hashed(address, first, end, end)
        words += 1
    return words


@inlined
def met_loosely(n, words, left, hashes, times, mask, grams, places, slots):  # type: ignore[no-untyped-def]
    """Count the n-grams that begin where two (n-1)-grams do, one behind the other, of `left`; how many there are.

    Their places, keys and slots take the place of those before. Keys are counted by a few of their bits alone, so that
    each count is at least the true one, and no branch depends on the text.
    """
    times[: mask + 1] = 0
    count = 0
    for number in range(left - 1):
        first = places[number]
        fits = places[number + 1] == first + 1 and first + n <= words
        key = (grams[number] ^ hashes[min(first + n, words) - 1]) * MIX
        slot = np.int64(key >> np.uint64(32)) & mask
        grams[count], places[count], slots[count] = key, first, slot
        times[slot] += fits
        count += fits
    return count


@inlined
def top_bound(n, kept, bounds, times, grams, places, slots):  # type: ignore[no-untyped-def]
    """(those that may have been met again and are left, at least the characters of the most frequent one's)."""
    left = most = 0
    for number in range(kept):
        first = places[number]
        met = times[slots[number]]
        grams[left], places[left] = grams[number], first
        left += met > 1
        most = max(most, (met > 1) * met * (bounds[first + n] - bounds[first]))
    return left, most


@inlined
def duplicated_bound(n, kept, bounds, times, grams, places, slots):  # type: ignore[no-untyped-def]
    """(those that may have been met again and are left, at least the characters in ones that were there before)."""
    left = characters = covered = 0
    for number in range(kept):
        first, slot = places[number], slots[number]
        met = times[slot]
        grams[left], places[left] = grams[number], first
        left += met != 1
        if met < 0:
            characters += bounds[first + n] - bounds[max(first, covered)]
            covered = first + n
        elif met > 1:
            times[slot] = -1  # the next one was there before
    return left, characters


@inlined
def of_most_frequent(n, left, bounds, stamp, mask, keys, marks, grams, places, slots):  # type: ignore[no-untyped-def]
    """The characters of all occurrences of the most frequent n-gram, of several the longest; 0 if none repeats."""
    for number in range(left):
        slots[number] = met_at(grams[number], stamp, mask, keys, marks)
    most, longest = 2, 0
    for number in range(left):
        times = marks[slots[number]] & TIMES
        if times >= most:
            length = bounds[places[number] + n] - bounds[places[number]]
            longest = length if times > most else max(length, longest)
            most = times
    return most * longest


@inlined
def of_duplicated(n, left, bounds, stamp, mask, keys, marks, grams, places):  # type: ignore[no-untyped-def]
    """The characters of words that lie in an n-gram that was there before, each word once."""
    characters = covered = 0
    for number in range(left):
        if marks[met_at(grams[number], stamp, mask, keys, marks)] & TIMES > 1:
            first = places[number]
            characters += bounds[first + n] - bounds[max(first, covered)]
            covered = first + n
    return characters


@kernel
def gram_shares(  # type: ignore[no-untyped-def]
    words, hashes, bounds, limits, whole, stamp, keys, marks, times, grams, places, slots, shares
):
    """Fill the shares of n-grams of a text with so many words; the last stamp used.

    `bounds` int64 (words + 1,): the characters of the words before each; `limits` and `shares` float64 (SHARES,).
    A share is worked out if it may be above its limit; unless `whole` is wanted, none behind the first that is.
    """
    for place in range(words):
        places[place], grams[place] = place, hashes[place] * MIX  # or the order of two words would not matter
    left = words
    for n in range(TOP[0], DUPLICATED[-1] + 1):
        rule = FIRST_TOP + n - TOP[0]
        met = met_loosely(n, words, left, hashes, times, mask_for(4 * left), grams, places, slots)
        if n <= TOP[-1]:
            left, bound = top_bound(n, met, bounds, times, grams, places, slots)
        else:
            left, bound = duplicated_bound(n, met, bounds, times, grams, places, slots)
            if bound <= limits[rule:].min() * bounds[words]:
                break  # what lies in a longer one that was there before lies in one of these
        if left == 0:
            break
        if bound > limits[rule] * bounds[words]:
            stamp += 1
            mask = mask_for(2 * left)
            if n <= TOP[-1]:
                characters = of_most_frequent(n, left, bounds, stamp, mask, keys, marks, grams, places, slots)
            else:
                characters = of_duplicated(n, left, bounds, stamp, mask, keys, marks, grams, places)
            shares[rule] = characters / bounds[words]
            if shares[rule] > limits[rule] and not whole:
                break
    return stamp


@kernel
def repetition(  # type: ignore[no-untyped-def]
    address,
    starts,
    ends,
    table,
    limits,
    whole,
    hashes,
    lengths,
    bounds,
    grams,
    places,
    slots,
    keys,
    marks,
    times,
    shares,
):
    """Fill `shares`, float64 (texts, SHARES), of texts that are `[starts[i], ends[i])` behind an address.

    `limits` float64 (SHARES,): a share of n-grams stays 0 if it is not above its limit, and unless `whole` is wanted,
    if one before it is above its own.
    `hashes` and `grams` uint64, `lengths`, `bounds`, `places` and `slots` int64 have an entry for every two bytes of
    the longest text and one more; `keys` uint64 and `marks` int64 a power of two entries, more than bytes of that text,
    `times` int32 twice as many.
    """
    stamp = 0
    for text in range(len(starts)):
        start, end = starts[text], ends[text]
        lines, characters = lines_of(address, start, end, hashes, lengths, places)
        mask = mask_for(2 * lines)
        for kind in range(2):
            stamp += 1
            stretches, repeated, repeated_characters = repeated_lines(
                lines, hashes, lengths, places, kind + 1, stamp, mask, keys, marks
            )
            if stretches:
                shares[text, LINE_SHARE + kind] = repeated / stretches
                shares[text, LINE_CHARACTERS + kind] = repeated_characters / characters
        if not whole and (shares[text, :FIRST_TOP] > limits[:FIRST_TOP]).any():
            continue
        words = words_of(address, start, end, table, hashes, lengths)
        bounds[0] = 0
        for word in range(words):
            bounds[word + 1] = bounds[word] + lengths[word]
        stamp = gram_shares(
            *(words, hashes, bounds, limits, whole, stamp, keys, marks, times, grams, places, slots, shares[text]),
        )
