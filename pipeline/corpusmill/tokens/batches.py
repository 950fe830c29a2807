"""A batch of documents' tokens, as every stage and format streams them.

`(tokens, ends)`: bare document tokens (uint16 or uint32, 1-D) and the cumulative exclusive token end of each document
within the batch (uint64).

    tokens   a a a b b        ends  3 5
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError

TokenArray: TypeAlias = NDArray[np.integer[Any]]
"""A 1-D array of token ids: uint16, uint32, or Megatron's int32."""
Batch: TypeAlias = tuple[TokenArray, NDArray[np.uint64]]

LONGEST_TOKENS = (1 << 31) - 2
"""Megatron's index holds a length, EOD included, as int32. All formats share the limit: `.ds` and `.bin` of the same
documents are the same bytes, so a document must fit both or neither.
"""


def document_lengths(batch: Batch, first_document: int = 0) -> NDArray[np.int64]:
    """Tokens of each document (int64), after checking that the batch is one.

    Raises CorruptDataError for a wrong dtype or shape, decreasing ends, ends that do not match the tokens, and a
    document longer than LONGEST_TOKENS. `first_document` is the ordinal of the batch's first document, for the message.
    """
    tokens, ends = batch
    if tokens.ndim != 1 or tokens.dtype not in (np.uint16, np.uint32) or ends.ndim != 1 or ends.dtype != np.uint64:
        raise CorruptDataError(
            "export.batch_arrays: a batch of documents has the wrong arrays",
            where=f"the batch that begins at document {first_document}",
            expected="1-D tokens of uint16 or uint32, 1-D ends of uint64",
            got=f"{tokens.ndim}-D tokens of {tokens.dtype}, {ends.ndim}-D ends of {ends.dtype}",
        )
    reach = int(ends[-1]) if ends.size else 0
    if reach != tokens.size or bool((ends[1:] < ends[:-1]).any()):
        raise CorruptDataError(
            "export.batch_ends: the ends of a batch do not describe its tokens",
            where=f"the batch that begins at document {first_document}",
            expected=f"non-decreasing ends that reach {tokens.size} tokens",
            got=f"ends that reach {reach}" if reach != tokens.size else "ends that fall",
            next_step="verify the token shard that this batch was read from",
        )
    lengths = ends.astype(np.int64)
    lengths[1:] -= lengths[:-1].copy()
    if lengths.size and int(lengths.max()) > LONGEST_TOKENS:
        document = int(lengths.argmax())
        raise CorruptDataError(
            "export.document_too_long: a document is too long for an int32 length",
            where=f"document {first_document + document}",
            expected=f"at most {LONGEST_TOKENS} tokens and one special token",
            got=f"{int(lengths[document])} tokens",
            next_step="split or reject documents of that length before tokenizing",
        )
    return lengths
