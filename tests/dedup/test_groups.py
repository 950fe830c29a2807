from __future__ import annotations

import time

import numpy as np

from corpusmill.dedup.match_kernels import find_groups


def groups_of(hashes: np.ndarray, key: int) -> tuple[int, np.ndarray]:
    """(slots, rows that were kept) of one shard whose anchors all lie in one bucket."""
    rows = np.stack([hashes, np.arange(len(hashes), dtype=np.uint64)], axis=1)
    kept = np.empty_like(rows)
    ends = np.zeros(1, np.int64)
    starts = np.array([[0], [len(rows)]])
    slots = find_groups(np.array([rows.ctypes.data]), starts, 4, np.uint64(key), kept, np.zeros(1, np.int64), ends)
    return slots, kept[: ends[0]]


def test_groups_of_hashes_made_to_share_a_place_take_no_longer_and_do_not_depend_on_the_key() -> None:
    """With the lowest bits as the place, 300,000 of these take 45,000,000,000 looks."""
    hashes = np.arange(1, 300_001, dtype=np.uint64) << np.uint64(20)
    hashes[-1] = hashes[7]
    groups_of(hashes[:2], 1)  # compiled
    began = time.monotonic()
    (slots, kept), (same_slots, same) = (groups_of(hashes, key) for key in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93))
    assert time.monotonic() - began < 5
    assert slots == same_slots == 3
    assert kept.tolist() == same.tolist() == [[7, 0], [299_999, 0]]


def test_groups_are_numbered_in_order_of_their_first_anchors() -> None:
    slots, kept = groups_of(np.array([9, 5, 7, 5, 9, 9], np.uint64), 3)
    assert slots == (1 + 3) + (1 + 2)
    assert kept.tolist() == [[0, 0], [1, 4], [3, 4], [4, 0], [5, 0]]
