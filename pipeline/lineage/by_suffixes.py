"""Finds the first place of a window by suffix arrays: all places of a string are one range of ranks.

Price: for each window tried, two binary searches in the table of every earlier shard (2 log2 n comparisons of L bytes),
and the pointers of all its places; the first window tried is nearly always the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from corpusmill.dedup.suffix_matches import SortedShard, ranks_of
from corpusmill.lineage.occurrences import Passage
from corpusmill.lineage.shards import EarlierShard


class SuffixFinder:
    """An occurrences.Finder for one document. `ordered`: the text and the table of each shard of the passage."""

    def __init__(self, of: Passage, ordered: Sequence[SortedShard]) -> None:
        self._of = of
        self._ordered = ordered

    def __call__(self, low: int, high: int) -> tuple[int, EarlierShard, int] | None:
        """See occurrences.Finder."""
        for start in range(low, high + 1):
            window = self._of.document[start : start + self._of.minimum_bytes].tobytes()
            for shard, ordered in zip(self._of.shards, self._ordered, strict=True):
                positions = ordered.suffixes.starts(*ranks_of(ordered, window))
                if shard is self._of.shard:
                    positions = positions[positions < self._of.origin + start]
                if len(positions):
                    return start, shard, int(positions.min())
        return None
