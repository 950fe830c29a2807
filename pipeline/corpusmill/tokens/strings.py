"""Finds the documents that hold one of a tokenizer's added or special strings.

Price: a nanosecond a byte of text, whatever the number of strings, unless text often begins as a string does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel
from corpusmill.kernels.words import load_byte, load_word

PREFIX_BYTES = 8  # strings with the same first eight bytes are compared one by one


class StringFinder:
    """Finds documents that hold at least one of some strings, as bytes, anywhere."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = sorted({string.encode() for string in strings if string})
        prefixes = sorted({string[:PREFIX_BYTES] for string in self._strings})
        self._firsts = np.zeros(256, np.bool_)
        self._firsts[[prefix[0] for prefix in prefixes]] = True
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

    `words[bounds[b] : bounds[b + 1]]` are the prefixes that begin with byte b, `masks` mark which of their bytes count.
    """
    at = np.int64(0)
    for document in range(len(ends)):
        end = ends[document]
        while at < end:
            byte = load_byte(text + at)
            if firsts[byte]:
                word = load_word(text + at)
                for k in range(bounds[byte], bounds[byte + 1]):
                    if word & masks[k] == words[k]:
                        held[document] = True
                if held[document]:
                    at = end
                    break
            at += 1
