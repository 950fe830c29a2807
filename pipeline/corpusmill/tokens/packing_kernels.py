"""Kernels of packing: assign items to contexts, and fill contexts with ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.kernels.compiled import kernel


@kernel
def best_fit(sizes: Any, capacity: Any) -> tuple[Any, Any]:
    """(context of each item int64, number of contexts): each item into the context with the least room that holds it.

    Contexts with equal room are a stack: the last one that got this room is taken first. A binary tree over rooms
    0 .. capacity counts contexts, so that the least sufficient room is found in O(log capacity).
    """
    width = 1
    while width < capacity + 1:
        width *= 2
    tree = np.zeros(2 * width, np.int64)
    top = np.full(capacity + 1, -1, np.int64)  # the last context of each room
    below = np.full(len(sizes), -1, np.int64)  # the context under it
    placed = np.empty(len(sizes), np.int64)
    opened = 0
    for item in range(len(sizes)):
        size = sizes[item]
        node = width + size
        if tree[node] == 0:  # climb until a right neighbour has contexts, then go down to its leftmost
            while node > 1 and (node % 2 == 1 or tree[node + 1] == 0):
                node //= 2
            if node > 1:
                node += 1
                while node < width:
                    node = 2 * node if tree[2 * node] else 2 * node + 1
        if node > 1:
            room = node - width
            context = top[room]
            top[room] = below[context]
            while node >= 1:
                tree[node] -= 1
                node //= 2
        else:
            room = capacity
            context = opened
            opened += 1
        placed[item] = context
        left = room - size
        below[context] = top[left]
        top[left] = context
        node = width + left
        while node >= 1:
            tree[node] += 1
            node //= 2
    return placed, opened


@kernel
def fill_contexts(
    tokens: Any,
    starts: Any,
    ends: Any,
    plan: Any,
    before: Any,
    behind: Any,
    pad: Any,
    chosen: Any,
    least: Any,
    out: Any,
) -> None:
    """Write the chosen contexts back to back into `out`, each with padding up to `least` slots.

    starts[d]: position in `tokens` of document d; ends: the documents' cumulative lengths; plan: bounds, documents,
    firsts, sizes of a ContextPlan; before, behind: ids around a document's tokens.
    """
    bounds, documents, firsts, sizes = plan
    written = 0
    for context in chosen:
        stop = written + least
        for piece in range(bounds[context], bounds[context + 1]):
            document = documents[piece]
            start = np.int64(starts[document])
            length = np.int64(ends[document]) - (np.int64(ends[document - 1]) if document > 0 else np.int64(0))
            low, high = firsts[piece], firsts[piece] + sizes[piece]
            for slot in range(low, min(high, len(before))):
                out[written] = before[slot]
                written += 1
            first, last = max(low - len(before), 0), min(high - len(before), length)
            if last > first:
                out[written : written + last - first] = tokens[start + first : start + last]
                written += last - first
            for slot in range(max(low - len(before) - length, 0), high - len(before) - length):
                out[written] = behind[slot]
                written += 1
        if written < stop:
            out[written:stop] = pad
            written = stop
