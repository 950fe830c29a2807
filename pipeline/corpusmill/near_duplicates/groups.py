"""Which documents share a key: rows of all shards, sorted into partitions by key, become pairs to compare.

    keys            key u64 | tag u32 | document u32      16 bytes each: a row for every key of a document of the shard
    keys.index      u64: the first row of each bucket (key >> 52) of each batch of BATCH_DOCUMENTS documents
    digests         u64 of each document of the shard

The documents of a partition that share a key are a group. While it has at most LEADERS, each is paired with all earlier
ones; then with the FIRST first, which are kept if all are alike, and with the last before it, because copies of one
page of a site often follow it. Documents with equal digests (the tag) count once among these leaders. Rows that have
fewer pairs than earlier documents are counted. The digest is a key, too, so equal documents always meet the first of
their kind. Documents of references (`dedup.against`) come first, lead their groups, and are not paired with each other.

    pairs           sections by block, then shard: document u64 | earlier document, of any shard, u64 (see numbered),
                    with EQUAL if they were found by their digests
    leaders         sections by shard: the documents that are the earlier one of a pair u64, ascending

Memory: `most_rows` rows, however many documents have one key, and 24 bytes for each earlier document of a pair. When so
many were read, only leaders stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.sections import Sections, write_sections
from corpusmill.kernels.compiled import kernel

KEYS, DIGESTS, PAIRS, LEADERS_FILE = "keys", "digests", "pairs", "leaders"
BUCKETS = 4096
BATCH_DOCUMENTS = 1 << 16
LEADERS, FIRST = 12, 4
EQUAL = np.uint64(1 << 63)
ROW = np.dtype([("key", "<u8"), ("tag", "<u4"), ("document", "<u4")])

_CHUNK = 1 << 16
_SHARD = np.uint64(32)
_BLOCK_PAIRS = 1 << 20
_READ_PAIRS = 1 << 18


def numbered(shard: int, documents: NDArray[Any]) -> NDArray[np.uint64]:
    """uint64: the numbers among all documents, in their order, of documents of a shard."""
    return documents.astype(np.uint64) | np.uint64(shard) << _SHARD


def shards_of(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64: the shards of numbered documents."""
    return (numbers >> _SHARD).astype(np.int64)


