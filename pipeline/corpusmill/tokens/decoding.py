"""Decodes every document's ids, and compares the bytes with the text that was encoded.

A table has the bytes of every id, short ones in one entry of 16 bytes; a kernel compares entry after entry with the
text at its place. A document whose bytes differ is examined again:

    exact       its ids decode to its text
    normalized  its ids decode to its text as the tokenizer normalizes it (NFC of GPT-NeoX and Qwen)
    unproven    neither, but the reference library gives the same ids: the tokenizer itself loses information
    otherwise   TokenizerError: wrong ids, a wrong vocabulary, or damage

Decoding shows that no byte of a document was lost, doubled or changed; it does not show that the ids are those that
the reference would choose (` a` + `b` decodes as ` ab` does): the audit does (audit.py).

Price: about 2 ns per token; 32 bytes per id of the vocabulary, and its token's bytes; making the table takes 0.1 s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from corpusmill.errors import TokenizerError
from corpusmill.kernels.compiled import equal_bytes, kernel, load_byte, prefetch
from corpusmill.tokens.ranks import Spelling
from corpusmill.tokens.references import Reference

ENTRY_BYTES = 16
SHORT_BYTES = ENTRY_BYTES - 1  # tokens of at most this many bytes fit in an entry: 99.7 % of English text
LONG = 255
STEP = 4
AHEAD_TOKENS = 160  # the table does not fit the L2 cache: its entries are prefetched this far ahead
MASKS = np.tri(ENTRY_BYTES, ENTRY_BYTES, -1, np.uint8) * np.uint8(255)
"""uint8 (16, 16): row n keeps the first n bytes of an entry."""


@dataclass(frozen=True)
class TokenTable:
    """The bytes of every id.

    entries  uint8 (ids, 16): the bytes of a short token, in byte 15 its length; LONG there for all others
    lengths  int64 (ids,), -1 for an id that no token has
    starts   int64 (ids,): where the id's bytes begin in `spelled`, uint8
    """

    entries: NDArray[np.uint8]
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


def token_table(spelling: Spelling, vocabulary_size: int) -> TokenTable:
    """The table of a vocabulary; the later bytes for an id that comes twice."""
    known = (spelling.ids >= 0) & (spelling.ids < vocabulary_size)
    ids = spelling.ids[known]
    spelled = np.concatenate([spelling.text, np.zeros(ENTRY_BYTES, np.uint8)])
    lengths = np.full(vocabulary_size, -1, np.int64)
    starts = np.zeros(vocabulary_size, np.int64)
    lengths[ids] = spelling.lengths[known]
    starts[ids] = spelling.starts[known]
    # An entry from every byte on, as one value each: numpy copies those three times as fast as rows of bytes.
    windows = np.ndarray(len(spelled) - ENTRY_BYTES + 1, f"V{ENTRY_BYTES}", spelled, strides=(1,))
    entries = windows[starts].view(np.uint8).reshape(-1, ENTRY_BYTES)
    entries &= np.take(MASKS, np.clip(lengths, 0, SHORT_BYTES), axis=0)
    entries[:, SHORT_BYTES] = np.where((lengths > 0) & (lengths <= SHORT_BYTES), lengths, LONG)
    return TokenTable(entries, lengths, starts, spelled)


class Decoder:
    """Compares documents with their ids, and counts the kinds of agreement; without a table all are unproven.

    `counts`: documents_normalized and documents_unproven; all others decoded exactly.
    """

    def __init__(self, reference: Reference, table: TokenTable | None) -> None:
        self.counts: Counter[str] = Counter(documents_normalized=0, documents_unproven=0)
        self._reference = reference
        self._table = table

    def compare(
        self, text: NDArray[np.uint8], bounds: NDArray[np.uint64], tokens: NDArray[Any], ends: NDArray[np.uint64]
    ) -> None:
        """Compare documents `text[bounds[i] : bounds[i + 1]]` with the ids that end at `ends[i]` of `tokens`.

        TokenizerError for the first document whose ids neither decode to it nor are the reference library's.
        """
        if self._table is None:
            self.counts["documents_unproven"] += len(ends)
            return
        places = np.ascontiguousarray(bounds, np.int64)
        stops = np.ascontiguousarray(ends, np.int64)
        ids = np.ascontiguousarray(tokens)
        document = 0
        while (document := first_difference(self._table, text, places, ids, stops, document)) >= 0:
            start = int(stops[document - 1]) if document else 0
            content = text[int(places[document]) : int(places[document + 1])].tobytes()
            self._explain(content, ids[start : int(stops[document])], document)
            document += 1

    def _explain(self, text: bytes, ids: NDArray[Any], document: int) -> None:
        assert self._table is not None  # noqa: S101 (nothing is compared without a table)
        if self._table.decode(ids) == self._reference.normalized(text):
            self.counts["documents_normalized"] += 1
        elif np.array_equal(self._reference.encode(text), ids):
            self.counts["documents_unproven"] += 1
        else:
            raise TokenizerError(
                "tokens.not_decodable: the ids of a document do not decode to its text",
                where=f"document {document:,} of the batch",
                expected=f"{len(text):,} bytes of text",
                got=f"{len(ids):,} ids of other bytes, which the reference library would not produce either",
                next_step="run again; if it persists, set tokenizer.engine: reference and report it",
            )


def first_difference(
    table: TokenTable,
    text: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    tokens: NDArray[Any],
    ends: NDArray[np.int64],
    document: int,
) -> int:
    """The first document from `document` on whose ids do not decode to its text; -1 if all do.

    Arrays as in `Decoder.compare`, contiguous; every id below the vocabulary's size. Reads no byte outside a document,
    whatever its ids.
    """
    entries, masks, spelled = (array.ctypes.data for array in (table.entries, MASKS, table.spelled))
    arrays = (entries, masks, table.lengths, table.starts, spelled)
    return int(_first_difference(text.ctypes.data, bounds, tokens, ends, *arrays, document))


@kernel
def _first_difference(
    text: Any, bounds: Any, tokens: Any, ends: Any, entries: Any, masks: Any, lengths: Any, starts: Any, spelled: Any,
    document: Any,
) -> Any:  # fmt: skip
    """Compares short tokens STEP at a time: a token's whole entry, of which the mask of its length leaves its bytes."""
    one, step, ahead, total = np.uint64(1), np.uint64(STEP), np.uint64(AHEAD_TOKENS), np.uint64(len(tokens))
    sure = total - min(ahead, total)
    for i in range(document, len(ends)):
        at, stop = text + bounds[i], text + bounds[i + 1]
        place, end = np.uint64(ends[i - 1] if i > 0 else 0), np.uint64(ends[i])
        differing = np.uint64(0), np.uint64(0)
        while place < end:
            short = True
            while short and place + step <= min(end, sure) and at + STEP * ENTRY_BYTES <= stop:
                for _ in range(STEP):
                    prefetch(entries + np.int64(tokens[place + ahead]) * ENTRY_BYTES)
                    entry = entries + np.int64(tokens[place]) * ENTRY_BYTES
                    length = load_byte(entry + SHORT_BYTES)
                    short = length <= SHORT_BYTES
                    if not short:
                        break
                    differing = _with_differing(differing, at, entry, masks + length * ENTRY_BYTES)
                    at += length
                    place += one
            if place < end:
                number = np.uint64(tokens[place])
                length = lengths[number]
                if length < 0 or at + length > stop or not equal_bytes(at, spelled + starts[number], length):
                    return i
                at += length
                place += one
        if at != stop or differing[0] | differing[1]:
            return i
    return -1


def _make_with_differing(_context: Any, _differing: Any, _first: Any, _second: Any, _mask: Any) -> Any:
    vector, word = ir.VectorType(ir.IntType(64), 2), ir.IntType(64)

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        before, *addresses = arguments
        pointers = (builder.inttoptr(address, vector.as_pointer()) for address in addresses)
        first, second, mask = (builder.load(pointer, align=1) for pointer in pointers)
        other = builder.and_(builder.xor(first, second), mask)
        after = ir.Constant(ir.ArrayType(word, 2), ir.Undefined)
        for lane in range(2):
            held = builder.or_(builder.extract_value(before, lane), builder.extract_element(other, word(lane)))
            after = builder.insert_value(after, held, lane)
        return after

    both = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return both(both, types.int64, types.int64, types.int64), generate


_with_differing: Any = intrinsic(_make_with_differing)
"""The bits of `differing`, and those in which the 16 bytes at two addresses differ where the mask has ones."""
