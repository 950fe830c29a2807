"""The line rules of C4, a pass over each text: which lines are kept, and how many sentences end in them."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import inlined, kernel, load_byte
from corpusmill.steps.text_kernels import DOT, LETTER, NEWLINE, SPACE, character, character_table

BRACKET, QUOTE, QUOTED = 0x7B, 0x22, 0x201D
EXCLAMATION, QUESTION = 0x21, 0x3F
SCRIPT, LOREM = np.frombuffer(b"javascript", np.uint8), np.frombuffer(b"lorem ipsum", np.uint8)
UNCHANGED, CHANGED, CURLY, DUMMY, SHORT = range(5)


@cache
def plain_bytes() -> NDArray[np.bool_]:
    """bool (256,): the bytes of which only the last of a run matters, so that line_from looks at no other: ASCII, no
    white space, and nothing that a rule is about but `!` and `?`."""
    plain: NDArray[np.bool_] = character_table()[:256] != SPACE
    plain[0x80:] = False
    plain[[0, DOT, QUOTE, BRACKET, *b"jJlL"]] = False
    return plain


@inlined
def is_stop(code):  # type: ignore[no-untyped-def]
    """Whether a character ends a sentence."""
    return (code == DOT) | (code == EXCLAMATION) | (code == QUESTION)


@inlined
def stands_at(address, at, end, string):  # type: ignore[no-untyped-def]
    """Whether lower-case ASCII is at `at`, in any case. No other character has one of its letters as lower case
    but I with a dot, whose lower case has a dot, too."""
    if at + len(string) > end:
        return False
    for place in range(len(string)):
        byte = load_byte(address + at + place)
        if (byte + 32 if 65 <= byte <= 90 else byte) != string[place]:
            return False
    return True


@inlined
def past_plain(address, at, end, plain):  # type: ignore[no-untyped-def]
    """The end of the run of plain bytes at `at`."""
    while at < end and plain[load_byte(address + at)]:
        at += 1
    return at


@inlined
def line_from(address, at, end, table, plain, script, lorem):  # type: ignore[no-untyped-def]
    """What is to be known of the line at `at`: (where it ends, its first and one past its last byte that is no white
    space, its words, its ends of sentences, its last character or 0, whether it ends in three dots, whether it
    mentions JavaScript, what of CURLY and DUMMY is in it or UNCHANGED)."""
    first, last, words, sentences, dots, before, final = at, at, 0, 0, 0, 0, 0
    spoiled, fate = False, UNCHANGED
    while at < end:
        run = past_plain(address, at, end, plain)
        if run > at:
            first = first if words else at
            words += before == 0
            before = load_byte(address + run - 1)
            at = run
            continue
        code, size = character(address, at)
        kind = table[code]
        if kind == SPACE:
            if before:
                last, final = at, before
                sentences += is_stop(before)
                before = 0
            if code == NEWLINE:
                break
            at += size
            continue
        first = first if words else at
        words += before == 0
        if kind == LETTER:
            if code | 32 == 106:
                spoiled |= stands_at(address, at, end, script)
            elif code | 32 == 108 and fate == UNCHANGED and stands_at(address, at, end, lorem):
                fate = DUMMY
        elif (code == QUOTE) | (code == QUOTED):
            sentences += is_stop(before)
        elif code == DOT:
            dots = dots + 1 if before == DOT else 1
        elif code == BRACKET:
            fate = CURLY
            break
        before = code if code else -1  # 0 stands for white space
        at += size
    if before:
        last, final = at, before
        sentences += is_stop(before)
    return at, first, last, words, sentences, final, final == DOT and dots >= 3, spoiled, fate


@kernel
def staying_lines(address, starts, ends, table, plain, script, lorem, least_words, least_sentences, fates, pieces, out):  # type: ignore[no-untyped-def]
    """Write the lines that stay of each text, with line breaks between them, to `out`, uint8; what it takes of it.

    `address`  of the first byte of the array in which the texts are `[starts[i], ends[i])`, int64 (n,)
    `fates`    int8 (n,): UNCHANGED, CHANGED, or for which rule it goes;  `pieces` int64 (n + 1,): text i in `out` is
               `[pieces[i], pieces[i + 1])`
    `out` needs as many bytes as all texts.
    """
    written = 0
    pieces[0] = 0
    for text in range(len(starts)):
        at, end = starts[text], ends[text]
        begun, sentences, fate = written, 0, UNCHANGED
        while at < end:
            at, first, last, words, ended, final, trails_off, spoiled, met = line_from(
                address, at, end, table, plain, script, lorem
            )
            at += 1
            if met == CURLY:
                fate = CURLY
                break
            fate = met if fate == UNCHANGED else fate
            full = is_stop(final) | (final == QUOTE) | (final == QUOTED)
            if not full or trails_off or spoiled or words < least_words:
                continue
            sentences += ended
            if written > begun:
                out[written] = NEWLINE
                written += 1
            for place in range(first, last):
                out[written] = load_byte(address + place)
                written += 1
        if fate == UNCHANGED and sentences < least_sentences:
            fate = SHORT
        if fate == UNCHANGED and written - begun < end - starts[text]:
            fate = CHANGED
        if fate != CHANGED:
            written = begun
        fates[text], pieces[text + 1] = fate, written
