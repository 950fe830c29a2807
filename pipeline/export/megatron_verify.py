"""The verifier of Megatron parts: every fault Megatron's own reader lets pass, by file and byte.

Price: one pass over the tokens and two over the index, memory-mapped; memory is a block of each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.export.files import fault, file_bytes
from pipeline.export.megatron import CODES, HEADER, INT32, UINT16, MegatronPart, open_part, widths
from pipeline.export.scan import BLOCK_DOCUMENTS, scan_ids, scan_last_tokens


def verify_part(prefix_path: Path, *, vocabulary_size: int, eod_id: int) -> dict[str, int]:
    """Check every byte of a part against the format and against each other.

    Megatron's reader accepts most faults and trains on wrong tokens; this raises VerificationError,
    naming file and byte, for each: header, index size, width, lengths, pointers, boundaries, token file size, ids
    outside the vocabulary, documents that do not end with EOD. Returns documents, tokens, special_tokens and bytes as
    re-read. One pass over both files; memory is a block.
    """
    part = open_part(prefix_path)
    sequences, itemsize = len(part), part.tokens.dtype.itemsize
    boundaries_at = HEADER.size + 12 * sequences
    data_bytes = file_bytes(part.data_path)
    _verify_width(part, data_bytes, vocabulary_size)
    if part.boundaries.size != sequences + 1:
        raise fault(
            "the index has the wrong number of boundaries",
            part.index_path,
            26,
            expected=sequences + 1,
            got=part.boundaries.size,
        )
    total_bytes = 0
    for first in range(0, sequences, BLOCK_DOCUMENTS):
        total_bytes = _verify_index_block(part, first, total_bytes)
    _verify_equal(
        part, "boundary", part.boundaries[-1:], np.array([sequences]), first=sequences, array_at=boundaries_at
    )
    if data_bytes != total_bytes:
        what = "is truncated" if data_bytes < total_bytes else "has bytes behind its end"
        raise fault(
            f"the token file {what}",
            part.data_path,
            min(data_bytes, total_bytes),
            expected=f"{total_bytes} bytes, as the lengths in the index say",
            got=data_bytes,
        )
    scan_ids(part.data_path, part.tokens, vocabulary_size)
    for first in range(0, sequences, BLOCK_DOCUMENTS):
        block = slice(first, first + BLOCK_DOCUMENTS)
        ends = part.pointers[block] // itemsize + part.lengths[block]
        scan_last_tokens(part.data_path, part.tokens, ends, eod_id, first)
    return {
        "documents": sequences,
        "tokens": part.tokens.size - sequences,
        "special_tokens": sequences,
        "bytes": data_bytes + file_bytes(part.index_path),
    }


def _verify_width(part: MegatronPart, data_bytes: int, vocabulary_size: int) -> None:
    """The dtype code must be one this vocabulary allows, and must not be the other one's by the size of the tokens."""
    dtype = part.tokens.dtype
    allowed = widths(vocabulary_size)
    total_tokens = int(part.lengths.sum(dtype=np.int64))
    other = INT32 if dtype == UINT16 else UINT16
    swapped = total_tokens * dtype.itemsize != data_bytes == total_tokens * other.itemsize
    if dtype not in allowed or swapped:
        raise fault(
            "the index has the dtype code of another width",
            part.index_path,
            17,
            expected=CODES[other] if swapped else [CODES[width] for width in allowed],
            got=CODES[dtype],
        )


def _verify_index_block(part: MegatronPart, first: int, position_bytes: int) -> int:
    """Check lengths, pointers and boundaries of one block of documents; returns the byte of .bin it ends at."""
    block = slice(first, first + BLOCK_DOCUMENTS)
    sequences = len(part)
    lengths = part.lengths[block].astype(np.int64)
    if int(lengths.min()) < 2:
        ordinal = int(np.argmax(lengths < 2))
        raise fault(
            f"the length of document {first + ordinal} cannot be",
            part.index_path,
            HEADER.size + 4 * (first + ordinal),
            expected="at least 2: a token and EOD",
            got=int(lengths[ordinal]),
        )
    sizes = lengths * part.tokens.dtype.itemsize
    ends = np.cumsum(sizes) + position_bytes
    starts = ends - sizes
    _verify_equal(part, "pointer", part.pointers[block], starts, first=first, array_at=HEADER.size + 4 * sequences)
    ordinals = np.arange(first, first + lengths.size)
    boundaries_at = HEADER.size + 12 * sequences
    _verify_equal(
        part, "boundary", part.boundaries[block][: lengths.size], ordinals, first=first, array_at=boundaries_at
    )
    return int(ends[-1])


def _verify_equal(
    part: MegatronPart, what: str, found: NDArray[np.int64], expected: NDArray[np.int64], *, first: int, array_at: int
) -> None:
    """VerificationError at the first wrong item of `found`, items from `first` on of the i64 array at `array_at`."""
    wrong = found != expected
    if bool(wrong.any()):
        place = int(np.argmax(wrong))
        raise fault(
            f"{what} {first + place} does not follow from the lengths before it",
            part.index_path,
            array_at + 8 * (first + place),
            expected=int(expected[place]),
            got=int(found[place]),
        )
