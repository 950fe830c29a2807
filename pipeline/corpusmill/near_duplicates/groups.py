"""Which documents share a key: rows of all shards, sorted into partitions by key, become pairs to compare.

    keys            key u64 | tag u32 | document u32      16 bytes each: a row for every key of a document of the shard
    keys.index      u64: the first row of each bucket (key >> 52) of each batch of BATCH_DOCUMENTS documents

The documents of a partition that share a key are a group. Each is paired with earlier ones of its group, with all of
them while it has few, in a large group with `LEADERS` of them: half are the group's first, which are those that are
kept if all are alike, half the last before it. Documents with equal digests (the tag) count once among the leaders.
What that leaves out is counted. The digest is a key, too, so equal documents always meet the first of their kind.
Documents of references (`dedup.against`) come first, lead their groups, and are not paired with each other.

    pairs           sections by shard: document u64 | earlier document, of any shard, u64 (see numbered), with EQUAL if
                    they were found by their digests
    leaders         sections by shard: the documents that are the earlier one of a pair u64, ascending
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.sections import Sections, SectionWriter, write_sections
from corpusmill.kernels.compiled import kernel

KEYS, PAIRS, LEADERS_FILE = "keys", "pairs", "leaders"
BUCKETS = 4096
BATCH_DOCUMENTS = 1 << 16
LEADERS = 16
EQUAL = np.uint64(1 << 63)
ROW = np.dtype([("key", "<u8"), ("tag", "<u4"), ("document", "<u4")])

_CHUNK = 1 << 16
_SHARD = np.uint64(32)
_FIRST = LEADERS // 2


def numbered(shard: int, documents: NDArray[Any]) -> NDArray[np.uint64]:
    """uint64: the numbers among all documents, in their order, of documents of a shard."""
    return documents.astype(np.uint64) | np.uint64(shard) << _SHARD


def shards_of(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64: the shards of numbered documents."""
    return (numbers >> _SHARD).astype(np.int64)


