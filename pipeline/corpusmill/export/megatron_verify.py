"""The verifier of Megatron parts: finds every fault that Megatron's own reader misses, by file and byte.

Price: one pass over the tokens and two over the index, memory-mapped; memory is a block of each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from corpusmill.export.files import fault, file_bytes
from corpusmill.export.framing import EmptyDocuments, Framing
from corpusmill.export.megatron import CODES, map_part, require_index, require_width, widths
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
    part = map_part(prefix_path)
    framing = Framing(eod_id, bos_id, empty_documents)
    data_bytes = file_bytes(part.data_path)
    if part.tokens.dtype not in (allowed := widths(vocabulary_size)):
        raise fault(
            "megatron.index_of_other_width: the index has the dtype code of another width",
            part.index_path,
            17,
            expected=[CODES[width] for width in allowed],
            got=CODES[part.tokens.dtype],
        )
    require_width(part)
    sequences, itemsize = len(part), part.tokens.dtype.itemsize
    more, fewer = framing.empty_documents == "boundary", several_sequences
    if not (1 if fewer else sequences + 1) <= part.boundaries.size <= (part.boundaries.size if more else sequences + 1):
        raise fault(
            "megatron.boundary_count: the index has the wrong number of boundaries",
            part.index_path,
            26,
            expected=f"{sequences + 1}" + (" or more" if more else "") + (" or fewer" if fewer else ""),
            got=part.boundaries.size,
        )
    least = 1 if several_sequences else framing.special_tokens + (framing.empty_documents != "eod")
    require_index(
        part,
        data_bytes,
        least_tokens=least,
        least_sequences=0 if more else 1,
        most_sequences=sequences if fewer else 1,
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
