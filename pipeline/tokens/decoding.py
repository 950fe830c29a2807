"""Every document's ids decoded, and compared with the text that was encoded.

A table has the bytes of every id, the first eight as one word; a kernel walks ids and text side by side. A document
whose bytes differ is looked at again:

    exact       its ids decode to its text
    normalized  its ids decode to its text as the tokenizer normalizes it (NFC of GPT-NeoX and Qwen)
    unproven    neither, but the reference library gives the same ids: what was lost is the tokenizer's own doing
    otherwise   TokenizerError: wrong ids, a wrong vocabulary, or damage

Decoding shows that no byte of a document was lost, doubled or changed; it does not show that the ids are those the
reference would choose (` a` + `b` decodes as ` ab` does): that is the audit's (audit.py).

Price: about 1 GB of text a second and core; 10 bytes and the longer tokens' bytes an id of the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.errors import TokenizerError
from pipeline.tokens.references import Reference
from pipeline.words import load_byte, load_word

PADDING = bytes(8)  # a word may be read at the last token
SHORT_BYTES = 7  # tokens of at most so many bytes are compared as one word
LONG = 255


@dataclass(frozen=True)
class TokenTable:
    """The bytes of every id.

    words    uint64 (ids,): bytes 0 to 6 of a short token, in byte 7 its length; LONG there for all others
    lengths  int64 (ids,), -1 for an id that no token has
    starts   int64 (ids,): where its bytes begin in `spelled`, uint8
    """

    words: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    spelled: NDArray[np.uint8]

    def decode(self, ids: NDArray[Any]) -> bytes:
        """The bytes of some ids, back to back; unknown ids give none."""
        return b"".join(
            self.spelled[start : start + length].tobytes()
            for start, length in zip(self.starts[ids].tolist(), self.lengths[ids].tolist(), strict=True)
            if length > 0
        )


def token_table(tokens: dict[int, bytes], vocabulary_size: int) -> TokenTable:
    """The table of a vocabulary (id to bytes)."""
    spelled = [tokens.get(number, b"") for number in range(vocabulary_size)]
    lengths = np.array([len(token) for token in spelled], np.int64)
    starts = np.cumsum(lengths) - lengths
    words = b"".join(
        token.ljust(SHORT_BYTES, b"\0") + bytes([len(token)]) if 0 < len(token) <= SHORT_BYTES else bytes([LONG] * 8)
        for token in spelled
    )
    lengths[[number for number in range(vocabulary_size) if number not in tokens]] = -1
    spelled_bytes = np.frombuffer(b"".join(spelled) + PADDING, np.uint8)
    return TokenTable(np.frombuffer(words, "<u8").astype(np.uint64), lengths, starts, spelled_bytes)


class Decoder:
    """Compares documents with their ids, and counts how each was shown to be right.

    `counts`: documents_normalized and documents_unproven; all others decoded exactly.
    """

    def __init__(self, reference: Reference, vocabulary_size: int) -> None:
        tokens = reference.token_bytes()
        self.counts: Counter[str] = Counter(documents_normalized=0, documents_unproven=0)
        self._reference = reference
        self._table = token_table(tokens, vocabulary_size) if tokens is not None else None

    def compare(
        self, text: NDArray[np.uint8], bounds: NDArray[np.uint64], tokens: NDArray[Any], ends: NDArray[np.uint64]
    ) -> None:
        """Compare documents `text[bounds[i] : bounds[i + 1]]` with the ids that end at `ends[i]` of `tokens`.

        TokenizerError for the first document whose ids neither decode to it nor are the reference library's.
        """
        if self._table is None:
            self.counts["documents_unproven"] += len(ends)
            return
        table = self._table
        places = np.ascontiguousarray(bounds, np.int64)
        stops = np.ascontiguousarray(ends, np.int64)
        ids = np.ascontiguousarray(tokens)
        arrays = (table.words, table.lengths, table.starts, table.spelled.ctypes.data)
        document = np.int64(0)
        while (document := first_difference(text.ctypes.data, places, ids, stops, *arrays, document)) >= 0:
            start = int(stops[document - 1]) if document else 0
            content = text[int(places[document]) : int(places[document + 1])].tobytes()
            self._explain(content, ids[start : int(stops[document])], int(document))
            document += 1

    def _explain(self, text: bytes, ids: NDArray[Any], document: int) -> None:
        assert self._table is not None  # noqa: S101 (only then anything was compared)
        if self._table.decode(ids) == self._reference.normalized(text):
            self.counts["documents_normalized"] += 1
        elif np.array_equal(self._reference.encode(text), ids):
            self.counts["documents_unproven"] += 1
        else:
            raise TokenizerError(
                "the ids of a document do not decode to its text",
                where=f"document {document:,} of the batch",
                expected=f"{len(text):,} bytes of text",
                got=f"{len(ids):,} ids of other bytes, which the reference library would not give either",
                next_step="run again; if it stays, set tokenizer.engine: reference and report it",
            )


@njit(nogil=True, cache=True)
def first_difference(
    text: Any, bounds: Any, tokens: Any, ends: Any, words: Any, lengths: Any, starts: Any, spelled: Any, document: Any
) -> Any:
    """The first document from `document` on whose ids do not decode to its text; -1 if all do.

    Reads the text up to its last bound and nothing behind it, whatever the ids.
    """
    last = np.int64(bounds[-1])
    for i in range(document, len(ends)):
        at, stop = bounds[i], bounds[i + 1]
        for place in range(ends[i - 1] if i > 0 else 0, ends[i]):
            number = np.uint64(tokens[place])
            word = words[number]
            length = np.int64(word >> np.uint64(56))
            if length <= 7 and at + 8 <= last:
                # Shifted so, the bytes behind the token go, and with them the length.
                if (load_word(text + at) ^ word) << np.uint64(64 - 8 * length):
                    return i
            else:
                length = lengths[number]
                if length < 0 or at + length > last or not _equal(text + at, spelled + starts[number], length):
                    return i
            at += length
        if at != stop:
            return i
    return -1


@njit(nogil=True, cache=True, inline="always")
def _equal(first: Any, second: Any, length: Any) -> Any:
    """Whether `length` bytes at two addresses are equal."""
    for k in range(0, length - 7, 8):
        if load_word(first + k) != load_word(second + k):
            return False
    for k in range(length - length % 8, length):  # noqa: SIM110 (compiled)
        if load_byte(first + k) != load_byte(second + k):
            return False
    return True
