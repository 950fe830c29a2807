"""The verifier of Megatron parts: finds every fault that Megatron's own reader misses, by file and byte.

Price: one pass over the tokens and two over the index, memory-mapped; memory is a block of each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from corpusmill.export.files import fault, file_bytes
from corpusmill.export.framing import EmptyDocuments, Framing
from corpusmill.export.megatron import CODES, HEADER, INT32, UINT16, MegatronPart, open_part, widths
from corpusmill.export.scan import BLOCK_DOCUMENTS, scan_ids, scan_special_tokens


def verify_part(
    prefix_path: Path,
    *,
    vocabulary_size: int,
    eod_id: int | None,
    bos_id: int | None = None,
    empty_documents: EmptyDocuments = "skip",
    several_sequences: bool = False,
) -> dict[str, int]:
    """Check every byte of a part against the format and the files against each other.

    Megatron's reader accepts most faults and trains on wrong tokens; this raises VerificationError, naming file and
    byte, for each: header, index size, width, lengths, pointers, boundaries, token file size, ids outside the
    vocabulary, documents without their special tokens. With `several_sequences` a document may have more than one.
    Returns documents, tokens, special_tokens and bytes as re-read.
    """
    part = open_part(prefix_path)
    framing = Framing(eod_id, bos_id, empty_documents)
    data_bytes = file_bytes(part.data_path)
    _verify_width(part, data_bytes, vocabulary_size)
    sequences, itemsize = len(part), part.tokens.dtype.itemsize
    more, fewer = framing.empty_documents == "boundary", several_sequences
    if not (1 if fewer else sequences + 1) <= part.boundaries.size <= (part.boundaries.size if more else sequences + 1):
        raise fault(
            "the index has the wrong number of boundaries",
            part.index_path,
            26,
            expected=f"{sequences + 1}" + (" or more" if more else "") + (" or fewer" if fewer else ""),
            got=part.boundaries.size,
        )
    least = 1 if several_sequences else framing.special_tokens + (framing.empty_documents != "eod")
    total_bytes = 0
    for first in range(0, sequences, BLOCK_DOCUMENTS):
        total_bytes = _verify_index_block(part, first, total_bytes, least)
    _verify_boundaries(part, 0 if more else 1, sequences if fewer else 1)
    if data_bytes != total_bytes:
        what = "is truncated" if data_bytes < total_bytes else "has bytes after its end"
        raise fault(
            f"the token file {what}",
            part.data_path,
            min(data_bytes, total_bytes),
            expected=f"{total_bytes} bytes, as the lengths in the index say",
            got=data_bytes,
        )
    scan_ids(part.data_path, part.tokens, vocabulary_size)
    filled = 0
    for first in range(0, part.documents, BLOCK_DOCUMENTS):
        bounds = part.boundaries[first : first + BLOCK_DOCUMENTS + 1]
        opens, closes = bounds[:-1], bounds[1:]
        numbers = np.flatnonzero(opens < closes)
        ends = part.pointers[closes[numbers] - 1] // itemsize + part.lengths[closes[numbers] - 1]
        starts = part.pointers[opens[numbers]] // itemsize
        scan_special_tokens(part.data_path, part.tokens, starts, ends, framing, first)
        filled += numbers.size
    return {
        "documents": part.documents,
        "tokens": part.tokens.size - framing.special_tokens * filled,
        "special_tokens": framing.special_tokens * filled,
        "bytes": data_bytes + file_bytes(part.index_path),
    }


def _verify_boundaries(part: MegatronPart, least: int, most: int) -> None:
    """Check that boundaries rise from 0 to the number of sequences, in steps that a document may have."""
    sequences, boundaries_at = len(part), HEADER.size + 12 * len(part)
    before = 0
    for first in range(0, part.boundaries.size, BLOCK_DOCUMENTS):
        block = part.boundaries[first : first + BLOCK_DOCUMENTS]
        steps = np.diff(block, prepend=before)
        wrong = (steps < least) | (steps > most) | (block > sequences)
        if first == 0:
            wrong[0] = block[0] != 0
        if bool(wrong.any()):
            place = int(np.argmax(wrong))
            raise fault(
                f"boundary {first + place} is impossible",
                part.index_path,
                boundaries_at + 8 * (first + place),
                expected=f"{least} to {most} above the previous one" if first + place else "0",
                got=int(block[place]),
            )
        before = int(block[-1])
    if before != sequences:
        raise fault(
            f"boundary {part.documents} is not the number of sequences",
            part.index_path,
            boundaries_at + 8 * part.documents,
            expected=sequences,
            got=before,
        )


def _verify_width(part: MegatronPart, data_bytes: int, vocabulary_size: int) -> None:
    """Check that the vocabulary allows the dtype code, and that the size of the token file does not fit the other
    width.
    """
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


def _verify_index_block(part: MegatronPart, first: int, position_bytes: int, least: int) -> int:
    """Check lengths and pointers of one block of sequences; returns the byte of .bin it ends at."""
    lengths = part.lengths[first : first + BLOCK_DOCUMENTS].astype(np.int64)
    if int(lengths.min()) < least:
        ordinal = int(np.argmax(lengths < least))
        raise fault(
            f"the length of sequence {first + ordinal} is impossible",
            part.index_path,
            HEADER.size + 4 * (first + ordinal),
            expected=f"at least {least}, special tokens included",
            got=int(lengths[ordinal]),
        )
    sizes = lengths * part.tokens.dtype.itemsize
    ends = np.cumsum(sizes) + position_bytes
    starts, pointers = ends - sizes, part.pointers[first : first + BLOCK_DOCUMENTS]
    wrong = pointers != starts
    if bool(wrong.any()):
        place = int(np.argmax(wrong))
        raise fault(
            f"pointer {first + place} does not follow from the lengths before it",
            part.index_path,
            HEADER.size + 4 * len(part) + 8 * (first + place),
            expected=int(starts[place]),
            got=int(pointers[place]),
        )
    return int(ends[-1])
