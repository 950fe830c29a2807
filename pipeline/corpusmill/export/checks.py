"""The checks of indexes and tokens, shared by readers, who check an index before they believe it, and by verifiers.

    lengths     of Megatron's sequences: none below a least
    pointers    the exclusive prefix sum of the lengths, in bytes
    boundaries  begin with 0, rise in allowed steps, end with the number of sequences
    ends        of Nanoset's documents: each above the one before it
    size        of the token file: what the index adds up to
    tokens      ids in the vocabulary, special tokens in place

Every check raises VerificationError with the file and the byte of the first fault. An index of another file passes if
it adds up to the same tokens: only a checksum tells those apart (inspect/datasets/dataset.py).

Price: 5 ns a document for Megatron and 1 ns for Nanoset once the index is in memory, a hundredth of the time of copying
documents of 1,000 tokens; memory is a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.export.files import fault
from corpusmill.export.framing import Framing
from corpusmill.kernels.mapping import release_pages
from corpusmill.tokens.token_shard import TokenArray

BLOCK_TOKENS = 1 << 22
BLOCK_DOCUMENTS = 1 << 16
"""Verifiers read this much at a time: 16 MB of tokens, under 2 MB of index."""


def scan_ids(path: Path, tokens: TokenArray, vocabulary_size: int, *, data_offset: int = 0) -> None:
    """VerificationError at the first of `tokens` that is not below `vocabulary_size`.

    `data_offset` is the byte of `path` at which token 0 begins. Negative int32 ids are caught as huge unsigned ones.
    """
    unsigned = np.dtype(f"<u{tokens.dtype.itemsize}")
    for first in range(0, tokens.size, BLOCK_TOKENS):
        block = tokens[first : first + BLOCK_TOKENS].view(unsigned)
        if int(block.max()) >= vocabulary_size:
            place = int(np.argmax(block >= vocabulary_size))
            raise fault(
                f"export.id_not_in_vocabulary: token {first + place} is not in the vocabulary",
                path,
                data_offset + (first + place) * unsigned.itemsize,
                expected=f"ids below {vocabulary_size}",
                got=int(tokens[first + place]),
            )


def scan_special_tokens(
    path: Path,
    tokens: TokenArray,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    framing: Framing,
    first_document: int,
) -> None:
    """VerificationError at the first document, of those in [starts, ends), without its special tokens."""
    for special, places, does in ((framing.eod_id, ends - 1, "end"), (framing.bos_id, starts, "begin")):
        wrong = tokens[places] != special if special is not None else np.zeros(1, np.bool_)
        if bool(wrong.any()):
            document = int(np.argmax(wrong))
            place = int(places[document])
            raise fault(
                f"export.special_token_missing: document {first_document + document} does not {does} with its special"
                " token",
                path,
                place * tokens.dtype.itemsize,
                expected=special,
                got=int(tokens[place]),
            )


def blocks(items: NDArray[np.integer]) -> Iterator[NDArray[np.integer]]:
    """A mapped array block by block; pages that were read are released, or memory would grow to the whole array."""
    for first in range(0, items.size, BLOCK_DOCUMENTS):
        yield items[first : first + BLOCK_DOCUMENTS]
        release_pages(items)


def require_sequences(
    path: Path,
    lengths: NDArray[np.int32],
    pointers: NDArray[np.int64],
    *,
    width_bytes: int,
    lengths_at: int,
    least: int = 0,
) -> int:
    """Check lengths (tokens) and the pointers that lie behind them, from byte `lengths_at` on; returns their bytes."""
    first = position_bytes = 0
    for block, stated in zip(blocks(lengths), blocks(pointers), strict=True):
        tokens = block.astype(np.int64)
        if int(tokens.min()) < least:
            place = int(np.argmax(tokens < least))
            raise fault(
                f"export.impossible_length: the length of sequence {first + place} is impossible",
                path,
                lengths_at + 4 * (first + place),
                expected=f"at least {least}" + (", special tokens included" if least else ""),
                got=int(tokens[place]),
            )
        sizes = tokens * width_bytes
        ends = np.cumsum(sizes) + position_bytes
        starts = ends - sizes
        if not np.array_equal(stated, starts):
            place = int(np.argmax(stated != starts))
            raise fault(
                f"export.wrong_pointer: pointer {first + place} does not follow from the lengths before it",
                path,
                lengths_at + 4 * lengths.size + 8 * (first + place),
                expected=int(starts[place]),
                got=int(stated[place]),
            )
        first += block.size
        position_bytes = int(ends[-1])
    return position_bytes


def require_boundaries(
    path: Path, boundaries: NDArray[np.int64], sequences: int, *, at: int, least: int = 0, most: int | None = None
) -> None:
    """Check that boundaries (sequence ordinals, from byte `at` on) rise from 0 to `sequences`.

    A document has `least` to `most` sequences; without `most`, any number.
    """
    most = sequences if most is None else most
    first = before = 0
    for block in blocks(boundaries):
        steps = np.diff(block, prepend=before)
        wrong = (steps < least) | (steps > most) | (block > sequences)
        if first == 0:
            wrong[0] = block[0] != 0
        if bool(wrong.any()):
            place = int(np.argmax(wrong))
            raise fault(
                f"export.impossible_boundary: boundary {first + place} is impossible",
                path,
                at + 8 * (first + place),
                expected=f"{least} to {most} above the previous one" if first + place else "0",
                got=int(block[place]),
            )
        first += block.size
        before = int(block[-1])
    if before != sequences or not boundaries.size:
        raise fault(
            f"export.boundaries_miscounted: boundary {boundaries.size - 1} is not the number of sequences",
            path,
            at + 8 * max(0, boundaries.size - 1),
            expected=sequences,
            got=before if boundaries.size else "no boundary",
        )


def require_ends(path: Path, ends: NDArray[np.uint64], *, least: int = 1) -> int:
    """Check that ends (tokens) rise by at least `least` a document; returns the last."""
    first = position = 0
    for block in blocks(ends):
        signed = block.astype(np.int64)  # an end of 2^63 or more counts as negative
        before = np.concatenate(([position], signed[:-1]))
        wrong = signed < before + least
        if bool(wrong.any()):
            place = int(np.argmax(wrong))
            raise fault(
                f"export.impossible_document_end: the end of document {first + place} is impossible",
                path,
                8 * (first + place),
                expected=f"at least {int(before[place]) + least}: {least} tokens with special ones",
                got=int(block[place]),
            )
        first += block.size
        position = int(signed[-1])
    return position


def require_size(path: Path, data_bytes: int, expected_bytes: int) -> None:
    """Check that the token file has the bytes that its index adds up to."""
    if data_bytes != expected_bytes:
        what = "is truncated" if data_bytes < expected_bytes else "has bytes after its end"
        raise fault(
            f"export.token_file_size: the token file {what}, or its index is that of another file",
            path,
            min(data_bytes, expected_bytes),
            expected=f"{expected_bytes} bytes, as the index says",
            got=data_bytes,
        )
