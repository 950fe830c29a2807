"""Documents' bytes to tokens, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.tokens.tokenizer import Tokenizer


def encode_documents(
    batches: Iterable[tuple[NDArray[np.uint8], NDArray[np.uint64]]], tokenizer: Tokenizer
) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
    """(text uint8, boundaries uint64[documents + 1]) batches to (tokens, ends) batches."""
    for text, boundaries in batches:
        whole = text.tobytes()
        edges = boundaries.tolist()
        yield tokenizer.encode([whole[first:last] for first, last in pairwise(edges)])
