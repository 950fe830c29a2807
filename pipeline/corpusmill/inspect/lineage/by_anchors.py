"""Finds the first place of a window by the anchors that found it to be a duplicate.

Equal windows have equal anchors at equal offsets, and the first of equal windows is always owned by an anchor
(dedup/anchors.py). So a window's first occurrence is at one of the anchors with its anchor's hash: in every earlier
shard one bucket of 4,096 is read, and its candidates are compared byte for byte.

Price: the anchors of at most 2 L bytes, 1/4096 of all anchors, and 2 L bytes of text per candidate. No text is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.anchor_kernels import find_anchors
from corpusmill.dedup.anchors import Anchors, kgram_bytes

if TYPE_CHECKING:
    from corpusmill.inspect.lineage.locate import Passage
    from corpusmill.inspect.lineage.shards import EarlierShard


class AnchorFinder:
    """A locate.Finder for one document. `anchors`: those of each shard of the passage."""

    def __init__(self, of: Passage, anchors: Sequence[Anchors]) -> None:
        self._of = of
        self._anchors = anchors

    def __call__(self, low: int, high: int) -> tuple[int, EarlierShard, int] | None:
        """See locate.Finder."""
        anchors, repeats = self._anchors_between(low, high)
        for hashed, place in anchors.tolist():
            position, first = low + (place >> 20), low + (place >> 20) - (place >> 10 & 1023)
            for shard, earlier in self._proposed(hashed, position):
                start = self._equal_window(position, first, first + (place & 1023), shard, earlier)
                if start is not None:
                    return start, shard, earlier - position + start
        if len(repeats):  # equal to a window a period before it, which has the anchor
            start = low + int(repeats[0, 0])
            return self(start, start)
        return None

    def _anchors_between(self, low: int, high: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """(anchors, repeats) of the windows that start at `low` to `high`, as if they were a document of their own.

        Positions count from `low`. Formats: dedup/__init__.py.
        """
        text = np.concatenate([np.array([0xFF], np.uint8), self._of.document[low : high + self._of.minimum_bytes]])
        offsets = np.zeros(1, np.uint64)
        anchors = np.empty((high - low + 2, 2), np.uint64)
        repeats = np.empty_like(anchors)
        k = kgram_bytes(self._of.minimum_bytes)
        state = np.zeros(2, np.int64)
        anchors_found, repeated = find_anchors(
            text.ctypes.data, text.size, offsets.ctypes.data, 1, self._of.minimum_bytes, k, state, anchors, repeats
        )
        # Text begins behind the separator: places count from it, and so do the windows of repeats.
        return anchors[:anchors_found] - np.array([0, 1 << 20], np.uint64), repeats[:repeated] - np.uint64(1)

    def _proposed(self, hashed: int, position: int) -> Iterator[tuple[EarlierShard, int]]:
        """(shard, position in its text) of every earlier anchor with a hash, in dataset order."""
        for shard, anchors in zip(self._of.shards, self._anchors, strict=True):
            for place in anchors.places(hashed).tolist():
                if shard is self._of.shard and place >> 20 >= self._of.origin + position:
                    return
                yield shard, place >> 20

    def _equal_window(self, position: int, first: int, last: int, shard: EarlierShard, earlier: int) -> int | None:
        """The first window start in [first, last] whose bytes equal those around `earlier`, if there is one."""
        text = shard.text.text
        back = min(position - first, earlier)
        # The separator equals no byte of a document, so nothing reaches over a document's end.
        before = np.flatnonzero(self._of.document[position - back : position] != text[earlier - back : earlier])
        start = position - back + (int(before[-1]) + 1 if len(before) else 0)
        mine = self._of.document[position : last + self._of.minimum_bytes]
        theirs = text[earlier : earlier + len(mine)]
        after = np.flatnonzero(mine[: len(theirs)] != theirs)
        end = position + (int(after[0]) if len(after) else len(theirs))
        return start if end - start >= self._of.minimum_bytes else None