def documents_of(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """int64: the documents in their shards of numbered documents."""
    return (numbers & np.uint64(0xFFFFFFFF)).astype(np.int64)


def split_by_shard(rows: NDArray[Any], numbers: NDArray[np.uint64], shards: int) -> list[NDArray[Any]]:
    """Rows about documents of so many shards, cut into those of each; `numbers`: their documents, ascending."""
    return np.split(rows, np.searchsorted(numbers, np.arange(1, shards, dtype=np.uint64) << _SHARD))


def write_keys(folder: Path, keys: Iterable[NDArray[np.uint64]]) -> int:
    """Write the rows and digests of one shard; returns how many rows.

    `keys`: of its documents in order, in arrays uint64 (n, bands + 1), whose last column holds the digests.
    """
    starts, documents, written = [np.zeros(1, np.int64)], 0, 0
    with (folder / KEYS).open("wb") as file, (folder / DIGESTS).open("wb") as digests:
        for batch in _joined(keys, BATCH_DOCUMENTS):
            rows = np.empty(batch.size, ROW)
            rows["key"] = batch.ravel()
            rows["tag"] = np.repeat(batch[:, -1].astype(np.uint32), batch.shape[1])
            rows["document"] = np.repeat(np.arange(documents, documents + len(batch), dtype=np.uint32), batch.shape[1])
            buckets = (rows["key"] >> np.uint64(52)).astype(np.uint16)
            file.write(rows[np.argsort(buckets, kind="stable")].data)
            digests.write(batch[:, -1].astype("<u8").data)
            starts.append(written + np.cumsum(np.bincount(buckets, minlength=BUCKETS)))
            documents, written = documents + len(batch), written + len(rows)
    (folder / f"{KEYS}.index").write_bytes(np.concatenate(starts).astype("<u8").data)
    return written


def propose(
    shards: Sequence[Sections], partition: int, partitions: int, folder: Path, references: int, most_rows: int
) -> dict[str, int]:
    """Write the pairs of a partition; returns counts: rows, pairs, rows_cut.

    `shards`: their folders of keys, in order, of which the first `references` are not paired with earlier documents;
    `partitions` divides BUCKETS.
    """
    counts = {"rows": 0, "pairs": 0, "rows_cut": 0}
    leaders, starts = [np.empty(0, np.uint64)], [np.zeros(1, np.int64)]
    with (folder / PAIRS).open("wb") as file:
        for pairs in _joined(_pairs(shards, partition, partitions, references, most_rows, counts), _BLOCK_PAIRS):
            of_shard = shards_of(pairs[:, 0]).astype(np.min_scalar_type(len(shards)))
            leaders.append(np.unique(pairs[:, 1] & ~EQUAL))
            pairs[:, 0] = documents_of(pairs[:, 0])
            file.write(pairs[np.argsort(of_shard, kind="stable")].data)
            starts.append(counts["pairs"] + np.cumsum(np.bincount(of_shard, minlength=len(shards))))
            counts["pairs"] += len(pairs)
    (folder / f"{PAIRS}.index").write_bytes(np.concatenate(starts).astype("<u8").data)
    asked = np.unique(np.concatenate(leaders))
    write_sections(folder, LEADERS_FILE, split_by_shard(documents_of(asked), asked, len(shards)))
    return counts


def read_pairs(proposed: Sequence[Sections], shards: int, shard: int) -> Iterator[NDArray[np.uint64]]:
    """The pairs of one of so many shards, of all partitions, uint64 (n, 2): a document of it, an earlier one; some
    repeated. At most _READ_PAIRS at a time.
    """
    for partition in proposed:
        for block in range((len(partition.whole(f"{PAIRS}.index")) - 1) // shards):
            pairs = partition.map(PAIRS, block * shards + shard, columns=2)
            for first in range(0, len(pairs), _READ_PAIRS):
                yield pairs[first : first + _READ_PAIRS]


def _batches(shards: Sequence[Sections], first: int, last: int) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
    """The rows of the buckets [first, last), batch by batch in order, and the number of the document of each."""
    for number, shard in enumerate(shards):
        for batch in range(0, len(shard.whole(f"{KEYS}.index")) - 1, BUCKETS):
            rows = shard.read_range(KEYS, batch + first, batch + last, ROW)
            yield rows, numbered(number, rows["document"])


def _pairs(
    shards: Sequence[Sections], partition: int, partitions: int, references: int, most: int, counts: dict[str, int]
) -> Iterator[NDArray[np.uint64]]:
    """uint64 (n, 2): the later and the earlier document of each pair of a partition, both numbered, chunk by chunk."""
    rows, numbers = np.empty(0, ROW), np.empty(0, np.uint64)
    batches = _batches(shards, partition * BUCKETS // partitions, (partition + 1) * BUCKETS // partitions)
    pairs = np.empty((_CHUNK * LEADERS, 2), np.uint64)
    while new := [*_rows_of(batches, max(most - len(rows), most // 4, 1))]:
        own = max(np.uint64(references) << _SHARD, min(batch.min(initial=EQUAL) for _, batch in new))
        counts["rows"] += sum(len(batch) for batch, _ in new)
        rows = np.concatenate([rows, *(batch for batch, _ in new)])
        numbers = np.concatenate([numbers, *(batch for _, batch in new)])
        del new
        order = np.argsort(rows["key"], kind="stable")
        keys, leads = rows["key"][order], np.zeros(len(rows), np.bool_)
        state, leaders = np.zeros(1, np.int64), np.empty(LEADERS, np.int64)
        for first in range(0, len(keys), _CHUNK):
            last = min(first + _CHUNK, len(keys))
            filled, cut = pair_rows(keys, order, rows["tag"], numbers, own, first, last, state, leaders, leads, pairs)
            counts["rows_cut"] += cut
            yield pairs[:filled].copy()
        del order, keys
        rows, numbers = rows[leads], numbers[leads]


def _rows_of(batches: Iterator[tuple[NDArray[Any], Any]], count: int) -> Iterator[tuple[NDArray[Any], Any]]:
    """The next batches, with so many rows or those that are left."""
    while count > 0 and (batch := next(batches, None)) is not None:
        yield batch
        count -= len(batch[0])


def _joined(arrays: Iterable[NDArray[np.uint64]], least: int) -> Iterator[NDArray[np.uint64]]:
    """Neighbours as one, of at least so many rows but the last."""
    waiting: list[NDArray[np.uint64]] = []
    for array in arrays:
        waiting.append(array)
        if sum(map(len, waiting)) >= least:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


@kernel
def pair_rows(
    keys: Any, order: Any, tags: Any, numbers: Any, own: Any, first: Any, last: Any, state: Any, leaders: Any,
    leads: Any, pairs: Any,
) -> Any:  # fmt: skip
    """Pair the documents of rows [first, last) with the leaders of their groups; returns (pairs, rows cut).

    keys, order     of the rows, ascending; where each stands in `tags` and `numbers`, whose order is that of documents
    own             the least number that is paired with earlier ones
    state, leaders  of the group that the row before `first` belongs to: how many leaders it has; where each stands
    leads           whether a row is of one that later rows are paired with
    pairs           uint64 (LEADERS x rows, 2), filled: later, earlier
    """
    filled = cut = 0
    for row in range(first, last):
        if row == 0 or keys[row] != keys[row - 1]:
            leaders[0], state[0] = order[row], 1
            leads[order[row]] = True
            continue
        place = order[row]
        number, tag, known = numbers[place], tags[place], False
        equal = EQUAL if np.uint32(keys[row] & np.uint64(0xFFFFFFFF)) == tag else np.uint64(0)
        full = state[0] == LEADERS
        for leader in range(state[0]):
            earlier = leaders[leader]
            known = known or tags[earlier] == tag
            if number >= own and numbers[earlier] != number:
                pairs[filled, 0], pairs[filled, 1] = number, numbers[earlier] | equal
                filled += 1
        cut += full and number >= own
        if not known:
            if full:
                leads[leaders[FIRST]] = False
                leaders[FIRST : LEADERS - 1] = leaders[FIRST + 1 :]
                state[0] -= 1
            leaders[state[0]] = place
            leads[place] = True
            state[0] += 1
    return filled, cut
