"""Which blocks of which files have been compared with their digests: by this process, or by any worker of a build.

    entry 0 | entry 1 | ...     16 B each: zeros, or the hash of a file; a build's processes share them

A file here is a path, an inode, a size and a time of change: one that changes is another file. Its hash says where its
entries begin, one for each of its blocks; an entry that holds this hash means that the block matched. Where the entries
of two files overlap the later ones stay, and the other file's blocks are compared again. So are those of an entry that
two processes write at once: halves of two hashes are no file's.

Price: at most 4 MiB for each build, in memory that needs no file system; 2 us for a file that is opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import xxhash

from corpusmill.lazy import lazily

with lazily:
    import numpy as np


ENTRY_BYTES = 16
TABLE_BYTES = ENTRY_BYTES << 18  # for 256 GiB of files

_tables = [memoryview(bytearray(TABLE_BYTES))]
"""One: the table in use."""


def use(memory: Any) -> None:
    """From now on use these entries, zeros at first."""
    _tables[:] = [memoryview(memory).cast("B")]


def forget() -> None:
    """Nothing has been compared."""
    use(bytearray(TABLE_BYTES))


class ComparedBlocks:
    """The entries of a file's blocks. A file with more blocks than there are entries has none."""

    def __init__(self, path: str, status: os.stat_result, blocks: int) -> None:
        self._hash = xxhash.xxh3_128_digest(repr((path, status.st_ino, status.st_size, status.st_ctime_ns)).encode())
        [entries] = _tables
        places = len(entries) // ENTRY_BYTES - blocks + 1
        first = int.from_bytes(self._hash[:8], "little") % places * ENTRY_BYTES if places > 0 else 0
        self._own = entries[first : first + (blocks * ENTRY_BYTES if places > 0 else 0)]

    def missing(self, begin: int, end: int) -> list[int]:
        """The blocks among [begin, end) that are not known to have been compared."""
        held = bytes(self._own[begin * ENTRY_BYTES : end * ENTRY_BYTES])
        if held == self._hash * (end - begin):
            return []
        places = range(0, (end - begin) * ENTRY_BYTES, ENTRY_BYTES)
        return [begin + number for number, at in enumerate(places) if held[at : at + ENTRY_BYTES] != self._hash]

    def add(self, blocks: Iterable[int]) -> None:
        """These blocks matched."""
        if self._own:
            for number in blocks:
                self._own[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES] = self._hash

    def add_all_of(self, before: ComparedBlocks) -> None:
        """These blocks are those of a file before others of its blocks were written: what matched still does."""
        own, earlier, own_hash, earlier_hash = (
            np.frombuffer(entries, np.uint64).reshape(-1, 2)
            for entries in (self._own, before._own, self._hash, before._hash)
        )
        own[(earlier == earlier_hash).all(axis=1)] = own_hash
