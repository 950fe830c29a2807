"""The verifier of Nanoset files: finds every fault that datatrove's and nanotron's readers miss, by file and byte.

Price: one pass over tokens, index and loss, memory-mapped; memory is a block of each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from corpusmill.export.files import fault, file_bytes, mapped
from corpusmill.export.framing import EmptyDocuments, Framing
from corpusmill.export.nanoset import (
    NanosetFile,
    index_path,
    loss_path,
    map_file,
    metadata_path,
    require_index,
    token_bytes,
)
from corpusmill.export.scan import BLOCK_DOCUMENTS, BLOCK_TOKENS, scan_ids, scan_special_tokens


def verify_file(
    path: Path,
    *,
    vocabulary_size: int,
    eos_id: int | None,
    tokenizer_name: str,
    bos_id: int | None = None,
    empty_documents: EmptyDocuments = "skip",
    loss: bool | None = None,
) -> dict[str, int]:
    """Check the files of a `.ds` against the format and against each other.

    Raises VerificationError, naming file and byte, for: metadata of another tokenizer, width or count; ends that do not
    rise by a document's least tokens; a token file longer or shorter than the last end; ids outside the vocabulary;
    documents without their special tokens; a loss file of another length, or of other bytes than 0 and 1 (`loss` true:
    it is required; None: checked if it exists). datatrove's own check reads 2-byte files only and no loss file. Returns
    documents, tokens, special_tokens and bytes as re-read.
    """
    framing = Framing(eos_id, bos_id, empty_documents)
    opened = map_file(path)
    documents, width, data_bytes = len(opened), opened.tokens.dtype.itemsize, file_bytes(path)
    if (opened.tokenizer_name, width) != (tokenizer_name, token_bytes(vocabulary_size)):
        raise fault(
            "nanoset.other_tokenizer: the metadata names another tokenizer or width",
            metadata_path(path),
            0,
            expected=f"{tokenizer_name}|{token_bytes(vocabulary_size)}",
            got=f"{opened.tokenizer_name}|{width}",
        )
    least = framing.special_tokens + (framing.empty_documents == "skip")
    position = require_index(opened, data_bytes, least_tokens=least)
    scan_ids(path, opened.tokens, vocabulary_size)
    for first in range(0, documents, BLOCK_DOCUMENTS):
        ends = opened.ends[first : first + BLOCK_DOCUMENTS].astype(np.int64)
        starts = np.concatenate(([int(opened.ends[first - 1]) if first else 0], ends[:-1]))
        scan_special_tokens(path, opened.tokens, starts, ends, framing, first)
    total_bytes = data_bytes + file_bytes(index_path(path)) + file_bytes(metadata_path(path))
    if loss or (loss is None and loss_path(path).is_file()):
        total_bytes += _verify_loss(opened)
    return {
        "documents": documents,
        "tokens": position - framing.special_tokens * documents,
        "special_tokens": framing.special_tokens * documents,
        "bytes": total_bytes,
    }


def _verify_loss(opened: NanosetFile) -> int:
    """Check the loss file's length and values; returns its bytes."""
    path = loss_path(opened.path)
    actual = file_bytes(path)
    if actual != opened.tokens.size:
        raise fault(
            "nanoset.loss_file_size: the loss file does not have one byte per token",
            path,
            min(actual, opened.tokens.size),
            expected=f"{opened.tokens.size} bytes",
            got=actual,
        )
    values = mapped(path, "u1", actual)
    for first in range(0, actual, BLOCK_TOKENS):
        block = values[first : first + BLOCK_TOKENS]
        if int(block.max()) > 1:
            place = int(np.argmax(block > 1))
            raise fault(
                "nanoset.loss_file_values: the loss file has bytes other than 0 and 1",
                path,
                first + place,
                expected="0 or 1",
                got=int(block[place]),
            )
    return actual
