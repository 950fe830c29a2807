"""The kernels that compare the borders of slices. Called by borders.py only.

An item is a part of a slice: of its windows j (anchors.py) those from `low` to `low` + `part` - 1 that the anchor owns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.kernels.compiled import common_prefix, common_suffix, kernel, load_word, prefetch

_BLOCK_ITEMS = 32


@kernel
def _hash(address: Any, length: Any, keys: Any, word: Any) -> Any:
    """Part of a universal hash: words of 32 bits, each times a key of its own. Reads up to 7 bytes beyond `length`."""
    total = np.uint64(0)
    done = 0
    while done < length:
        value = load_word(address + done)
        if length - done < 8:
            value &= (np.uint64(1) << np.uint64(8 * (length - done))) - np.uint64(1)
        total += keys[word] * (value & np.uint64(0xFFFFFFFF)) + keys[word + 1] * (value >> np.uint64(32))
        word += 2
        done += 8
    return total


@kernel
def _hash_borders(edges: Any, place: Any, has_left: Any, left: Any, right: Any, group: Any, keys: Any) -> Any:
    """32 bits of `left` and `right` bytes beside a gram, how many they are, and the gram's group."""
    middle = edges + place + has_left
    total = keys[0] * np.uint64(group) + keys[1] * np.uint64(left) + keys[2] * np.uint64(right)
    total += _hash(middle - left, left, keys, 3) + _hash(middle, right, keys, 3 + len(keys) // 2)
    return total >> np.uint64(32)


@kernel
def _hash_items(
    edges: Any, members: Any, width: Any, items: Any, part: Any, keys: Any, table: Any, shift: Any, first: Any,
    values: Any,
) -> None:  # fmt: skip
    """Hash a block of items from `first` on, and prefetch what find_first_items will compare them with.

    In a large group each lookup misses the cache in a chain: a table slot, its item, its member, its bytes.
    """
    last = min(first + len(values), len(items))
    for item in range(first, last):
        low = np.int64(items[item, 1])
        group, place, has_left, has_right = members[items[item, 0]]
        left, right = min(has_left, low + part - 1), width - 1 - max(width - 1 - has_right, low)
        values[item - first] = _hash_borders(edges, place, has_left, left, right, group, keys)
        prefetch(table.ctypes.data + 8 * np.int64(values[item - first] >> shift))
    for step in range(3):
        for item in range(first, last):
            value = values[item - first]
            entry = table[np.int64(value >> shift)]
            if entry != 0 and entry >> np.uint64(32) == value:
                other = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
                if step == 0:
                    prefetch(items.ctypes.data + 8 * other)
                elif step == 1:
                    prefetch(members.ctypes.data + 32 * np.int64(items[other, 0]))
                else:
                    prefetch(edges + members[items[other, 0], 1])


@kernel
def find_first_items(
    edges: Any, members: Any, width: Any, items: Any, part: Any, keys: Any, table: Any, shift: Any, firsts: Any
) -> None:
    """For every item: the first item with as many windows of the same bytes.

    edges       address of the members' bytes, of which 8 more can be read
    members     int64 (m, 4): group of the gram, where in `edges`, bytes left of the gram, bytes right of it
    items       int32 (n, 2): member, low
    keys        uint64[k] of random secrets, k // 2 - 3 at least a word of 32 bits each for width - 1 bytes; nothing
                    returned depends on them. With them, no crafted text makes hashes collide more than by chance
    table       uint64[2 ** (32 - shift)], zeros, longer than n: hash << 32 | item + 1, at the high bits of the hash
    firsts      int32[n], filled
    """
    mask = len(table) - 1
    values = np.empty(_BLOCK_ITEMS, np.uint64)
    for item in range(len(items)):
        if item % _BLOCK_ITEMS == 0:
            _hash_items(edges, members, width, items, part, keys, table, shift, item, values)
        member, low = items[item, 0], np.int64(items[item, 1])
        group, place, has_left, has_right = members[member]
        left, right = min(has_left, low + part - 1), width - 1 - max(width - 1 - has_right, low)
        value = values[item % _BLOCK_ITEMS]
        slot = np.int64(value >> shift)
        firsts[item] = item
        while table[slot] != 0:
            if table[slot] >> np.uint64(32) == value:
                other_item = np.int64(table[slot] & np.uint64(0xFFFFFFFF)) - 1
                other, other_low = items[other_item, 0], np.int64(items[other_item, 1])
                other_group, other_place, other_left, other_right = members[other]
                same = group == other_group and left == min(other_left, other_low + part - 1)
                same = same and right == width - 1 - max(width - 1 - other_right, other_low)
                if same:
                    here, there = edges + place + has_left, edges + other_place + other_left
                    if common_prefix(here - left, there - left, left + right) == left + right:
                        firsts[item] = other_item
                        break
            slot = (slot + 1) & mask
        if table[slot] == 0:
            table[slot] = value << np.uint64(32) | np.uint64(item + 1)


@kernel
def hash_shared_borders(edges: Any, members: Any, width: Any, items: Any, part: Any, keys: Any, hashes: Any) -> None:
    """uint32 hash of the bytes that all windows of an item have beside the gram, whether the anchor owns them or not.

    Arguments as of find_first_items. An item has a window, so its member has these bytes.
    """
    for item in range(len(items)):
        low = np.int64(items[item, 1])
        group, place, has_left, _ = members[items[item, 0]]
        hashes[item] = np.uint32(_hash_borders(edges, place, has_left, low, width - low - part, group, keys))


@kernel
def match_pairs(  # noqa: PLR0912 - groups, members, those before them
    edges: Any, begins: Any, members: Any, width: Any, order: Any, first: Any, later: Any, earlier: Any
) -> Any:
    """Compare every slice with those before it in its group that are not covered by one slice before them.

    edges, members, width       as of find_first_items
    begins          int64 (m,): shard << 44 | where the gram begins
    order           int64 (n,): members, group by group, in dataset order within a group
    first           the place in `order` to begin with, where a group begins
    later           uint64 (c, 2), filled: first window start and one past the last, plus shard << 44, of windows that
                    occurred earlier; c is at least the square of the largest group
    earlier         uint64 (c, 3), filled: the same of the windows that they were found equal to, and the start of the
                    window that equals the first of these
    Rows of one slice may overlap; windows that they already hold are not searched again.
    Returns the place of the next group (it stops when there may be no room for it), and the rows filled of both.
    """
    filled = 0
    filled_earlier = 0
    while first < len(order):
        group = members[order[first], 0]
        stop = first + 1
        while stop < len(order) and members[order[stop], 0] == group:
            stop += 1
        if max(filled, filled_earlier) + (stop - first) * (stop - first) > len(later):
            return first, filled, filled_earlier
        stays = first  # order[first:stays] are those that are not covered; it is rearranged
        for at in range(first, stop):
            member = order[at]
            _, place, left, right = members[member]
            middle, least = edges + place + left, width - 1 - right
            covered = False
            known_low, known_most = 1, 0
            for before in range(first, stays):
                other = order[before]
                _, other_place, other_left, other_right = members[other]
                other_middle = edges + other_place + other_left
                most = common_suffix(middle, other_middle, min(left, other_left))
                low = width - 1 - common_prefix(middle, other_middle, min(right, other_right))
                if low > most:
                    continue
                if known_low <= low and most <= known_most:
                    continue
                earlier[filled_earlier, 0] = begins[other] - most
                earlier[filled_earlier, 1] = begins[other] - low + 1
                earlier[filled_earlier, 2] = begins[member] - most
                filled_earlier += 1
                if known_low <= known_most and low <= known_most + 1 and known_low <= most + 1:
                    known_low, known_most = min(known_low, low), max(known_most, most)
                else:
                    if known_low <= known_most:
                        later[filled, 0] = begins[member] - known_most
                        later[filled, 1] = begins[member] - known_low + 1
                        filled += 1
                    known_low, known_most = low, most
                if most == left and low == least:
                    covered = True
                    break
            if known_low <= known_most:
                later[filled, 0], later[filled, 1] = begins[member] - known_most, begins[member] - known_low + 1
                filled += 1
            if not covered:
                order[stays] = member
                stays += 1
        first = stop
    return first, filled, filled_earlier
