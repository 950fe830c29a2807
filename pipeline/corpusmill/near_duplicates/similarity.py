"""The similarity of proposed pairs, exactly: the set of the earlier document, which its shard answers with, is looked
up in that of the later one.

    leaders         document u64, ascending          of one shard: all documents that any partition asks about
    digests         u64 of each                      equal digests: similarity 1, and no set is read
    set_ends        u64 of each                      one past its set in `sets`
    sets            u64: the distinct hashes of each leader's runs
    matches         document u64 | earlier document u64 | similarity f64     of one shard, by document, then earlier

A document that was paired with more than WHOLE others is compared with the SOON of them that share most keys with it
and the SOON earliest of the rest, because of a group of near-copies the first are kept; then, unless ENOUGH of these
match, with all. So in a group of near-copies it costs a few comparisons, and where texts share a template none that it
was paired with is missed. What that leaves out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.documents.text_shard import TextShard
from corpusmill.engine.sections import Sections
from corpusmill.kernels.compiled import kernel
from corpusmill.kernels.mapping import release_pages
from corpusmill.kernels.slices import runs
from corpusmill.near_duplicates.groups import DIGESTS, EQUAL, documents_of, read_pairs, shards_of
from corpusmill.near_duplicates.signatures import BATCH_BYTES, Signer, mixed, place_in, table_bits

LEADERS, SET_ENDS, SETS, MATCHES = "leaders", "set_ends", "sets", "matches"
WHOLE, SOON, ENOUGH = 12, 4, 4
PAIRS_AT_ONCE = 1 << 22  # of a shard, in memory: 60 bytes each
MATCH = np.dtype([("document", "<u8"), ("earlier", "<u8"), ("similarity", "<f8")])

_RANK, _MOST_TIMES = np.uint64(57), 127  # above the number of a document: how often it shares no key
_BLOCK_BYTES = 16 << 20  # of text whose sets are in memory
_READ_HASHES = 4 << 20
_LOOKED_UP = 16  # hashes, between two looks at what is left
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
    """The sets of some documents, ascending, in batches of one or of those within `most_bytes` (Signer.sets)."""
    bounds = text.bounds(0, text.documents)
    starts, ends = bounds[documents] + np.uint64(1), bounds[documents + 1]
    for first, last in runs(ends, most_bytes):
        yield signer.sets(text.text, starts[first:last], ends[first:last])
        release_pages(text.text)


def compare(
    text: TextShard,
    proposed: Sequence[Sections],
    shard: int,
    digests: Numbers,
    answers: Sequence[Sections],
    length: int,
    least: float,
) -> tuple[NDArray[Any], dict[str, int]]:
    """(MATCH rows: the pairs of a shard whose similarity is at least `least`; counts: compared, left_out).

    `proposed`: folders of pairs of all partitions, of which section `shard` is read, once for each PAIRS_AT_ONCE pairs
    (or those of one document); `digests`: of the shard's documents; `answers`: folders of all shards, of which one at a
    time is in memory.
    """
    ends = np.zeros(text.documents, np.int64)
    for pairs in read_pairs(proposed, len(answers), shard):
        ends += np.bincount(pairs[:, 0].astype(np.int64), minlength=text.documents)
    np.cumsum(ends, out=ends)
    matches, counts = [np.empty(0, MATCH)], {"compared": 0, "left_out": 0}
    for first, last in runs(ends.astype(np.uint64), PAIRS_AT_ONCE):
        base, filled = int(ends[first - 1]) if first else 0, 0
        pairs = np.empty((int(ends[last - 1]) - base, 2), np.uint64)
        for block in read_pairs(proposed, len(answers), shard):
            mine = block[(block[:, 0] >= first) & (block[:, 0] < last)]
            pairs[filled : filled + len(mine)] = mine
            filled += len(mine)
        ordered, soon = np.empty_like(pairs), np.empty(len(pairs), np.bool_)
        own, earlier = pairs[:, 0].astype(np.int64) - first, np.ascontiguousarray(pairs[:, 1])
        distinct = order_most_shared(own, earlier, ends[first:last] - base, pairs[:, 0].copy(), ordered, soon)
        del pairs, own, earlier
        ordered, soon = ordered[:distinct], soon[:distinct]
        ordered[:, 0] += np.uint64(first)
        found = _matches(text, ordered[soon], digests, answers, length, least)
        enough = np.bincount(found["document"].astype(np.int64), minlength=last) >= ENOUGH
        rest = ordered[~soon & ~enough[ordered[:, 0].astype(np.int64)]]
        found = np.concatenate([found, _matches(text, rest, digests, answers, length, least)])
        matches.append(np.sort(found, order=["document", "earlier"]))
        counts["compared"] += int(soon.sum()) + len(rest)
        counts["left_out"] += distinct - int(soon.sum()) - len(rest)
    return np.concatenate(matches), counts


def _matches(
    text: TextShard, pairs: Numbers, digests: Numbers, answers: Sequence[Sections], length: int, least: float
) -> NDArray[Any]:
    """The MATCH rows of distinct pairs, by document."""
    of_shard = shards_of(pairs[:, 1])
    similar = np.full(len(pairs), -1.0)
    firsts, lasts = np.empty((2, len(pairs)), np.int64)
    for shard in np.unique(of_shard).tolist():
        mine = np.flatnonzero(of_shard == shard)
        leaders, their_digests, set_ends = (answers[shard].whole(name) for name in (LEADERS, DIGESTS, SET_ENDS))
        places = np.searchsorted(leaders, documents_of(pairs[mine, 1]).astype(np.uint64))
        similar[mine[their_digests[places] == digests[pairs[mine, 0].astype(np.int64)]]] = 1.0
        firsts[mine], lasts[mine] = np.where(places > 0, set_ends[places - 1], 0), set_ends[places]
    open_pairs = np.flatnonzero(similar < 0)
    documents = np.unique(pairs[open_pairs, 0]).astype(np.int64)
    done = 0
    for hashes, ends in sets_of(text, documents, Signer(length), _BLOCK_BYTES):
        block = documents[done : done + len(ends)]
        first, last = np.searchsorted(pairs[open_pairs, 0], [block[0], block[-1] + 1])
        mine = open_pairs[first:last]
        own = np.searchsorted(block, pairs[mine, 0].astype(np.int64))
        similar[mine] = _similarities(hashes, ends, own, of_shard[mine], firsts[mine], lasts[mine], answers, least)
        done += len(ends)
    kept = np.flatnonzero(similar >= least)
    matches = np.empty(len(kept), MATCH)
    matches["document"], matches["earlier"], matches["similarity"] = pairs[kept, 0], pairs[kept, 1], similar[kept]
    return matches


@kernel
def order_most_shared(  # noqa: PLR0912 (one pass over the pairs of each document)
    own: Any, earlier: Any, ends: Any, by_document: Any, ordered: Any, soon: Any
) -> Any:
    """Put the pairs of each document in the order in which they are compared, each once; returns how many there are.

    own, earlier    int64, uint64 (n,): the pairs, in any order
    ends            int64 (documents,): how many pairs the documents up to each have
    by_document     uint64 (n,), filled
    ordered         uint64 (n, 2), filled: by document
    soon            bool (n,), filled: whether a pair is compared whatever the others are
    """
    places: Any = np.zeros(len(ends), np.int64)
    most: Any = 1
    for document in range(1, len(ends)):
        places[document] = ends[document - 1]
    for document in range(len(ends)):
        most = max(most, ends[document] - places[document])
    for row in range(len(own)):
        by_document[places[own[row]]] = earlier[row]
        places[own[row]] += 1
    table: Any = np.empty(1 << table_bits(most), np.uint64)
    times: Any = np.empty(1 << table_bits(most), np.int64)
    ranked = np.empty(most, np.uint64)
    filled = 0
    for document in range(len(ends)):
        first = ends[document - 1] if document else 0
        if first == ends[document]:
            continue
        bits = table_bits(ends[document] - first)
        table[: 1 << bits] = 0
        for row in range(first, ends[document]):
            value = mixed((by_document[row] & ~EQUAL) + np.uint64(1))
            place = place_in(table, bits, value)
            if table[place] == np.uint64(0):
                table[place], times[place] = value, 0
            times[place] += 1 if by_document[row] < EQUAL else _MOST_TIMES
        distinct = 0
        for row in range(first, ends[document]):
            number = by_document[row] & ~EQUAL
            place = place_in(table, bits, mixed(number + np.uint64(1)))
            if times[place] > 0:
                ranked[distinct] = number | np.uint64(_MOST_TIMES - min(times[place], _MOST_TIMES)) << _RANK
                times[place] = 0
                distinct += 1
        if distinct > WHOLE:
            ranked[:distinct].sort()
        for rank in range(distinct):
            ranked[rank] &= (np.uint64(1) << _RANK) - np.uint64(1)
        if distinct > WHOLE:
            ranked[SOON:distinct].sort()
        for rank in range(distinct):
            ordered[filled, 0], ordered[filled, 1] = np.uint64(document), ranked[rank]
            soon[filled] = rank < 2 * SOON or distinct <= WHOLE
            filled += 1
    return filled


def _similarities(
    hashes: Numbers,
    ends: NDArray[np.int64],
    own: NDArray[np.int64],
    of_shard: NDArray[np.int64],
    firsts: NDArray[np.int64],
    lasts: NDArray[np.int64],
    answers: Sequence[Sections],
    least: float,
) -> NDArray[np.float64]:
    """The similarity of each pair, less than `least` if it is: set `own` of `hashes`, and [first, last) of a shard's
    answers.
    """
    similar = np.empty(len(own), np.float64)
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    for shard in np.unique(of_shard).tolist():
        mine = np.flatnonzero(of_shard == shard)
        mine = mine[np.argsort(firsts[mine], kind="stable")]
        begin, end = firsts[mine], lasts[mine]
        for low, high in _read_at_once(begin, end):
            base = int(begin[low])
            read = answers[shard].slice(SETS, base, int(end[high - 1]))
            by_own = low + np.argsort(own[mine[low:high]], kind="stable")  # a table of each own set is made once
            chosen = mine[by_own]
            table = np.empty(1 << table_bits(int(np.diff(begins).max())), np.uint64)
            result = np.empty(high - low, np.float64)
            sets = own[chosen], read, begin[by_own] - base, end[by_own] - base
            jaccard(hashes, begins, *sets, least, table, result)
            similar[chosen] = result
    return similar


def _read_at_once(firsts: NDArray[np.int64], lasts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """[low, high) of neighbouring sets without large gaps between them, ascending, at most _READ_HASHES or one set."""
    gaps, low = np.append(np.flatnonzero(firsts[1:] - lasts[:-1] > _GAP_HASHES) + 1, len(firsts)), 0
    while low < len(firsts):
        full = np.searchsorted(lasts, firsts[low] + _READ_HASHES, side="right")
        high = max(low + 1, int(min(full, gaps[np.searchsorted(gaps, low, side="right")])))
        yield low, high
        low = high


@kernel
def jaccard(
    own: Any, begins: Any, which: Any, others: Any, firsts: Any, lasts: Any, least: Any, table: Any, similar: Any
) -> None:
    """Fill `similar` float64 (n,) with the similarities of sets `which[i]` of `own` and `[firsts[i], lasts[i])` of
    `others`; with less, and less than `least`, where the similarity is less. Sets are distinct mixed uint64, none 0,
    and not empty; `table`: room for the largest of `own`.
    """
    bits = 0
    for pair in range(len(which)):
        begin, stop = begins[which[pair]], begins[which[pair] + 1]
        if pair == 0 or which[pair] != which[pair - 1]:
            bits = table_bits(stop - begin)
            table[: 1 << bits] = 0
            for i in range(begin, stop):
                table[place_in(table, bits, own[i])] = own[i]
        at, last, shared = firsts[pair], lasts[pair], 0
        both = stop - begin + last - at
        needed = np.int64(both * least / (1.0 + least) - 1e-6)  # of shared runs, or one fewer
        while at < last and shared + last - at >= needed:
            for j in range(at, min(at + _LOOKED_UP, last)):
                shared += table[place_in(table, bits, others[j])] == others[j]
            at += _LOOKED_UP
        similar[pair] = shared / (both - shared)
