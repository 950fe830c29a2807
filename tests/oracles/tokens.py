"""Obviously right versions of what corpusmill/tokens and corpusmill/shuffle do with arrays."""

from __future__ import annotations

import math
from itertools import groupby


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


def packed(documents: list[list[int]], length: int, options: dict, eot: int, bos: int, pad: int) -> list[list[int]]:
    """The contexts of one stream under packing options, written out slot by slot."""
    contexts = contexts_of_rows(framed(documents, options, eot, bos), length, options)
    return [context + [pad] * (length - len(context)) for context in contexts]


def packed_pieces(documents: list[list[int]], length: int, options: dict) -> list[list[int]]:
    """Of each of these contexts the slots of each document in it: every slot is the number of its document."""
    rows = [[number] * len(row) for number, row in enumerate(framed(documents, options, 0, 0))]
    return [[len(list(run)) for _, run in groupby(context)] for context in contexts_of_rows(rows, length, options)]


def framed(documents: list[list[int]], options: dict, eot: int, bos: int) -> list[list[int]]:
    """Every document that is packed, with its special tokens."""
    before = [eot] * (options["eot"] != "after") + [bos] * options["bos"]
    behind = [eot] * (options["eot"] != "before")
    return [[*before, *row, *behind] for row in documents if row or options["empty_documents"] == "keep"]


def contexts_of_rows(rows: list[list[int]], length: int, options: dict) -> list[list[int]]:
    """The contexts of framed documents, without padding."""
    stream = [slot for row in rows for slot in row]
    contexts = []
    if options["fit"] == "best_fit":
        contexts = [row[i : i + length] for row in rows for i in range(0, len(row) - length + 1, length)]
        bins: list[list[list[int]]] = []  # the bins in order of opening; each bin its items
        touched: list[int] = []  # bins in order of the last change
        for item in sorted((row[len(row) - len(row) % length :] for row in rows), key=len, reverse=True):
            fits = [number for number in touched if item and sum(map(len, bins[number])) + len(item) <= length]
            if item and not fits:
                bins.append([item])
                touched.append(len(bins) - 1)
            elif item:
                fullest = max(sum(map(len, bins[number])) for number in fits)
                chosen = [number for number in fits if sum(map(len, bins[number])) == fullest][-1]
                bins[chosen].append(item)
                touched.remove(chosen)
                touched.append(chosen)
        contexts += [[slot for item in entry for slot in item] for entry in bins]
    elif options["tail"] == "always_pad":
        contexts = [stream[i : i + length] for i in range(0, len(stream) // length * length + 1, length)]
    else:
        overlap = options["overlap_tokens"]
        start = 0
        while start < len(stream) - (overlap if contexts else 0):
            contexts.append(stream[start : start + length])
            start += length - overlap
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
