"""Finds the windows that occurred earlier from suffix arrays (the result is that of borders.py), one part of all tables
at a time.

Suffixes that begin with the same L bytes are adjacent in each table. Parts are delimited by the beginnings (at most L
bytes) of suffixes of the largest shard, so that equal windows are never in two parts.

Memory: two bits per byte of text of all shards, and one more for each reference. Time: a random access to the text per
byte, 1-2 MB/s. Texts and tables are memory-mapped and should fit in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.matches import Matches
from corpusmill.dedup.ranges import Ranges, union_ranges
from corpusmill.dedup.repeated import LISTED, RepeatedWindow
from corpusmill.dedup.suffix_array import SuffixArray
from corpusmill.dedup.suffix_kernels import mark_windows

_CUT_BYTES = 64
_CANDIDATES = 256
_BIT_BYTES = 1 << 20


@dataclass(frozen=True)
class SortedShard:
    """A text shard's bytes (uint8[n], memory-mapped) and its suffix array."""

    text: NDArray[np.uint8]
    suffixes: SuffixArray


def match_suffixes(
    shards: Sequence[SortedShard], partition: int, partitions: int, minimum_bytes: int, references: Sequence[int] = ()
) -> tuple[Matches, list[RepeatedWindow], dict[str, int]]:
    """(matches of part `partition` of `partitions` of the suffixes, the most repeated windows, counts: suffixes).

    `references`: of the shards, as in references.referred_windows; empty if no shard is of a reference.
    """
    firsts, lasts = (_ranks(shards, number, partitions, minimum_bytes) for number in (partition, partition + 1))
    bases = np.cumsum([0, *(shard.text.size // 8 + 1 for shard in shards)], dtype=np.int64)
    later, kept = np.zeros(bases[-1], np.uint8), np.zeros(bases[-1], np.uint8)
    numbers = np.array(references if references else [0] * len(shards), np.int64)
    referred = np.zeros((numbers[-1] if references else 0, bases[-1]), np.uint8)
    most = np.zeros((_CANDIDATES, 3), np.int64)
    suffixes = int((lasts - firsts).sum())  # before mark_windows overwrites `firsts`
    if shards:
        mark_windows(
            np.array([shard.text.ctypes.data for shard in shards], np.int64),
            np.array([shard.text.size for shard in shards], np.int64),
            np.array([shard.suffixes.rows.ctypes.data for shard in shards], np.int64),
            np.array([shard.suffixes.pointer_bytes for shard in shards], np.int64),
            firsts,
            lasts,
            minimum_bytes,
            bases,
            numbers,
            later,
            kept,
            referred,
            most,
        )
    spans = list(pairwise(bases.tolist()))
    windows, first_of_several = ([_runs(bits[first:last]) for first, last in spans] for bits in (later, kept))
    matches = Matches.of_windows(windows, first_of_several, minimum_bytes, want_windows=True)
    if references:
        matches = replace(matches, referred=[_numbered_runs(referred[:, first:last]) for first, last in spans])
    repeated = [RepeatedWindow(*row) for row in most.tolist() if row[0]]
    return matches, _apart(shards, repeated, minimum_bytes), {"suffixes": suffixes}


def ranks_of(shard: SortedShard, string: bytes) -> tuple[int, int]:
    """The ranks (first, one past the last) of the suffixes that begin with `string`."""
    every = range(len(shard.suffixes))
    beginning = partial(_beginning, shard, length=len(string))
    return bisect_left(every, string, key=beginning), bisect_right(every, string, key=beginning)


def _apart(
    shards: Sequence[SortedShard], windows: Sequence[RepeatedWindow], minimum_bytes: int
) -> list[RepeatedWindow]:
    """At most LISTED windows, without those that contain the middle half of one before, as neighbouring windows do."""
    listed: list[RepeatedWindow] = []
    middles: list[bytes] = []
    for window in windows:
        string = shards[window.shard].text[window.position : window.position + minimum_bytes].tobytes()
        if len(listed) < LISTED and not any(middle in string for middle in middles):
            listed.append(window)
            middles.append(string[minimum_bytes // 4 : -(minimum_bytes // 4)])
    return listed


def _ranks(shards: Sequence[SortedShard], cut: int, cuts: int, minimum_bytes: int) -> NDArray[np.int64]:
    """The rank in every shard at which part `cut` of `cuts` begins."""
    if not shards or cut in {0, cuts}:
        return np.array([len(shard.suffixes) if cut else 0 for shard in shards], np.int64)
    largest = max(shards, key=lambda shard: len(shard.suffixes))
    beginning = _beginning(largest, len(largest.suffixes) * cut // cuts, min(minimum_bytes, _CUT_BYTES))
    return np.array([ranks_of(shard, beginning)[0] for shard in shards], np.int64)


def _beginning(shard: SortedShard, rank: int, length: int) -> bytes:
    if rank >= len(shard.suffixes):
        return b"\xff" * (length + 1)
    (start,) = shard.suffixes.starts(rank, rank + 1).tolist()
    return shard.text[start : start + length].tobytes()


def _numbered_runs(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The runs of each row of bits as rows (first, one past the last, number of the row), uint64 (r, 3), ascending."""
    runs = [np.insert(_runs(row), 2, number, axis=1) for number, row in enumerate(bits)]
    joined = np.concatenate([np.empty((0, 3), np.uint64), *runs])
    return joined[np.argsort(joined[:, 0], kind="stable")]


def _runs(bits: NDArray[np.uint8]) -> Ranges:
    """Runs of set bits as rows (first, one past the last), uint64 (r, 2), ascending."""
    runs = [np.empty((0, 2), np.uint64)]
    for first in range(0, len(bits), _BIT_BYTES):
        unpacked = np.unpackbits(bits[first : first + _BIT_BYTES])
        edges = np.flatnonzero(np.diff(unpacked, prepend=np.uint8(0), append=np.uint8(0))) + 8 * first
        runs.append(edges.reshape(-1, 2).astype(np.uint64))
    return union_ranges(np.concatenate(runs))
