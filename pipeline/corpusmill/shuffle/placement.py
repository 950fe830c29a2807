"""Draws a record's cell and its key from its identity alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corpusmill.fingerprint import random_words

MINIMUM_CELLS = 4  # so that a small dataset still spreads over a few workers
ROW_BYTES = 160  # per record, besides its tokens, while its cell is gathered: row, order, starts, lengths, provenance
SPREAD = 1.15  # cells differ in size by chance: five standard deviations of a cell of 1,100 records
PROCESS_BYTES = 216 << 20  # measured: an interpreter with numpy and compiled kernels, and one batch being read
LEAST_ROOM_BYTES = 32 << 20


def cells_needed(token_bytes: int, records: int, memory_bytes: int) -> int:
    """The number of cells with which a process that gathers one stays within `memory_bytes`.

    A budget below the base need of a process bounds only what a cell adds to it. The order of the records does not
    depend on the number (see cells_of).
    """
    room = memory_bytes - PROCESS_BYTES
    if room < LEAST_ROOM_BYTES:
        room = memory_bytes * 2 // 5
    needed = int((token_bytes + ROW_BYTES * records) * SPREAD)
    return max(MINIMUM_CELLS, -(-needed // room))


def draw_placements(
    seed: int | None, kind: str, shard: int, records: int, cells: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """(cell uint32[records], key uint64[records]) of the records 0, 1, 2, ... of one shard.

    Without a seed, for source order, the cell is 0 and the key is the record's number.
    The key of record i is word i of `random_words` of (seed, kind, shard).
    """
    if seed is None:
        return np.zeros(records, np.uint32), np.arange(records, dtype=np.uint64)
    words = random_words({"shuffle": kind, "seed": seed, "shard": shard})
    keys = np.asarray(words.random_raw(records), np.uint64).reshape(-1)
    return cells_of(keys, cells), keys


def cells_of(keys: NDArray[np.uint64], cells: int) -> NDArray[np.uint32]:
    """The cell of each key: its upper 32 bits scaled to [0, cells), exact in 64-bit integers, bias below cells / 2^32.

    It is monotonic in the key, so cell 0, cell 1, ... each ordered by key are all records ordered by key.
    """
    return (((keys >> np.uint64(32)) * np.uint64(cells)) >> np.uint64(32)).astype(np.uint32)
