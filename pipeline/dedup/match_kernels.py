"""The kernels behind matches.py: find anchors with equal hashes, walk them in text order, split crowded groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from corpusmill.dedup.addresses import bytes_hash, common_prefix, common_suffix
from corpusmill.words import load_word, prefetch

CROWDED = 1 << 62
"""Stands where a group's number of representatives stood: the group is left to the next level."""

_NUMBERED = np.uint64(1 << 63)

_LOOK_AHEAD = 12
"""Anchors between a prefetch and its use: about 12 x 15 ns of work hide one trip to memory."""


@njit(nogil=True, cache=True)
def find_groups(  # noqa: PLR0912, PLR0915 - three passes over each bucket, inside one allocation of the table
    anchors: Any, starts: Any, most: Any, key: Any, found: Any, found_starts: Any, found_ends: Any
) -> Any:
    """Keep the anchors whose hash another anchor shares, and give every group its slots, in order of first anchors.

    anchors         int64[S]: address of shard s's rows (hash, place), by bucket, in text order within a bucket
    starts          int64[B + 1, S]: each shard's first row of each of B buckets, and its end
    most            representatives a group may have; it gets 1 + min(most, its size) slots
    key             odd uint64 that nobody knows: places in the table are the high bits of hash x key. bytes_hash can be
                    inverted, so text can be made whose hashes would share a place; nothing returned depends on the key
    found           uint64 (n, 2), filled: place, first slot of its group; shard s from found_starts[s] to
                    found_ends[s], which are int64[S]; there is room for all anchors of the shard
    Returns the number of slots.
    """
    shards = len(anchors)
    buckets = len(starts) - 1
    largest = 0
    for bucket in range(buckets):
        largest = max(largest, (starts[bucket + 1] - starts[bucket]).sum())
    size = 16
    while size < 2 * largest:
        size *= 2
    table = np.empty((size, 2), np.uint64)  # hash; anchors counted (0: free), then _NUMBERED + first slot
    where = np.empty(largest, np.int64)
    found_ends[:] = found_starts
    slots = 0
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
            address = anchors[shard] + 16 * starts[bucket, shard]
            stop = anchors[shard] + 16 * starts[bucket + 1, shard]
            while address < stop:
                if address + 16 * _LOOK_AHEAD < stop:
                    prefetch(table.ctypes.data + 16 * np.int64(load_word(address + 16 * _LOOK_AHEAD) * key >> shift))
                value = load_word(address)
                slot = np.int64(value * key >> shift)
                while table[slot, 1] != 0 and table[slot, 0] != value:
                    slot = (slot + 1) & mask
                table[slot, 0] = value
                table[slot, 1] += np.uint64(1)
                where[row] = slot
                row += 1
                address += 16
        row = 0
        for shard in range(shards):
            address = anchors[shard] + 16 * starts[bucket, shard]
            stop = anchors[shard] + 16 * starts[bucket + 1, shard]
            to = found_ends[shard]
            while address < stop:
                if row + _LOOK_AHEAD < rows:
                    prefetch(table.ctypes.data + 16 * where[row + _LOOK_AHEAD])
                count = table[where[row], 1]
                if np.uint64(1) < count < _NUMBERED:
                    table[where[row], 1] = _NUMBERED + np.uint64(slots)
                    slots += 1 + min(most, np.int64(count))
                if count > np.uint64(1):
                    found[to, 0] = load_word(address + 8)
                    found[to, 1] = table[where[row], 1] - _NUMBERED
                    to += 1
                row += 1
                address += 16
            found_ends[shard] = to
    return slots


