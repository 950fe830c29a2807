"""Computes content sums of exported files with readers that share no code with the writers.

numpy, tarfile, gzip and orjson read the files; the sums are computed anew from the formula (content_kernels.py
states it, docs/guarantees.md shows it): a fault in a kernel or in a writer's reader cannot hide itself.

Price: about 25 ns per token; memory is a block of BLOCK_TOKENS, 60 bytes per token.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.config import FramingConfig
from corpusmill.content import NOTHING, ContentSum

BLOCK_TOKENS = 1 << 20
BLOCK = np.uint64(1024)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Readable:
    """What a reader needs besides the files: the framing of documents, and the dtype of raw files."""

    framing: FramingConfig
    dtype: np.dtype[Any]


def output_content(
    name: str, path: Path, about: Readable, slices: list[list[int]], ends_of: Callable[[int], Words]
) -> dict[str, Any]:
    """`content` and `cells` of one output (see export/content.py), read from its files.

    `path` is the output's, without the suffixes of its files. `slices`: [cell, first, last] of the records, or for
    numpy of the tokens of the stream, that it holds; `ends_of(cell)`: where its documents end, in bare tokens.
    """
    cells = {cell: NOTHING for cell, _, _ in slices}
    if name == "numpy":
        tokens = _stream(path, about)
        begin = 0
        for cell, first, last in slices:
            cells[cell] += _stretch_content(tokens[begin : begin + last - first], cell, first, ends_of(cell))
            begin += last - first
        total = _content(_whole(tokens))
    else:
        total, seen = NOTHING, 0
        for tokens, lengths in READERS[name](path, about):
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
    if name == "numpy":
        stream = _stream(path, about)
        return {"content": str(_content(_whole(stream))), "slots": len(stream)}
    total, records, slots = NOTHING, 0, 0
    for tokens, lengths in READERS[name](path if name == "webdataset" else path.with_suffix(""), about):
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


def _stream(path: Path, about: Readable) -> NDArray[Any]:
    if path.suffix == ".npy":
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    return np.fromfile(path, about.dtype.newbyteorder("<"))


def _megatron(path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], Words]]:
    index = path.with_name(f"{path.name}.idx").read_bytes()
    sequences, bounds = (int(number) for number in np.frombuffer(index, "<u8", 2, 18))
    lengths = np.frombuffer(index, "<i4", sequences, 34).astype(np.uint64)
    boundaries = np.frombuffer(index, "<i8", bounds, 34 + 12 * sequences)
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])[boundaries]
    dtype = {8: "<u2", 4: "<i4"}[index[17]]
    yield from _documents(np.memmap(path.with_name(f"{path.name}.bin"), dtype, "r"), ends[:-1], ends[1:], about.framing)


def _nanoset(path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], Words]]:
    ends = np.fromfile(path.with_name(f"{path.name}.ds.index"), "<u8")
    width = path.with_name(f"{path.name}.ds.metadata").read_text().partition("\n")[0].rpartition("|")[2]
    tokens = np.memmap(path.with_name(f"{path.name}.ds"), f"<u{width}", "r")
    yield from _documents(tokens, np.concatenate([np.zeros(1, np.uint64), ends[:-1]]), ends, about.framing)


def _documents(
    tokens: NDArray[Any], starts: Words, ends: Words, framing: FramingConfig
) -> Iterator[tuple[NDArray[Any], Words]]:
    """(tokens, lengths) of documents without their special tokens, in blocks of about BLOCK_TOKENS."""
    framed = ends > starts  # a document kept bare has no special tokens either
    starts = starts + (framed & framing.bos).astype(np.uint64)
    ends = ends - (framed & framing.eod).astype(np.uint64)
    first = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + np.uint64(BLOCK_TOKENS), side="right")))
        places = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
        yield np.concatenate([tokens[start:end] for start, end in places]), ends[first:last] - starts[first:last]
        first = last


def _webdataset(path: Path, _about: Readable) -> Iterator[tuple[NDArray[Any], Words]]:
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            file = tar.extractfile(member)
            context = np.array(orjson.loads(gzip.decompress(file.read() if file else b"")), np.uint64)
            yield context, np.array([len(context)], np.uint64)


READERS: dict[str, Callable[[Path, Readable], Iterator[tuple[NDArray[Any], Words]]]] = {
    "megatron": _megatron,
    "nanoset": _nanoset,
    "webdataset": _webdataset,
}
