"""Where a record goes: a cell and a place in it, from its identity alone."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import ConfigError
from pipeline.fingerprint import canonical_json

MINIMUM_CELLS = 4  # so that a small dataset still spreads over a few workers
MAXIMUM_CELLS = 200  # mapped tasks of gather
COPIES_IN_MEMORY = 2.5  # a cell as read, the same permuted, its rows and keys


def cells_needed(token_bytes: int, memory_bytes: int) -> int:
    """Number of cells so that gathering one stays within `memory_bytes`; ConfigError if no allowed number does.

    Cells differ in size by chance; COPIES_IN_MEMORY leaves room for that.
    """
    cells = max(MINIMUM_CELLS, -(-int(token_bytes * COPIES_IN_MEMORY) // memory_bytes))
    if cells > MAXIMUM_CELLS:
        least = int(token_bytes * COPIES_IN_MEMORY) // MAXIMUM_CELLS + 1
        raise ConfigError(
            "shuffle.memory is too small for this dataset",
            expected=f"at least {least:,} bytes for {token_bytes:,} bytes of tokens in {MAXIMUM_CELLS} cells",
            got=f"{memory_bytes:,} bytes",
            next_step=f"set shuffle.memory: {-(-least // (1 << 20))}MiB",
        )
    return cells


def draw_placements(
    seed: int, kind: str, shard: int, records: int, cells: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """(cell uint32[records], key uint64[records]) of the records 0, 1, 2, ... of one shard.

    Record i uses words 2i and 2i+1 of the Philox-4x64 stream (Salmon et al., SC 2011) whose key is the first 128 bits
    of sha256 over (seed, kind, shard). Only the raw words are used: numpy guarantees those, not its distributions.
    """
    identity = canonical_json({"shuffle": kind, "seed": seed, "shard": shard})
    key = np.frombuffer(hashlib.sha256(identity).digest()[:16], "<u8").astype(np.uint64)
    words = np.random.Philox(key=key).random_raw(2 * records).reshape(-1, 2)
    # The upper 32 bits scaled to [0, cells): exact in 64-bit integers, bias at most cells / 2^32.
    drawn = ((words[:, 0] >> np.uint64(32)) * np.uint64(cells)) >> np.uint64(32)
    return drawn.astype(np.uint32), np.ascontiguousarray(words[:, 1])
