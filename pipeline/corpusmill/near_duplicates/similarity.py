"""The similarity of proposed pairs, exactly: the set of the earlier document, which its shard answers with, is merged
with that of the later one.

    leaders         document u64, ascending          of one shard: all documents that any partition asks about
    digests         u64 of each                      equal digests: similarity 1, and no set is read
    set_ends        u64 of each                      one past its set in `sets`
    sets            u64: the distinct hashes of each leader's runs, ascending
    matches         document u64 | earlier document u64 | similarity f64     of one shard, by document, then earlier

A document is compared with at most MOST_COMPARED others: those that share most keys with it, then the earliest. What
that leaves out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.documents.text_shard import TextShard
from corpusmill.engine.sections import Sections
from corpusmill.kernels.compiled import kernel
from corpusmill.kernels.slices import release_pages, runs
from corpusmill.near_duplicates.groups import documents_of, shards_of
from corpusmill.near_duplicates.signatures import BATCH_BYTES, Signer

LEADERS, DIGESTS, SET_ENDS, SETS, MATCHES = "leaders", "digests", "set_ends", "sets", "matches"
MOST_COMPARED = 32
MATCH = np.dtype([("document", "<u8"), ("earlier", "<u8"), ("similarity", "<f8")])

_BLOCK_BYTES = 16 << 20  # of text whose sets are in memory
_READ_HASHES = 4 << 20
_GAP_HASHES = 16 << 10  # between two sets that are read at once

Numbers = NDArray[np.uint64]


def write_sets(text: TextShard, asked: NDArray[np.int64], digests: Numbers, length: int, folder: Path) -> int:
    """Write the sets of the asked documents of a shard, ascending; returns how many hashes they have."""
    signer, written = Signer(length), 0
    ends = [np.empty(0, np.int64)]
    with (folder / SETS).open("wb") as file:
        for hashes, own in sets_of(text, asked, signer):
            file.write(hashes.data)
            ends.append(own + written)
            written += len(hashes)
    for name, column in ((LEADERS, asked), (DIGESTS, digests[asked]), (SET_ENDS, np.concatenate(ends))):
        (folder / name).write_bytes(column.astype("<u8").data)
    return written


def sets_of(
    text: TextShard, documents: NDArray[np.int64], signer: Signer, most_bytes: int = BATCH_BYTES
) -> Iterator[tuple[Numbers, NDArray[np.int64]]]:
    """The sets of some documents, ascending, in batches of about `most_bytes` of text (Signer.sets)."""
    bounds = text.bounds(0, text.documents)
    starts, ends = bounds[documents] + np.uint64(1), bounds[documents + 1]
    for first, last in runs(np.cumsum(ends - starts + np.uint64(1)), most_bytes):
        yield signer.sets(text.text, starts[first:last], ends[first:last])
        release_pages(text.text)


@dataclass(frozen=True)
class Answers:
    """What a shard answered."""

    files: Sections
    leaders: Numbers
    digests: Numbers
    set_ends: NDArray[np.int64]

    @classmethod
    def of(cls, files: Sections) -> Answers:
        """The answers in a folder."""
        columns = [files.whole(name) for name in (LEADERS, DIGESTS, SET_ENDS)]
        return cls(files, columns[0], columns[1], columns[2].astype(np.int64))


def compare(
    text: TextShard, pairs: Numbers, digests: Numbers, answers: Sequence[Answers], length: int, least: float
) -> tuple[NDArray[Any], dict[str, int]]:
    """(MATCH rows: the pairs of a shard whose similarity is at least `least`; counts: compared, left_out).

    `pairs` uint64 (n, 2), of any order, repeated: a document of `text`, an earlier document; `digests`: of the shard's
    documents; `answers`: of all shards.
    """
    pairs, proposed = _most_shared(pairs)
    of_shard = shards_of(pairs[:, 1])
    places = np.empty(len(pairs), np.int64)
    similar = np.full(len(pairs), -1.0)
    for shard in np.unique(of_shard).tolist():
        mine = np.flatnonzero(of_shard == shard)
        places[mine] = np.searchsorted(answers[shard].leaders, documents_of(pairs[mine, 1]).astype(np.uint64))
        equal = answers[shard].digests[places[mine]] == digests[pairs[mine, 0].astype(np.int64)]
        similar[mine[equal]] = 1.0
    open_pairs = np.flatnonzero(similar < 0)
    documents = np.unique(pairs[open_pairs, 0]).astype(np.int64)
    done = 0
    for hashes, ends in sets_of(text, documents, Signer(length), _BLOCK_BYTES):
        block = documents[done : done + len(ends)]
        first, last = np.searchsorted(pairs[open_pairs, 0], [block[0], block[-1] + 1])
        mine = open_pairs[first:last]
        own = np.searchsorted(block, pairs[mine, 0].astype(np.int64))
        similar[mine] = _similarities(hashes, ends, own, of_shard[mine], places[mine], answers)
        done += len(ends)
    kept = np.flatnonzero(similar >= least)
    matches = np.empty(len(kept), MATCH)
    matches["document"], matches["earlier"], matches["similarity"] = pairs[kept, 0], pairs[kept, 1], similar[kept]
    return matches, {"compared": len(pairs), "compared_equal": len(pairs) - len(open_pairs), "left_out": proposed}


def _most_shared(pairs: Numbers) -> tuple[Numbers, int]:
    """(the distinct pairs that are compared, by document, then earlier; how many others there are)."""
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    new = np.ones(len(pairs), np.bool_)
    new[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    shared = np.diff(starts, append=len(pairs))
    pairs = pairs[starts]
    order = np.lexsort((pairs[:, 1], -shared, pairs[:, 0]))
    documents = pairs[order, 0]
    rank = np.arange(len(pairs)) - np.searchsorted(documents, documents, side="left")
    chosen = np.sort(order[rank < MOST_COMPARED])
    return pairs[chosen], len(pairs) - len(chosen)


def _similarities(
    hashes: Numbers,
    ends: NDArray[np.int64],
    own: NDArray[np.int64],
    of_shard: NDArray[np.int64],
    places: NDArray[np.int64],
    answers: Sequence[Answers],
) -> NDArray[np.float64]:
    """The similarity of each pair: set `own` of `hashes`, and the set of a shard's leader at `places`."""
    similar = np.empty(len(own), np.float64)
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    for shard in np.unique(of_shard).tolist():
        answer = answers[shard]
        mine = np.flatnonzero(of_shard == shard)
        mine = mine[np.argsort(places[mine], kind="stable")]
        lasts = answer.set_ends[places[mine]]
        firsts = np.where(places[mine] > 0, answer.set_ends[places[mine] - 1], 0)
        for low, high in _read_at_once(firsts, lasts):
            base = int(firsts[low])
            read = answer.files.slice(SETS, base, int(lasts[high - 1]))
            chosen = mine[low:high]
            result = np.empty(high - low, np.float64)
            jaccard(hashes, begins, own[chosen], read, firsts[low:high] - base, lasts[low:high] - base, result)
            similar[chosen] = result
    return similar


def _read_at_once(firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """[low, high) of neighbouring sets without large gaps between them, ascending, at most _READ_HASHES or one set."""
    low = 0
    for at in range(1, len(firsts) + 1):
        if at == len(firsts) or firsts[at] - lasts[at - 1] > _GAP_HASHES or lasts[at] - firsts[low] > _READ_HASHES:
            yield low, at
            low = at


@kernel
def jaccard(own: Any, begins: Any, which: Any, others: Any, firsts: Any, lasts: Any, similar: Any) -> None:
    """Fill `similar` float64 (n,) with the similarities of sets `which[i]` of `own` and `[firsts[i], lasts[i])` of
    `others`. Sets are ascending uint64, not empty.
    """
    for pair in range(len(which)):
        i, stop = begins[which[pair]], begins[which[pair] + 1]
        j, end = firsts[pair], lasts[pair]
        total, shared = stop - i + end - j, 0
        while i < stop and j < end:
            a, b = own[i], others[j]
            shared += a == b
            i += a <= b
            j += b <= a
        similar[pair] = shared / (total - shared)
