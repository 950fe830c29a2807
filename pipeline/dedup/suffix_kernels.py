"""The kernel behind suffix_matches.py: walk the suffix arrays of all shards at once, in the order of their windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.dedup.addresses import common_prefix
from corpusmill.kernels import kernel
from corpusmill.words import load_byte


@kernel
def _pointer(table: Any, width: Any, rank: Any) -> Any:
    """The `width` bytes at `rank` of the table at an address, as int64."""
    value = np.int64(0)
    for byte in range(width - 1, -1, -1):
        value = value << 8 | load_byte(table + width * rank + byte)
    return value


@kernel
def _order(texts: Any, sizes: Any, first_shard: Any, first: Any, second_shard: Any, second: Any, length: Any) -> Any:
    """-1, 0 or 1 if the first suffix, cut to `length` bytes, sorts before, equals or sorts after the second."""
    first_size = min(length, sizes[first_shard] - first)
    second_size = min(length, sizes[second_shard] - second)
    same = common_prefix(texts[first_shard] + first, texts[second_shard] + second, min(first_size, second_size))
    if same == min(first_size, second_size):
        return int(first_size > second_size) - int(first_size < second_size)
    return 1 if load_byte(texts[first_shard] + first + same) > load_byte(texts[second_shard] + second + same) else -1


@kernel
def _byte_before(text: Any, position: Any) -> Any:
    """The byte before a position, -1 at a document's beginning."""
    byte = np.int64(load_byte(text + position - 1)) if position > 0 else np.int64(0xFF)
    return np.int64(-1) if byte == 0xFF else byte


@kernel
def _sink(heap: Any, size: Any, place: Any, texts: Any, sizes: Any, heads: Any, length: Any) -> None:
    """Restore the heap of shards (least head first; of equal ones the first shard) below `place`."""
    while True:
        least = place
        for child in (2 * place + 1, 2 * place + 2):
            if child < size:
                shard, other = heap[child], heap[least]
                order = _order(texts, sizes, shard, heads[shard], other, heads[other], length)
                if order < 0 or (order == 0 and shard < other):
                    least = child
        if least == place:
            return
        heap[place], heap[least] = heap[least], heap[place]
        place = least


@kernel
def _set(bits: Any, base: Any, position: Any) -> None:
    bits[base + (position >> 3)] |= np.uint8(128 >> (position & 7))


@kernel
def _rank_among_most(most: Any, count: Any, shard: Any, position: Any) -> None:
    """Insert (count, shard, position) into `most`, sorted by count descending, then by place."""
    row = len(most)
    while row > 0:
        before = most[row - 1]
        if before[0] > count or (before[0] == count and (before[1], before[2]) < (shard, position)):
            break
        if row < len(most):
            most[row] = before
        row -= 1
    if row < len(most):
        most[row] = (count, shard, position)


@kernel
def mark_windows(  # noqa: PLR0912, PLR0915 - one walk, from the heap to the marks
    texts: Any,
    sizes: Any,
    tables: Any,
    widths: Any,
    ranks: Any,
    stops: Any,
    minimum_bytes: Any,
    bases: Any,
    references: Any,
    later: Any,
    kept: Any,
    referred: Any,
    most: Any,
) -> Any:
    """Mark every window that occurred earlier, and the first of every window that occurs again.

    texts, sizes    int64[S]: address and length of every shard's text
    tables, widths  int64[S]: address of every shard's table, and bytes of a pointer in it
    ranks, stops    int64[S]: the ranks to walk; equal windows must all lie inside or all outside. `ranks` is
    overwritten bases           int64[S]: where each shard's bits begin references      int64[S], ascending: the number
    of the reference that a shard belongs to, one more for all others later, kept     uint8[], updated: bit 7 - p % 8 of
    byte base + p / 8 is set for a window that starts at p and is not
                    the first (later), or is the first of several (kept)
    referred        uint8 (references, bytes), updated: the same for windows whose first place is in a shard of a lower
                    number, in the row of that number
    most            int64 (r, 3), updated: count, and first shard and position in the dataset, of the dataset's windows
                    that occur most often; of a longer string's windows only the first, because all places of the others
                    follow the same byte
    Returns the number of marks in `later`.

    A heap holds the next suffix of every shard. Equal windows come out together, those of the first shard first; of
    them the first by (shard, position) is kept. Windows that hold a separator or reach beyond the end are skipped.
    """
    shards = len(texts)
    heads = np.zeros(shards, np.int64)
    heap = np.empty(shards, np.int64)
    size = 0
    for shard in range(shards):
        if ranks[shard] < stops[shard]:
            heads[shard] = _pointer(tables[shard], widths[shard], ranks[shard])
            heap[size] = shard
            size += 1
    for place in range(size // 2, -1, -1):
        if place < size:
            _sink(heap, size, place, texts, sizes, heads, minimum_bytes)
    marked = 0
    while size > 0:
        leader_shard = heap[0]
        leader = heads[leader_shard]
        best_shard, best = leader_shard, leader
        own_shard, own = shards, np.int64(0)  # the first place outside references
        members = 0
        window = False
        after = -2  # the byte that all places of the window follow; -1: several, or a document's beginning
        while size > 0:
            shard = heap[0]
            head = heads[shard]
            if members > 0 and _order(texts, sizes, leader_shard, leader, shard, head, minimum_bytes) != 0:
                break
            members += 1
            if members == 2:
                window = sizes[leader_shard] - leader >= minimum_bytes
                for position in range(leader, leader + minimum_bytes):
                    window = window and load_byte(texts[leader_shard] + position) != 0xFF
                after = _byte_before(texts[leader_shard], leader)
            if window:
                if _byte_before(texts[shard], head) != after:
                    after = -1
                if references[shard] == references[shards - 1] and (shard, head) < (own_shard, own):
                    own_shard, own = shard, head
                if shard < best_shard or (shard == best_shard and head < best):
                    _set(later, bases[best_shard], best)
                    best_shard, best = shard, head
                else:
                    _set(later, bases[shard], head)
                if references[leader_shard] < references[shard]:
                    _set(referred[references[leader_shard]], bases[shard], head)
                marked += 1
            ranks[shard] += 1
            if ranks[shard] < stops[shard]:
                heads[shard] = _pointer(tables[shard], widths[shard], ranks[shard])
            else:
                size -= 1
                heap[0] = heap[size]
            _sink(heap, size, 0, texts, sizes, heads, minimum_bytes)
        if members > 1 and window:
            _set(kept, bases[best_shard], best)
            if references[leader_shard] == references[shards - 1]:
                own_shard, own = best_shard, best  # all places are the dataset's
            if after < 0 and own_shard < shards:
                _rank_among_most(most, members, own_shard, own)
    return marked
