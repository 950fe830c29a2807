"""Obviously right versions of what pipeline/tokens and pipeline/shuffle do with arrays."""

from __future__ import annotations

import math


def stream_of(documents: list[list[int]], eot: int) -> list[int]:
    """Every document with tokens, each followed by EOT."""
    stream = []
    for document in documents:
        if document:
            stream += [*document, eot]
    return stream


def contexts_of(documents: list[list[int]], context_tokens: int, eot: int, pad: int) -> list[list[int]]:
    """The stream cut into contexts; the last one filled with padding."""
    stream = stream_of(documents, eot)
    contexts = [stream[start : start + context_tokens] for start in range(0, len(stream), context_tokens)]
    if contexts:
        contexts[-1] += [pad] * (context_tokens - len(contexts[-1]))
    return contexts


def runs_of(sizes: list[int], budget: int) -> list[list[int]]:
    """Positions grouped into consecutive runs of at most `budget`; a larger item alone."""
    groups: list[list[int]] = []
    filled = math.inf
    for position, size in enumerate(sizes):
        if filled + size > budget:
            groups.append([])
            filled = 0
        groups[-1].append(position)
        filled += size
    return groups
