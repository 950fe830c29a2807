"""The kernel that chooses anchors, and the one that puts them into buckets. Called by anchors.py only."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpusmill.kernels.compiled import common_prefix, kernel, load_word
from corpusmill.kernels.content_kernels import bytes_hash

BUCKETS = 4096
BUCKET_SHIFT, HASH_SHIFT = 52, 20
"""Anchors are grouped by the top 12 bits of their hash; the 32 bits below are kept."""

MOST_ANCHOR_WINDOWS = 1024
"""Windows that one anchor can own, so that `before` and `windows - 1` take 10 bits each beside 44 bits of position."""

MOST_TEXT_BYTES = 1 << 44

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@kernel
def _rank(text: Any, position: Any, near: Any, far: Any) -> Any:
    """Order of a k-gram among those of its window; the highest is the anchor. A function of the k-gram's bytes alone.

    The last 8 bytes less the 8 before them, multiplied: two loads and no carried state, whereas a rolling hash of k
    bytes waits for a multiplication per byte. Ranking by 16 bytes picks almost as few anchors as ranking by all k
    (measured: 1.5 % more at L = 100, 4 % more at L = 500). The difference of text that repeats every 1, 2, 4 or 8 bytes
    is 0, the lowest rank: rules and runs of spaces become anchors only where a window has nothing else.
    """
    return (load_word(text + position + near) - load_word(text + position + far)) * _SPREAD


@kernel
def _scan_back(text: Any, window: Any, width: Any, near: Any, far: Any, high_position: Any, high_rank: Any) -> Any:
    """Stack the positions with the highest rank of the rest of [window, window + width); returns the last index."""
    high = -1
    best_rank = np.uint64(0)
    for position in range(window + width - 1, window - 1, -1):
        rank = _rank(text, position, near, far)
        if rank >= best_rank:
            best_rank = rank
            high += 1
            high_position[high] = position
            high_rank[high] = rank
    return high


@kernel
def find_anchors(  # noqa: PLR0912, PLR0915 - one pass with much state; calls would have to return all of it
    text: Any, text_bytes: Any, offsets: Any, documents: Any, minimum_bytes: Any, kgram_bytes: Any, state: Any,
    anchors: Any, repeats: Any,
) -> Any:  # fmt: skip
    """Fill `anchors` (n, 2) and `repeats` (n, 2) from where `state` says; returns the rows written to each.

    text, offsets   addresses of uint8[text_bytes] and uint64[documents]
    state           int64[2], updated: document, window start from which to go on (at most the document's: its first)
    anchors         uint64: hash of the k-gram, place = position << 20 | before << 10 | windows - 1, in text order
    repeats         uint64: first window start, one past the last: windows equal to the one a period earlier

    It returns when everything is done (state[0] == documents) or when either array is full. What is found does not
    depend on where it stops: an anchor is a function of its windows, so work goes on at the first window of the
    anchor that was open.

    Sliding maximum over w = L - k + 1 ranks, by two stacks: ranks of one block of w positions are scanned backward into
    `high_*`, the positions that are the maximum of the rest of the block (the leftmost on ties), then positions after
    the block are scanned forward keeping their maximum. Every rank is computed at most twice (1.6 times on real text).

    Text repeats itself where the next anchor has the same k-gram (its distance is the period) or where the highest rank
    is 0 (8 is a multiple of the period); windows that equal the one a period earlier become one row of `repeats`.
    """
    width = minimum_bytes - kgram_bytes + 1
    near = kgram_bytes - 8
    far = max(kgram_bytes - 16, min(0, near))
    high_position = np.empty(width + 1, np.int64)
    high_rank = np.empty(width + 1, np.uint64)
    best: Any
    best_rank: Any
    anchors_found = 0
    repeated = 0
    document = state[0]
    window = state[1]
    while document < documents:
        begin = np.int64(load_word(offsets + 8 * document)) + 1
        end = np.int64(load_word(offsets + 8 * document + 8)) if document + 1 < documents else text_bytes
        last = end - minimum_bytes  # the last window start
        window = max(window, begin)
        anchor = np.int64(-1)  # the open anchor; its hash and its first window are set with it
        anchor_hash = np.uint64(0)
        anchor_window = window
        rebuild = True
        while window <= last:
            if rebuild:
                rebuild = False
                high = _scan_back(text, window, width, near, far, high_position, high_rank)
                best_rank = high_rank[high]
                best = high_position[high]
                ahead = window + width  # the first position not scanned forward
                ahead_best = ahead
                ahead_rank = np.uint64(0)

            # `best` is the anchor from `window` on: close the open one, unless the text repeats itself from here.
            best_hash = bytes_hash(text + best, kgram_bytes)
            if anchor >= 0:
                if anchors_found == len(anchors) or repeated == len(repeats):
                    state[0] = document
                    state[1] = anchor_window
                    return anchors_found, repeated
                anchors[anchors_found, 0] = anchor_hash
                anchors[anchors_found, 1] = _place(anchor, anchor_window, window)
                anchors_found += 1
                period = near - far if best_rank == np.uint64(0) and near > far else best - anchor
                if (best_rank == np.uint64(0) or best_hash == anchor_hash) and window - period >= begin:
                    same = common_prefix(text + window - period, text + window, end - window)
                    if same >= minimum_bytes:
                        repeats[repeated, 0] = np.uint64(window)
                        window += same - minimum_bytes + 1
                        repeats[repeated, 1] = np.uint64(window)
                        repeated += 1
                        anchor = np.int64(-1)
                        rebuild = True
                        continue
            anchor = best
            anchor_hash = best_hash
            anchor_window = window

            # Scan forward to the next change: a higher rank enters, or `best` leaves the window.
            stop = min(best, last) + width
            while ahead < stop:
                rank = _rank(text, ahead, near, far)
                if rank > ahead_rank:
                    ahead_rank = rank
                    ahead_best = ahead
                    if rank > best_rank:
                        break
                ahead += 1
            if ahead < stop:
                best = ahead
                best_rank = ahead_rank
                window = ahead - width + 1
                ahead += 1
            elif best == ahead_best:
                window = best + 1
                rebuild = True
            else:
                window = best + 1
                if window <= last:  # the last position of this window is `ahead`
                    rank = _rank(text, ahead, near, far)
                    if rank > ahead_rank:
                        ahead_rank = rank
                        ahead_best = ahead
                    ahead += 1
                    high -= 1
                    if high >= 0 and high_rank[high] >= ahead_rank:
                        best = high_position[high]
                        best_rank = high_rank[high]
                    else:
                        best = ahead_best
                        best_rank = ahead_rank
        if anchor >= 0:
            if anchors_found == len(anchors):
                state[0] = document
                state[1] = anchor_window
                return anchors_found, repeated
            anchors[anchors_found, 0] = anchor_hash
            anchors[anchors_found, 1] = _place(anchor, anchor_window, last + 1)
            anchors_found += 1
        document += 1
        window = 0
    state[0] = document
    state[1] = 0
    return anchors_found, repeated


@kernel
def _place(anchor: Any, first_window: Any, next_window: Any) -> Any:
    return np.uint64(anchor << 20 | (anchor - first_window) << 10 | (next_window - first_window - 1))


@kernel
def sort_into_buckets(anchors: Any, bucketed: Any, starts: Any) -> Any:
    """Copy `anchors` uint64 (n, 2) to `bucketed` uint32 (n, 3) by bucket, stable; returns the windows.

    Fills `starts` int64[BUCKETS + 1]. A row of `bucketed`: 32 bits of the hash, those below its bucket's; the place.
    """
    windows = np.int64(0)
    starts[:] = 0
    for row in range(len(anchors)):
        starts[np.int64(anchors[row, 0] >> np.uint64(BUCKET_SHIFT)) + 1] += 1
        windows += np.int64(anchors[row, 1] & np.uint64(1023)) + 1
    for before in range(BUCKETS):
        starts[before + 1] += starts[before]
    free = starts[:-1].copy()
    for row in range(len(anchors)):
        bucket = np.int64(anchors[row, 0] >> np.uint64(BUCKET_SHIFT))
        to = free[bucket]
        bucketed[to, 0] = np.uint32(anchors[row, 0] >> np.uint64(HASH_SHIFT))
        bucketed[to, 1] = np.uint32(anchors[row, 1])
        bucketed[to, 2] = np.uint32(anchors[row, 1] >> np.uint64(32))
        free[bucket] = to + 1
    return windows
