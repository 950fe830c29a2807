"""Budgets: decides which documents of a source are shown, and how often (builds/decisions/0002).

A source is an entry of `source.paths`, or the documents for which a condition of the budget is true.

In:  every document's source, tokens and draw, a random number that (seed, shard, ordinal) determines.
Out: every source's `Share`: whole epochs, and the last draw of a partial epoch. The partial epoch shows the documents
 whose draw is at most the last draw: the fewest documents, by draw, that hold the remaining tokens.

    draws    3  9  1  7  5      tokens  10  20  10  30  20      4 tokens over whole epochs: 1
                                                               11 tokens: 1, 3              31 tokens: 1, 3, 5

The last draw is found by selection, without a full sort: each pass counts tokens by the next 12 bits of the draws and
keeps the bucket in which the budget is met, until the documents in all such buckets are few enough to sort.

Invariants: the tokens shown reach the amount, and would not without the last document; changing an amount affects no
other source. Documents with equal draws are shown together; two of n have the same with probability below n^2 / 2^65.

Price: two passes over the documents, three beyond some 4 x 10^9 of them; 96 KiB of counts a source, 24 bytes for each
of up to 2^20 documents, and 40 bytes a document of one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpusmill.config.epochs import Amount, Epochs, epochs_of
from corpusmill.fingerprint import random_words
from corpusmill.kernels.content import ContentSum
from corpusmill.kernels.content_kernels import placed_sum, token_sums
from corpusmill.kernels.mapping import release_pages
from corpusmill.kernels.slices import runs
from corpusmill.tokens.token_shard import TokenShard

Words = NDArray[np.uint64]

BITS = 12
MOST_SORTED = 1 << 20
BATCH_TOKENS = 2 << 20
# Of a shard's documents: each takes 80 bytes during scatter, or 130 in contexts of short documents.
MOST_REPEATS = 1 << 25


class Documents(NamedTuple):
    """Documents of one shard: sources int64 (n,), draws uint64 (n,), tokens uint64 (n,)."""

    sources: NDArray[np.int64]
    draws: Words
    tokens: Words


class Counted(NamedTuple):
    """Numbers of tokens, of documents, and of documents without tokens."""

    tokens: int = 0
    documents: int = 0
    empty: int = 0

    def plus(self, other: Iterable[int]) -> Counted:
        """The sum of both."""
        return Counted(*(mine + int(more) for mine, more in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Share:
    """What is shown of a source: `whole` epochs of `there`, its counts, and `rest`: the documents up to draw `last`
    (None: no partial epoch).
    """

    there: Counted
    whole: int
    last: int | None
    rest: Counted

    def shown(self) -> Counted:
        """All showings."""
        return Counted(*(self.whole * there + rest for there, rest in zip(self.there, self.rest, strict=True)))


def draw_documents(seed: int, shard: int, documents: int) -> Words:
    """uint64 (documents,): the draws of the documents 0, 1, 2, ... of a shard."""
    words = random_words({"budget": "documents", "seed": seed, "shard": shard})
    return np.asarray(words.random_raw(documents), np.uint64).reshape(-1)


def share_out(amounts: Sequence[Amount], read: Callable[[], Iterator[Documents]]) -> list[Share]:
    """The share of every source. Each call of `read` yields the documents of all shards, in the same order."""
    sources = len(amounts)
    counted = _count(read(), BITS, np.zeros(sources, np.uint64), sources)
    totals = [Counted(*row) for row in counted.sum(axis=2).T.tolist()]
    epochs = [
        epochs_of(there.tokens, amount.of(there.tokens)) if there.tokens else Epochs(0, int(amount.epochs or 0), 0)
        for there, amount in zip(totals, amounts, strict=True)
    ]
    left = np.array([share.rest for share in epochs], np.uint64)
    before = [Counted()] * sources
    buckets = np.zeros(sources, np.uint64)
    bits = BITS
    while True:
        here = np.zeros(sources, np.uint64)
        for source in np.flatnonzero(left).tolist():
            met = int(np.searchsorted(np.cumsum(counted[0, source]), left[source]))
            passed = counted[:, source, :met].sum(axis=1)
            before[source] = before[source].plus(passed.tolist())
            left[source] -= passed[0]
            buckets[source] = (buckets[source] << np.uint64(BITS)) | np.uint64(met)
            here[source] = counted[1, source, met]
        if int(here.sum()) <= MOST_SORTED or bits + BITS > 64:
            break
        bits += BITS
        counted = _count(read(), bits, buckets, sources)
    ordered = _sorted(read(), bits, buckets, left)
    return [
        Share(there, epoch.whole, *_last(ordered, source, int(left[source]), before[source]))
        for source, (there, epoch) in enumerate(zip(totals, epochs, strict=True))
    ]


def _count(documents: Iterable[Documents], bits: int, buckets: Words, sources: int) -> Words:
    """uint64 (3, sources, 2^BITS): tokens, documents and empty ones, by the last BITS of the draws' first `bits`.

    Only documents whose earlier bits are their source's bucket count.
    """
    counted = np.zeros((3, sources << BITS), np.uint64)
    for part in documents:
        first = part.draws >> np.uint64(64 - bits)
        inside = np.flatnonzero(first >> np.uint64(BITS) == buckets[part.sources])
        place = (part.sources[inside] << BITS) + (first[inside] & np.uint64((1 << BITS) - 1)).astype(np.int64)
        tokens = part.tokens[inside]
        for row, amounts in zip(counted, (tokens, np.ones_like(tokens), (tokens == 0).astype(np.uint64)), strict=True):
            np.add.at(row, place, amounts)
    return counted.reshape(3, sources, 1 << BITS)


def _sorted(documents: Iterable[Documents], bits: int, buckets: Words, left: Words) -> Documents:
    """The documents of the buckets in which a budget is met, by draw."""
    parts = []
    for part in documents:
        inside = (part.draws >> np.uint64(64 - bits) == buckets[part.sources]) & (left[part.sources] > 0)
        parts.append([column[inside] for column in part])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    return Documents(*(column[order] for column in columns))


def _last(documents: Documents, source: int, left: int, before: Counted) -> tuple[int | None, Counted]:
    """(the last draw, all documents up to it) of a source that has `left` tokens to go after `before`."""
    if not left:
        return None, Counted()
    mine = documents.sources == source
    draws, tokens = documents.draws[mine], documents.tokens[mine]
    last = int(draws[np.searchsorted(np.cumsum(tokens, dtype=np.uint64), np.uint64(left))])
    shown = tokens[draws <= np.uint64(last)]
    return last, before.plus((int(shown.sum()), len(shown), int((shown == 0).sum())))


def shares_of_documents(source_ends: Words, conditions: NDArray[np.uint16] | None) -> NDArray[np.int64]:
    """int64 (documents,): which share is that of each document of a shard, the shares of its files first, then those of
    conditions. `conditions`: see stages/budget.py; None if the budget has none.
    """
    files = np.diff(source_ends, prepend=np.uint64(0)).astype(np.int64)
    own = np.repeat(np.arange(len(files)), files)
    return own if conditions is None else np.where(conditions > 0, len(files) - 1 + conditions.astype(np.int64), own)


def shown_documents(
    shares: Sequence[tuple[int, int | None]], of: NDArray[np.int64], source_ends: Words, draws: Words
) -> tuple[Words, Words]:
    """(ordinals, source_ends) of a shard's documents as they are shown, for TokenShard.as_shown.

    `shares`: (whole epochs, last draw), `of`: which of them is each document's. Epoch by epoch, each in the order of
    the shard.
    """
    whole = np.array([share[0] for share in shares], np.int64)[of]
    some = np.array([share[1] is not None for share in shares], np.bool_)[of]
    some &= draws <= np.array([share[1] or 0 for share in shares], np.uint64)[of]
    times = whole + some
    shown, ends = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    before = 0
    ordinals = np.arange(len(times), dtype=np.uint64)
    for epoch in range(max((share[0] for share in shares), default=0) + 1):
        ordinals = ordinals[times[ordinals] > epoch]  # of the epoch before: time is linear in the showings
        shown.append(ordinals)
        ends.append(np.searchsorted(ordinals, source_ends).astype(np.uint64) + np.uint64(before))
        before += len(ordinals)
    return np.concatenate(shown), np.concatenate(ends)


def repeats_of(shares: Sequence[tuple[int, int | None]], of: NDArray[np.int64], files: int) -> int:
    """An upper bound of repeated showings of a shard's documents, plus the ends of its files in these epochs."""
    again = [max(0, whole + (last is not None) - 1) for whole, last in shares]
    counts = np.bincount(of, minlength=len(shares)).tolist()
    ends = [1] * files + [files] * (len(shares) - files)
    return sum((count + more) * times for count, more, times in zip(counts, ends, again, strict=True))