def documents_of(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64: the documents in their shards of numbered documents."""
    return (numbers & np.uint64(0xFFFFFFFF)).astype(np.int64)


class KeyWriter:
    """Writes the rows of one shard: `append` the keys of its documents in order, uint64 (documents, bands + 1)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[NDArray[np.uint64]] = []
        self._starts = [np.zeros(1, np.int64)]
        self._documents = self._written = self.rows = 0

    def __enter__(self) -> KeyWriter:
        self._file = (self._folder / KEYS).open("wb")
        return self

    def append(self, keys: NDArray[np.uint64]) -> None:
        """The keys of the next documents, and last their digests."""
        self._waiting.append(keys)
        self._documents += len(keys)
        if self._documents - self._written >= BATCH_DOCUMENTS:
            self._flush()

    def _flush(self) -> None:
        keys = np.concatenate(self._waiting) if self._waiting else np.empty((0, 1), np.uint64)
        rows = np.empty(keys.size, ROW)
        rows["key"] = keys.ravel()
        rows["tag"] = np.repeat(keys[:, -1].astype(np.uint32), keys.shape[1])
        rows["document"] = np.repeat(np.arange(self._written, self._documents, dtype=np.uint32), keys.shape[1])
        buckets = (rows["key"] >> np.uint64(52)).astype(np.uint16)
        self._file.write(rows[np.argsort(buckets, kind="stable")].data)
        self._starts.append(self.rows + np.cumsum(np.bincount(buckets, minlength=BUCKETS)))
        self.rows += len(rows)
        self._written, self._waiting = self._documents, []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._waiting:
            self._flush()
        self._file.close()
        (self._folder / f"{KEYS}.index").write_bytes(np.concatenate(self._starts).astype("<u8").data)


def propose(
    shards: Sequence[Sections], partition: int, partitions: int, folder: Path, references: int = 0
) -> dict[str, int]:
    """Write the pairs of a partition; returns counts: rows, pairs, pairs_left_out.

    `shards`: their folders of keys, in order, of which the first `references` are not paired with earlier documents;
    `partitions` divides BUCKETS.
    """
    first, last = partition * BUCKETS // partitions, (partition + 1) * BUCKETS // partitions
    rows, numbers = _rows_of(shards, first, last)
    order = np.argsort(rows["key"], kind="stable")
    grouped = _shared(rows["key"][order])
    order = order[grouped]
    keys, tags, numbers = rows["key"][order], rows["tag"][order], numbers[order]
    read = len(rows)
    del rows, order
    counts = np.zeros(len(shards), np.int64)
    left_out = 0
    leads = np.zeros(len(keys), np.bool_)
    for pairs, missed in _pairs(keys, tags, numbers, leads, references):
        counts += np.bincount(shards_of(pairs[:, 0]), minlength=len(shards))
        left_out += missed
    with SectionWriter(folder, PAIRS, counts.tolist(), 16) as writer:
        for pairs, _ in _pairs(keys, tags, numbers, leads, references):
            of_shard = shards_of(pairs[:, 0]).astype(np.min_scalar_type(len(shards)))
            pairs[:, 0] = documents_of(pairs[:, 0])
            by_shard = np.argsort(of_shard, kind="stable")
            bounds = np.searchsorted(of_shard[by_shard], np.arange(len(shards) + 1))
            for shard in np.flatnonzero(np.diff(bounds)).tolist():
                writer.append(shard, pairs[by_shard[bounds[shard] : bounds[shard + 1]]])
    leaders = np.unique(numbers[leads])
    bounds = np.searchsorted(leaders, numbered(0, np.arange(len(shards) + 1)) << _SHARD)
    own = [documents_of(leaders[bounds[shard] : bounds[shard + 1]]) for shard in range(len(shards))]
    write_sections(folder, LEADERS_FILE, own)
    return {"rows": read, "pairs": int(counts.sum()), "pairs_left_out": left_out}


def _rows_of(shards: Sequence[Sections], first: int, last: int) -> tuple[NDArray[Any], NDArray[np.uint64]]:
    """The rows of the buckets [first, last) of all shards in order, and the number of the document of each."""
    rows, numbers = [np.empty(0, ROW)], [np.empty(0, np.uint64)]
    for number, shard in enumerate(shards):
        for batch in range(len(shard.whole(f"{KEYS}.index")) // BUCKETS):
            own = shard.read_range(KEYS, batch * BUCKETS + first, batch * BUCKETS + last, ROW)
            rows.append(own)
            numbers.append(numbered(number, own["document"]))
    return np.concatenate(rows), np.concatenate(numbers)


def _shared(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of these sorted keys another one equals."""
    same = np.zeros(len(keys) + 1, np.bool_)
    same[1:-1] = keys[1:] == keys[:-1]
    shared: NDArray[np.bool_] = same[1:] | same[:-1]
    return shared


def _pairs(
    keys: NDArray[np.uint64],
    tags: NDArray[np.uint32],
    numbers: NDArray[np.uint64],
    leads: NDArray[np.bool_],
    references: int,
) -> Iterator[tuple[NDArray[np.uint64], int]]:
    """(uint64 (n, 2): later and earlier document of each pair; how many pairs were left out), chunk by chunk; sets
    `leads` of the rows of earlier documents.
    """
    state, leaders = np.zeros(2, np.int64), np.empty(LEADERS, np.int64)
    pairs = np.empty((min(_CHUNK, len(keys)) * LEADERS, 2), np.uint64)
    own = np.uint64(references) << _SHARD
    for first in range(0, len(keys), _CHUNK):
        last = min(first + _CHUNK, len(keys))
        filled, missed = pair_rows(keys, tags, numbers, own, first, last, state, leaders, leads, pairs)
        yield pairs[:filled].copy(), missed


@kernel
def pair_rows(
    keys: Any, tags: Any, numbers: Any, own: Any, first: Any, last: Any, state: Any, leaders: Any, leads: Any,
    pairs: Any,
) -> Any:  # fmt: skip
    """Pair the documents of rows [first, last) with the leaders of their groups; returns (pairs, pairs left out).

    keys, tags, numbers     of the rows, by key, then number
    own                     the least number that is paired with earlier ones
    state, leaders          of the group that the row before `first` belongs to: how many leaders it has, how many
                            documents it has had; the row of each leader
    leads                   set for the rows of documents that are the earlier one of a pair
    pairs                   uint64 (LEADERS x rows, 2), filled: later, earlier
    """
    filled = missed = 0
    for row in range(first, last):
        if row == 0 or keys[row] != keys[row - 1]:
            state[0] = state[1] = 0
        known = False
        equal = EQUAL if np.uint32(keys[row] & np.uint64(0xFFFFFFFF)) == tags[row] else np.uint64(0)
        for leader in range(state[0]):
            earlier = leaders[leader]
            known = known or tags[earlier] == tags[row]
            if numbers[row] >= own and numbers[earlier] != numbers[row]:
                pairs[filled, 0], pairs[filled, 1] = numbers[row], numbers[earlier] | equal
                leads[earlier] = True
                filled += 1
        missed += (state[1] - state[0]) * (numbers[row] >= own)
        if not known:
            place = state[0]
            if place == LEADERS:
                for leader in range(_FIRST, LEADERS - 1):
                    leaders[leader] = leaders[leader + 1]
                place = LEADERS - 1
            leaders[place] = row
            state[0] = place + 1
            state[1] += 1
    return filled, missed
