"""Computes content sums of exported files, which each format reads without its writer's code (`Format.blocks`).

The sums are computed anew from the formula (content_kernels.py states it, docs/guarantees.md shows it): a fault in a
kernel or in a writer's reader cannot hide itself.

Price: about 25 ns per token; memory is a block of BLOCK_TOKENS, 60 bytes per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import Readable
from corpusmill.kernels.content import NOTHING, ContentSum

BLOCK_TOKENS = 1 << 20
BLOCK = np.uint64(1024)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Words = NDArray[np.uint64]


def output_content(
    name: str, path: Path, about: Readable, slices: list[list[int]], ends_of: Callable[[int], Words]
) -> dict[str, Any]:
    """`content` and `cells` of one output (see export/content.py), read from its files.

    `path` is the output's, without the suffixes of its files. `slices`: [cell, first, last] of the records, or for
    numpy of the tokens of the stream, that it holds; `ends_of(cell)`: where its documents end, in bare tokens.
    """
    cells = {cell: NOTHING for cell, _, _ in slices}
    if FORMATS[name].stream:
        ((tokens, _),) = FORMATS[name].blocks(path, about)
        begin = 0
        for cell, first, last in slices:
            cells[cell] += _stretch_content(tokens[begin : begin + last - first], cell, first, ends_of(cell))
            begin += last - first
        total = _content(_whole(tokens))
    else:
        total, seen = NOTHING, 0
        for tokens, lengths in FORMATS[name].blocks(path, about):
            sums = piece_sums(tokens, lengths)
            total += weigh(sums, 0, np.arange(seen, seen + len(lengths), dtype=np.uint64))
            for cell, places, held in _places(slices, seen, len(lengths)):
                cells[cell] += weigh([lane[held] for lane in sums], cell, places)
            seen += len(lengths)
    return {"content": str(total), "cells": [[cell, str(content)] for cell, content in sorted(cells.items())]}


def file_content(name: str, path: Path, about: Readable) -> dict[str, Any]:
    """The content of one delivered file of tokens, `path`, of the format `name`, as in dataset.json: `content`,
    `slots` and, if it has records, `records`. Raises as the format's reader does for a damaged file.
    """
    if FORMATS[name].stream:
        ((stream, _),) = FORMATS[name].blocks(path, about)
        return {"content": str(_content(_whole(stream))), "slots": len(stream)}
    total, records, slots = NOTHING, 0, 0
    for tokens, lengths in FORMATS[name].blocks(path if name == "webdataset" else path.with_suffix(""), about):
        ordinals = np.arange(records, records + len(lengths), dtype=np.uint64)
        total += weigh(piece_sums(tokens, lengths), 0, ordinals)
        records += len(lengths)
        slots += len(tokens)
    if name != "webdataset":  # with special tokens
        slots = path.stat().st_size // about.dtype.itemsize
    return {"content": str(total), "records": records, "slots": slots}


def _places(slices: list[list[int]], seen: int, records: int) -> Iterator[tuple[int, Words, slice]]:
    """(cell, places in it, mask or indices of the records) of records [seen, seen + records) of an output."""
    begin = 0
    for cell, first, last in slices:
        low, high = max(seen, begin), min(seen + records, begin + last - first)
        if low < high:
            yield (
                cell,
                np.arange(first + low - begin, first + high - begin, dtype=np.uint64),
                slice(low - seen, high - seen),
            )
        begin += last - first


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _odd(lane: int, numbers: Words) -> Words:
    return _mix((numbers + np.uint64(1)) * GOLDEN + np.uint64(lane << 32)) | np.uint64(1)


def _terms(tokens: NDArray[Any], numbers: Words) -> list[Words]:
    """For both lanes, each token's term; `numbers`: its place in its record."""
    ids = tokens.astype(np.uint64) + np.uint64(1)
    return [ids * _odd(lane, numbers % BLOCK) * _odd(lane + 4, numbers // BLOCK) for lane in (0, 1)]


def piece_sums(tokens: NDArray[Any], lengths: Words) -> list[Words]:
    """For both lanes, the sum over each record's tokens; records of `lengths` lie back to back."""
    ends = np.cumsum(lengths, dtype=np.uint64)
    numbers = np.arange(len(tokens), dtype=np.uint64) - np.repeat(ends - lengths, lengths.astype(np.int64))
    running = [np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)]) for terms in _terms(tokens, numbers)]
    return [lane[ends] - lane[ends - lengths] for lane in running]


def _place_weights(unit: int, ordinals: Words) -> list[Words]:
    keys = _mix(np.array([unit], np.uint64) * GOLDEN + np.uint64(0x5851F42D4C957F2D)) + ordinals
    return [_odd(lane + 2, keys) for lane in (0, 1)]


def weigh(sums: list[Words], unit: int, ordinals: Words) -> ContentSum:
    """The content of records: their sums, weighted by their unit and ordinals."""
    weights = _place_weights(unit, ordinals)
    return ContentSum(*(int((sums[lane] * weights[lane]).sum(dtype=np.uint64)) for lane in (0, 1)))


def _content(blocks: Iterator[tuple[NDArray[Any], Words]]) -> ContentSum:
    """The content of one record that comes in blocks of (tokens, their places in it)."""
    total = NOTHING
    weights = _place_weights(0, np.zeros(1, np.uint64))
    for tokens, numbers in blocks:
        sums = (int(lane.sum(dtype=np.uint64)) for lane in _terms(tokens, numbers))
        total += ContentSum(*(part * int(weight[0]) % (1 << 64) for part, weight in zip(sums, weights, strict=True)))
    return total


def _whole(tokens: NDArray[Any]) -> Iterator[tuple[NDArray[Any], Words]]:
    for first in range(0, len(tokens), BLOCK_TOKENS):
        block = tokens[first : first + BLOCK_TOKENS]
        yield block, np.arange(first, first + len(block), dtype=np.uint64)


def _stretch_content(tokens: NDArray[Any], cell: int, first: int, ends: Words) -> ContentSum:
    """The content of a cell's documents in a part of its stream EOT, document, EOT, document ..."""
    stream_ends = ends + np.arange(1, len(ends) + 1, dtype=np.uint64)
    total = NOTHING
    for block, numbers in _whole(tokens):
        positions = numbers + np.uint64(first)
        documents = np.searchsorted(stream_ends, positions, side="right")
        begins = np.where(documents > 0, stream_ends[documents - 1], np.uint64(0))
        own = positions != begins  # the first is the EOT
        terms = _terms(block[own], (positions - begins)[own] - np.uint64(1))
        weights = _place_weights(cell, documents[own].astype(np.uint64))
        total += ContentSum(*(int((terms[lane] * weights[lane]).sum(dtype=np.uint64)) for lane in (0, 1)))
    return total