class Apart(NamedTuple):
    """The difference between a shard's showings and its documents: documents left out, and repeated showings."""

    left_out: Counted
    again: Counted
    left_out_content: ContentSum
    again_content: ContentSum


def difference_of(shard: TokenShard, shown: TokenShard, number: int) -> Apart:
    """The difference of a shard, numbered `number`, and its showings; reads only documents that are not shown exactly
    once.
    """
    ordinals = shown.in_files(np.arange(shown.documents, dtype=np.uint64))
    times = np.bincount(ordinals.astype(np.int64), minlength=shard.documents).astype(np.uint64)
    lengths = np.diff(shard.ends, prepend=np.uint64(0))
    parts = {"left_out": (Counted(), ContentSum()), "again": (Counted(), ContentSum())}
    for first, last in runs(shard.ends, BATCH_TOKENS):
        here = times[first:last]
        for name, extra in (("left_out", here == 0), ("again", np.maximum(here, np.uint64(1)) - np.uint64(1))):
            places = np.flatnonzero(extra)
            factors, ordinals = extra[places].astype(np.uint64), (first + places).astype(np.uint64)
            sizes = lengths[ordinals]
            sums = token_sums(shard.tokens, shard.starts[ordinals], sizes, np.zeros(len(sizes), np.uint64))
            counted, content = parts[name]
            more = (int((factors * sizes).sum()), int(factors.sum()), int(factors[sizes == 0].sum()))
            content += placed_sum(sums * factors, number, ordinals)
            parts[name] = counted.plus(more), content
        release_pages(shard.tokens)
    (left_out, left_out_content), (again, again_content) = parts["left_out"], parts["again"]
    return Apart(left_out, again, left_out_content, again_content)