@njit(nogil=True, cache=True)
def sort_by_position(rows: Any, spare: Any, positions: Any) -> Any:
    """Radix sort of `rows` (n, 2) by the position in column 0; True if the result is in `spare` and not in `rows`.

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


@njit(nogil=True, cache=True)
def walk_anchors(  # noqa: PLR0912, PLR0915 - one anchor from place to verdict, read from top to bottom
    texts: Any,
    sizes: Any,
    shard: Any,
    found: Any,
    found_starts: Any,
    found_ends: Any,
    start: Any,
    slots: Any,
    minimum_bytes: Any,
    kgram_bytes: Any,
    most: Any,
    farthest: Any,
    crowded: Any,
    windows: Any,
    earlier: Any,
) -> Any:
    """Match the anchors of one shard, in text order, with the representatives of their groups.

    An anchor that owns the first occurrence of a window is never covered, so it becomes a representative, or goes to
    the next level with its crowded group: whatever comes later finds it. What is emitted was compared byte for byte.

    texts, sizes    int64[S]: address and length of every shard's text
    found           uint64 (n, 2), as find_groups left it, each shard's rows sorted by position
    start           the row to begin with
    slots           int64, updated: per group the number of representatives, then shard << 44 | position of each
    most            representatives after which a group is crowded
    farthest        bytes by which a match may be followed beyond its windows, so that later anchors need no look
    crowded         uint8[n], set to 1 at the rows that go to the next level
    windows         uint64 (c, 2), filled: first window start and one past the last of windows that occurred earlier
    earlier         uint64 (c, 2) or (0, 2): if it has rows, filled with what those were found equal to, both bounds as
                    shard << 44 | position. The first of equal windows is always among it: the second has no other
    Returns the next row to do (it stops when one of them is nearly full), and the rows filled of both.
    """
    text = texts[shard]
    stop = found_ends[shard]
    slots_address = slots.ctypes.data
    most_emitted = 1 if kgram_bytes == minimum_bytes else most  # a k-gram that is a whole window covers it
    filled = 0
    filled_earlier = 0
    room_earlier = len(earlier) if len(earlier) > 0 else 1 << 62
    known_begin = np.int64(0)  # text[known_begin:known_end] occurred earlier as one piece,
    known_end = np.int64(0)
    known_shift = np.int64(0)  # whose places are these plus that
    row = start
    while row < stop and filled + most_emitted <= len(windows) and filled_earlier + most_emitted <= room_earlier:
        if row + _LOOK_AHEAD < stop:
            prefetch(slots_address + 8 * np.int64(found[row + _LOOK_AHEAD, 1]))
        place = found[row, 0]
        position = np.int64(place >> np.uint64(20))
        before = np.int64(place >> np.uint64(10)) & 1023
        first = position - before
        last = first + (np.int64(place) & 1023)
        slot = np.int64(found[row, 1])
        row += 1
        if first >= known_begin and last + minimum_bytes <= known_end:
            filled = _add_windows(windows, filled, first, last + 1)
            if len(earlier) > 0:
                filled_earlier = _add_windows(earlier, filled_earlier, known_shift + first, known_shift + last + 1)
            continue
        count = slots[slot]
        if count == CROWDED:
            crowded[row - 1] = 1
            continue
        here = shard << 44 | position
        after = last + minimum_bytes - position  # bytes from the anchor's first to the last window's last
        covered = False
        for candidate in range(slot + 1, slot + 1 + count):
            other = slots[candidate]
            if other == here:
                continue  # two slices of neighbouring anchors may start at one place
            other_text = texts[other >> 44]
            other_position = other & ((1 << 44) - 1)
            room = sizes[other >> 44] - other_position
            right = common_prefix(text + position, other_text + other_position, min(after, room))
            if right < kgram_bytes:
                continue  # another k-gram with the same hash
            left = common_suffix(text + position, other_text + other_position, min(before, other_position))
            if left + right < minimum_bytes:
                continue
            filled = _add_windows(windows, filled, position - left, position + right - minimum_bytes + 1)
            if len(earlier) > 0:
                filled_earlier = _add_windows(earlier, filled_earlier, other - left, other + right - minimum_bytes + 1)
            if left == before and right == after:
                covered = True
                known_begin = first
                known_end = position + after
                known_shift = other - position
                if farthest > 0:
                    reach = min(farthest, room - after, sizes[shard] - known_end)
                    known_end += common_prefix(text + known_end, other_text + other_position + after, reach)
                break
        if covered:
            continue
        if count < most:
            slots[slot + 1 + count] = here
            slots[slot] = count + 1
        else:
            slots[slot] = CROWDED
            crowded[row - 1] = 1
            for candidate in range(slot + 1, slot + 1 + count):
                other = slots[candidate] >> 44
                _mark(found, found_starts[other], found_ends[other], slots[candidate] & ((1 << 44) - 1), crowded)
    return row, filled, filled_earlier


@njit(nogil=True, cache=True)
def find_periods(text: Any, repeats: Any, state: Any, minimum_bytes: Any, most_period: Any, earlier: Any) -> Any:
    """For windows that equal one a period earlier: which those are. Returns the rows of `earlier` filled.

    text            address of the shard's text
    repeats         uint64 (r, 2): first window start, one past the last; each equals one at most `most_period` earlier
    state           int64[2], updated: row of `repeats` and window start to go on from (0: the row's first)
    earlier         uint64 (c, 2), filled: as for walk_anchors, but positions of this shard

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
                filled += 1
            position += windows
        state[0] += 1
        state[1] = 0
    return filled


@njit(nogil=True, cache=True)
def _mark(found: Any, low: Any, high: Any, position: Any, crowded: Any) -> None:
    """Set `crowded` at the rows of `position` among found[low:high], which is sorted by position."""
    stop = high
    while low < high:
        middle = (low + high) // 2
        if np.int64(found[middle, 0] >> np.uint64(20)) < position:
            low = middle + 1
        else:
            high = middle
    while low < stop and np.int64(found[low, 0] >> np.uint64(20)) == position:
        crowded[low] = 1
        low += 1


@njit(nogil=True, cache=True)
def _add_windows(windows: Any, filled: Any, first: Any, stop: Any) -> Any:
    if filled > 0 and np.int64(windows[filled - 1, 0]) <= first <= np.int64(windows[filled - 1, 1]):
        windows[filled - 1, 1] = np.uint64(max(stop, np.int64(windows[filled - 1, 1])))
        return filled
    windows[filled, 0] = np.uint64(first)
    windows[filled, 1] = np.uint64(stop)
    return filled + 1


@njit(nogil=True, cache=True)
def slice_crowded(text: Any, rows: Any, slice_windows: Any, gram_bytes: Any, turn: Any, turns: Any, slices: Any) -> Any:
    """Cut the open anchors of crowded groups into slices with a longer gram; returns the rows of `slices` filled.

    A slice is the anchor's windows that start between n x slice_windows and (n + 1) x slice_windows - 1 bytes before
    the anchor. They all contain the L - slice_windows + 1 = `gram_bytes` bytes from n x slice_windows before it:
    that is an anchor again, with a longer k-gram, and equal windows are in slices of equal grams at equal offsets.

    text            address of the shard's text
    rows            uint64 (n, 2): place, not used
    turn, turns     only slices whose hash is `turn` modulo `turns` are made: all slices of a group, or none
    slices          uint64 (c, 2), filled: hash, place
    """
    filled = 0
    for row in range(len(rows)):
        place = rows[row, 0]
        position = np.int64(place >> np.uint64(20))
        most_before = np.int64(place >> np.uint64(10)) & 1023
        least_before = most_before - (np.int64(place) & 1023)
        for number in range(most_before // slice_windows, least_before // slice_windows - 1, -1):
            start = number * slice_windows
            high = min(most_before, start + slice_windows - 1)
            low = max(least_before, start)
            value = bytes_hash(text + position - start, gram_bytes)
            if turns > 1 and (np.int64(value >> np.uint64(20)) & 0xFFFFFFFF) % turns != turn:
                continue  # bits that neither the bucket nor a small table uses
            slices[filled, 0] = value
            slices[filled, 1] = np.uint64((position - start) << 20 | (high - start) << 10 | (high - low))
            filled += 1
    return filled
