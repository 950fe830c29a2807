"""The kernels behind shared.py, settle.py and matches.py: equal hashes, equal digests, hashes that occur again."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.kernels.compiled import common_prefix, kernel, load_word, prefetch

_NUMBERED = np.uint64(1 << 63)
_ROW = 12  # bytes of an anchor's row: hash u32, place u64
_LOW_HALF = np.uint64(0xFFFFFFFF)

_LOOK_AHEAD = 12
"""Rows between a prefetch and its use: about 12 x 15 ns of work hide one trip to memory."""


@kernel
def find_groups(  # noqa: PLR0912, PLR0915 - three passes over each bucket, inside one allocation of the table
    anchors: Any, starts: Any, key: Any, matches: Any, found_starts: Any, found_ends: Any
) -> Any:
    """Keep the anchors whose hash another anchor shares, and number the groups in order of their first anchors.

    anchors         int64[S]: address of shard s's rows (anchors.py), by bucket, in text order within a bucket
    starts          int64[B + 1, S]: each shard's first row of each of B buckets, and its end
    key             random secret odd uint64: places in the table are the high bits of hash x key. bytes_hash can be
                        inverted, so text could be crafted to fill one place; nothing returned depends on the key
    found           uint64 (n, 2), filled: place, group; shard s from found_starts[s] to found_ends[s], which are
                    int64[S]; there is room for all anchors of the shard
    Returns the number of groups.
    """
    shards = len(anchors)
    buckets = len(starts) - 1
    largest = 0
    for bucket in range(buckets):
        largest = max(largest, (starts[bucket + 1] - starts[bucket]).sum())
    size = 16
    while size < 2 * largest:
        size *= 2
    table = np.empty((size, 2), np.uint64)  # hash; anchors counted (0: free), then _NUMBERED + group
    where = np.empty(largest, np.int64)
    found_ends[:] = found_starts
    groups = 0
    for bucket in range(buckets):
        rows = (starts[bucket + 1] - starts[bucket]).sum()
        size = 16
        shift = np.uint64(60)
        while size < 2 * rows:
            size *= 2
            shift -= np.uint64(1)
        mask = size - 1
        table[:size, 1] = 0
        row = 0
        for shard in range(shards):
            address = anchors[shard] + _ROW * starts[bucket, shard]
            stop = anchors[shard] + _ROW * starts[bucket + 1, shard]
            while address < stop:
                if address + _ROW * _LOOK_AHEAD < stop:
                    ahead = load_word(address + _ROW * _LOOK_AHEAD) & _LOW_HALF
                    prefetch(table.ctypes.data + 16 * np.int64(ahead * key >> shift))
                value = load_word(address) & _LOW_HALF
                slot = np.int64(value * key >> shift)
                while table[slot, 1] != 0 and table[slot, 0] != value:
                    slot = (slot + 1) & mask
                table[slot, 0] = value
                table[slot, 1] += np.uint64(1)
                where[row] = slot
                row += 1
                address += _ROW
        row = 0
        for shard in range(shards):
            address = anchors[shard] + _ROW * starts[bucket, shard]
            stop = anchors[shard] + _ROW * starts[bucket + 1, shard]
            to = found_ends[shard]
            while address < stop:
                if row + _LOOK_AHEAD < rows:
                    prefetch(table.ctypes.data + 16 * where[row + _LOOK_AHEAD])
                count = table[where[row], 1]
                if np.uint64(1) < count < _NUMBERED:
                    table[where[row], 1] = _NUMBERED + np.uint64(groups)
                    groups += 1
                if count > np.uint64(1):
                    matches[to, 0] = load_word(address + 4)
                    matches[to, 1] = table[where[row], 1] - _NUMBERED
                    to += 1
                row += 1
                address += _ROW
            found_ends[shard] = to
    return groups


@kernel
def sort_by_position(rows: Any, spare: Any, positions: Any) -> Any:
    """Radix sort of `rows` uint64 (n, 2) by the position in column 0; returns whether the result is in `spare`.

    11 bits a pass, lowest first; only the bits that `positions`, one above the highest position, needs.
    """
    swapped = False
    counts = np.empty(2049, np.int64)
    shift = 20
    while (positions - 1) >> (shift - 20) > 0:
        counts[:] = 0
        source, target = (spare, rows) if swapped else (rows, spare)
        for row in range(len(source)):
            counts[(np.int64(source[row, 0] >> np.uint64(shift)) & 2047) + 1] += 1
        for before in range(2048):
            counts[before + 1] += counts[before]
        for row in range(len(source)):
            digit = np.int64(source[row, 0] >> np.uint64(shift)) & 2047
            target[counts[digit], 0] = source[row, 0]
            target[counts[digit], 1] = source[row, 1]
            counts[digit] += 1
        swapped = not swapped
        shift += 11
    return swapped


@kernel
def find_firsts(digests: Any, key: Any, table: Any, shift: Any, firsts: Any) -> None:
    """For every digest: the first row that has it.

    digests     uint64 (n, 2)
    key         odd uint64 that nobody knows; nothing returned depends on it
    table       int32[2 ** (64 - shift)], all -1, longer than n: rows, at the high bits of key x the digest's first half
    firsts      int32[n], filled
    """
    mask = len(table) - 1
    for row in range(len(digests)):
        if row + _LOOK_AHEAD < len(digests):
            ahead = np.int64(digests[row + _LOOK_AHEAD, 0] * key >> shift)
            prefetch(table.ctypes.data + 4 * ahead)
        slot = np.int64(digests[row, 0] * key >> shift)
        while table[slot] >= 0:
            other = table[slot]
            if digests[other, 0] == digests[row, 0] and digests[other, 1] == digests[row, 1]:
                break
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = row
        firsts[row] = table[slot]


_AGAIN = np.uint32(1 << 31)
_HASH = np.uint32((1 << 31) - 1)


@kernel
def mark_again(hashes: Any, wanted: Any, key: Any, table: Any, shift: Any, again: Any) -> Any:
    """Mark the rows whose hash another row has; returns how many are marked. Only the low 31 bits count, and 0 equals
    1.

    hashes      uint32[n]; only rows that are `wanted`, uint8[n], are looked at
    key         odd uint64 that nobody knows; nothing returned depends on it
    table       uint32[2 ** (64 - shift)], zeros, longer than n
    again       uint8[n], filled
    """
    mask = len(table) - 1
    marked = 0
    for turn in range(2):
        for row in range(len(hashes)):
            if row + _LOOK_AHEAD < len(hashes):
                ahead = max(np.uint32(1), hashes[row + _LOOK_AHEAD] & _HASH)
                prefetch(table.ctypes.data + 4 * np.int64(np.uint64(ahead) * key >> shift))
            if turn == 0:
                again[row] = 0
            if wanted[row] == 0:
                continue
            value = max(np.uint32(1), hashes[row] & _HASH)
            slot = np.int64(np.uint64(value) * key >> shift)
            while table[slot] != 0 and table[slot] & _HASH != value:
                slot = (slot + 1) & mask
            if turn == 0:
                table[slot] = value if table[slot] == 0 else value | _AGAIN
            elif table[slot] & _AGAIN:
                again[row] = 1
                marked += 1
    return marked


@kernel
def find_periods(text: Any, repeats: Any, state: Any, minimum_bytes: Any, most_period: Any, earlier: Any) -> Any:
    """For windows that equal one a period earlier, find those. Returns the number of rows filled.

    text            address of the shard's text
    repeats         uint64 (r, 2): first window start, one past the last; each equals one at most `most_period` earlier
    state           int64[2], updated: row of `repeats` and window start to go on from (0: the row's first)
    earlier         uint64 (c, 3), filled: first window start, one past the last, the window start that equals the first

    The period is not on disk: the shortest distance at which L bytes agree is one, and the only one for a window that
    occurred once before.
    """
    filled = 0
    while state[0] < len(repeats):
        stop = np.int64(repeats[state[0], 1])
        position = max(state[1], np.int64(repeats[state[0], 0]))
        while position < stop:
            if filled == len(earlier):
                state[1] = position
                return filled
            same = 0
            period = 0
            while same < minimum_bytes and period < min(most_period, position):
                period += 1
                limit = stop - position + minimum_bytes - 1
                same = common_prefix(text + position, text + position - period, limit)
            windows = max(1, same - minimum_bytes + 1)
            if same >= minimum_bytes:
                earlier[filled, 0] = np.uint64(position - period)
                earlier[filled, 1] = np.uint64(position - period + windows)
                earlier[filled, 2] = np.uint64(position)
                filled += 1
            position += windows
        state[0] += 1
        state[1] = 0
    return filled
