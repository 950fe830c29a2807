"""Shuffle quality, measured on the resulting order and compared with a perfect shuffle and its chance deviation.

In:  provenance of the records in their final order, cell by cell (shards, ordinals: 16 bytes a record; no tokens).
Out: three measures, each with the band in which a uniform shuffle stays with probability 1 - significance.

    rank correlation      of source and final position; expected 0, variance exactly 1 / (n - 1)
    neighbours            adjacent pairs that hold parts of one document; of P such pairs among n (n - 1) / 2,
                         2 P / n are expected to be adjacent, Poisson if they are few
    sources per file      chi-square of the table (stretch of the source order) x (output files), over its degrees of
                          freedom d; expected 1, quantile by Wilson and Hilferty (1931)

Sums are integers of positions scaled to 20 bits, so that they are equal on every machine.

Price: one pass over the provenance, about 40 million records a second; memory is one cell's provenance, a table, and
the candidates for neighbours (n / number of shards: as many as a shard has records).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.tokens.records import ContextPlan

Pieces = tuple[NDArray[np.int64], NDArray[np.int64]]

SCALE_BITS = 20
LARGEST_TABLE = 32  # stretches and groups of files: what a picture can show
LEAST_EXPECTED = 5  # records in a place of the table; below that chi-square's distribution does not hold
BLOCK_RECORDS = 1 << 20


@dataclass(frozen=True)
class Band:
    """One measure: its value, its expectation in a perfect shuffle, and the deviation that chance explains."""

    measured: float
    ideal: float
    tolerance: float


@dataclass(frozen=True)
class OrderQuality:
    """One kind of record. `neighbours` and `pairs` are None for records that are whole documents.

    `neighbours`: adjacent pairs that share a document; `pairs`: all pairs that do. `tables`: format to
    (stretches of the source order) x (groups of consecutive output files), records each; None with too few of them.
    """

    records: int
    correlation: float
    neighbours: int | None
    pairs: int | None
    tables: dict[str, list[list[int]] | None]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class OrderMeter:
    """Measures the final order block by block; see the module's docstring.

    positions_per_shard: source positions (documents, empty ones included, or contexts) of each shard. `ends` gives for
    each format where its files end, in records of the final order, or as other ascending values that `add` receives.
    """

    def __init__(self, positions_per_shard: list[int], records: int, ends: dict[str, list[int]]) -> None:
        self._bases = np.cumsum([0, *positions_per_shard]).astype(np.uint64)
        self._records = records
        self._seen = 0
        self._sums = [0] * 5  # of u, v, u u, v v, u v
        self._stretches = max(1, min(LARGEST_TABLE, math.isqrt(records // LEAST_EXPECTED)))
        self._ends = {name: np.array(stream_ends, np.uint64) for name, stream_ends in ends.items()}
        self._tables = {
            name: np.zeros((self._stretches, len(stream_ends)), np.int64) for name, stream_ends in ends.items()
        }
        self._candidates: list[NDArray[np.uint64]] = []
        self._last: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None

    def add(
        self, shards: NDArray[np.uint64], ordinals: NDArray[np.uint64], streams: dict[str, NDArray[np.uint64]]
    ) -> None:
        """The next records of the final order. `streams`: positions for formats whose ends do not count records."""
        for first in range(0, len(shards), BLOCK_RECORDS):
            block = slice(first, first + BLOCK_RECORDS)
            self._add(shards[block], ordinals[block], {name: places[block] for name, places in streams.items()})

    def _add(
        self, shards: NDArray[np.uint64], ordinals: NDArray[np.uint64], streams: dict[str, NDArray[np.uint64]]
    ) -> None:
        source = self._bases[shards] + ordinals
        final = np.arange(self._seen, self._seen + len(shards), dtype=np.uint64)
        self._seen += len(shards)
        u = _scaled(source, int(self._bases[-1]))
        v = _scaled(final, self._records)
        for place, product in enumerate((u, v, u * u, v * v, u * v)):
            self._sums[place] += int(product.sum())
        stretch = (source * np.uint64(self._stretches) // self._bases[-1]).astype(np.int64)
        for name in self._tables:
            table = self._tables[name]
            files = np.searchsorted(self._ends[name], streams.get(name, final), side="right")
            places = stretch * table.shape[1] + files
            table += np.bincount(places, minlength=table.size).reshape(table.shape)
        if self._last is not None:
            shards, ordinals = (np.concatenate(pair) for pair in zip(self._last, (shards, ordinals), strict=True))
        self._last = shards[-1:], ordinals[-1:]
        together = np.flatnonzero(shards[1:] == shards[:-1])
        rows = (shards[together], ordinals[together], ordinals[together + 1])
        self._candidates.append(np.stack(rows, axis=1))

    def finish(self, pieces: Callable[[int], Pieces] | None) -> OrderQuality:
        """The measures. `pieces` gives a shard's `split_pieces`; None: records are whole documents."""
        neighbours = pairs = None
        if pieces is not None:
            neighbours, pairs = self._neighbours(pieces)
        tables = {name: grouped_table(table) for name, table in self._tables.items()}
        return OrderQuality(self._seen, self._correlation(), neighbours, pairs, tables)

    def _correlation(self) -> float:
        n, (u, v, uu, vv, uv) = self._seen, self._sums
        spread = (n * uu - u * u) * (n * vv - v * v)
        return round((n * uv - u * v) / math.sqrt(spread), 9) if spread else 0.0

    def _neighbours(self, pieces: Callable[[int], Pieces]) -> tuple[int, int]:
        rows = np.concatenate(self._candidates) if self._candidates else np.empty((0, 3), np.uint64)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        cuts = np.searchsorted(rows[:, 0], np.arange(len(self._bases), dtype=np.uint64))
        neighbours = pairs = 0
        for shard, (begin, end) in enumerate(pairwise(cuts.tolist())):
            contexts, documents = pieces(shard)
            held = np.bincount(documents)  # no two contexts share more than one document, so no pair counts twice
            pairs += int((held * (held - 1) // 2).sum())
            ordinals = rows[begin:end, 1:].astype(np.int64)
            before, behind = (_documents_of(ordinals[:, side], contexts, documents, len(held)) for side in (0, 1))
            neighbours += len(np.intersect1d(before, behind, assume_unique=True))
        return neighbours, pairs


def split_pieces(plan: ContextPlan) -> Pieces:
    """(context, document) of every piece whose document is in more than one context, ascending by context."""
    contexts = np.repeat(np.arange(plan.contexts), np.diff(plan.bounds))
    split = np.bincount(plan.documents)[plan.documents] > 1 if len(plan.documents) else np.empty(0, np.bool_)
    return contexts[split], plan.documents[split]


def _documents_of(
    chosen: NDArray[np.int64], contexts: NDArray[np.int64], documents: NDArray[np.int64], size: int
) -> NDArray[np.int64]:
    """place x size + document for every piece of contexts[chosen[place]]; each occurs once."""
    starts, ends = (np.searchsorted(contexts, chosen, side=side) for side in ("left", "right"))
    counts = ends - starts
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(np.arange(len(chosen)), counts)
    numbers: NDArray[np.int64] = places * size + documents[np.repeat(starts, counts) + within]
    return numbers


def grouped_table(table: NDArray[np.int64]) -> list[list[int]] | None:
    """Merge neighbouring files until each group has enough records for chi-square; None if fewer than two groups are
    left.
    """
    stretches = len(table)
    least = max(LEAST_EXPECTED * stretches, -(-int(table.sum()) // LARGEST_TABLE))
    groups: list[NDArray[np.int64]] = []
    gathered = np.zeros(stretches, np.int64)
    for column in table.T:
        gathered = gathered + column
        if gathered.sum() >= least:
            groups.append(gathered)
            gathered = np.zeros(stretches, np.int64)
    if groups and gathered.any():
        groups[-1] = groups[-1] + gathered
    if stretches < 2 or len(groups) < 2:
        return None
    return [[int(count) for count in row] for row in np.stack(groups, axis=1)]


def correlation_band(quality: OrderQuality, significance: float) -> Band | None:
    """Band of the rank correlation; None for fewer than 3 records."""
    if quality.records < 3:
        return None
    return Band(quality.correlation, 0.0, min(1.0, _deviations(significance) / math.sqrt(quality.records - 1)))


def neighbours_band(quality: OrderQuality, significance: float) -> Band | None:
    """Band of the share of adjacent pairs with parts of one document; None for documents and fewer than 3 records."""
    if quality.neighbours is None or quality.pairs is None or quality.records < 3:
        return None
    expected = 2 * quality.pairs / quality.records
    places = quality.records - 1
    return Band(
        quality.neighbours / places, expected / places, (poisson_limit(expected, significance) - expected) / places
    )


def table_band(table: list[list[int]], significance: float) -> Band:
    """Band of chi-square over its degrees of freedom."""
    counts = np.array(table, np.float64)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True) / counts.sum()
    filled = expected > 0
    statistic = math.fsum(((counts - expected)[filled] ** 2 / expected[filled]).tolist())
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    bend = 2 / (9 * freedom)
    limit = (1 - bend + _deviations(significance) * math.sqrt(bend)) ** 3
    return Band(statistic / freedom, 1.0, limit - 1)


def poisson_limit(mean: float, significance: float) -> int:
    """The least k that a Poisson number of this mean exceeds with probability at most significance / 2."""
    if mean > 500:
        return math.ceil(mean + _deviations(significance) * math.sqrt(mean))
    below, term, k = 0.0, math.exp(-mean), 0
    while True:
        below += term
        if 1 - below <= significance / 2:
            return k
        k += 1
        term *= mean / k


def _deviations(significance: float) -> float:
    return NormalDist().inv_cdf(1 - significance / 2)


def _scaled(positions: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    """Positions below `size` as integers below 2^20, rounded down; size below 2^44."""
    return ((positions << np.uint64(SCALE_BITS)) // np.uint64(max(1, size))).astype(np.int64)


def qualities_bands(measured: Iterable[tuple[str, OrderQuality]], significance: float) -> list[tuple[str, Band]]:
    """(name, band) of every measure of all kinds, the significance divided among them: one warning in 1 / significance
    perfect shuffles, not one per measure."""
    makers: list[tuple[str, Callable[[float], Band | None]]] = []
    for kind, quality in measured:
        makers.append((f"{kind}: correlation of source and final position", partial(correlation_band, quality)))
        makers.append((f"{kind}: neighbours of one document", partial(neighbours_band, quality)))
        for name, table in sorted(quality.tables.items()):
            if table is not None:
                spread = f"{name}: how unevenly the sources spread over the files (1: as chance spreads them)"
                makers.append((spread, partial(table_band, table)))
    applicable = [maker for maker in makers if maker[1](significance) is not None]
    each = significance / max(1, len(applicable))
    return [(name, band) for name, maker in applicable if (band := maker(each)) is not None]
