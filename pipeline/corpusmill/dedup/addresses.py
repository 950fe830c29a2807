"""Comparing and hashing text by address (see `corpusmill.kernels.words`): the primitives of the dedup kernels.

Addresses let a kernel hold any number of memory-mapped shards in one int64 array. Nothing here checks bounds: every
function states the bytes it reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.kernels.compiled import kernel
from corpusmill.kernels.content_kernels import ODD_1, ODD_2, ODD_3, stir
from corpusmill.kernels.words import load_byte, load_word, zero_high_bytes, zero_low_bytes


@kernel
def common_prefix(first: Any, second: Any, limit: Any) -> Any:
    """How many bytes from `first` and from `second` on are equal, at most `limit`. Reads `limit` bytes of each."""
    done = 0
    while done + 32 <= limit:  # four words per branch, for long matches
        difference = load_word(first + done) ^ load_word(second + done)
        difference |= load_word(first + done + 8) ^ load_word(second + done + 8)
        difference |= load_word(first + done + 16) ^ load_word(second + done + 16)
        difference |= load_word(first + done + 24) ^ load_word(second + done + 24)
        if difference != np.uint64(0):
            break
        done += 32
    while done + 8 <= limit:
        difference = load_word(first + done) ^ load_word(second + done)
        if difference != np.uint64(0):
            return done + zero_low_bytes(difference)
        done += 8
    while done < limit and load_byte(first + done) == load_byte(second + done):
        done += 1
    return done


@kernel
def common_suffix(first: Any, second: Any, limit: Any) -> Any:
    """How many bytes just below `first` and `second` are equal, at most `limit`. Reads `limit` bytes below each."""
    done = 0
    while done + 8 <= limit:
        difference = load_word(first - done - 8) ^ load_word(second - done - 8)
        if difference != np.uint64(0):
            return done + zero_high_bytes(difference)
        done += 8
    while done < limit and load_byte(first - done - 1) == load_byte(second - done - 1):
        done += 1
    return done


@kernel
def bytes_hash(address: Any, length: Any) -> Any:
    """uint64 hash of `length` >= 7 bytes. Reads them, and below 8 also the one byte before them.

    Four lanes of 8 bytes as in xxHash64, so that a long gram costs about a cycle per 8 bytes; murmur3's final mix. The
    hash only finds candidates, which are compared byte for byte, so it needs speed and spread, not a standard.
    """
    total = np.uint64(length) * ODD_3
    done = 0
    if length < 8:
        total = stir(total, load_word(address + length - 8) >> np.uint64(64 - 8 * length))
    else:
        if length >= 32:
            one, two, three, four = ODD_1, ODD_2, ODD_3, total
            while done + 32 <= length:
                one = stir(one, load_word(address + done))
                two = stir(two, load_word(address + done + 8))
                three = stir(three, load_word(address + done + 16))
                four = stir(four, load_word(address + done + 24))
                done += 32
            total = stir(stir(stir(one, two), three), four)
        while done + 8 <= length:
            total = stir(total, load_word(address + done))
            done += 8
        if done < length:  # the last word overlaps the one before it
            total = stir(total, load_word(address + length - 8))
    total ^= total >> np.uint64(33)
    total *= np.uint64(0xFF51AFD7ED558CCD)
    total ^= total >> np.uint64(33)
    total *= np.uint64(0xC4CEB9FE1A85EC53)
    return total ^ (total >> np.uint64(33))
