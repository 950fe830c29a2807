"""Which earlier text a duplicate range repeats: found again through the anchors.

A duplicate range is a union of windows of L = minimum_bytes bytes that occurred earlier. Equal windows have equal
anchors at equal offsets, and the first of equal windows is always owned by an anchor (dedup/anchors.py). So a window's
first occurrence is beside one of the anchors with its anchor's hash: in every earlier shard one bucket of 4,096 is
read, and what it proposes is compared byte for byte.

Price: for each stretch of a range that one earlier document covers, the anchors of at most 2 L bytes, 1/4096 of all
anchors, and 2 L bytes of every text that they propose. Nothing is scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import CorruptDataError
from pipeline.lineage.facts import Duplicate, Occurrence, Span
from pipeline.lineage.shards import Shard, Shards

if TYPE_CHECKING:
    from pipeline.dedup.anchors import Anchors

COMPARE_BYTES = 1 << 16


class EarlierText:
    """What stands before a document: the shards before its own, and its own up to it."""

    def __init__(self, shards: Shards, shard: Shard, ordinal: int, minimum_bytes: int) -> None:
        self.minimum_bytes = minimum_bytes
        self.shards = [*(shards[number] for number in range(shard.number)), shard]
        self._build = shards.build
        self._ordinal = ordinal
        self._origin, last = shard.text_span(ordinal)
        self._document: NDArray[np.uint8] = shard.text.text[self._origin : last]

    def duplicates(self) -> tuple[Duplicate, ...]:
        """The document's duplicate ranges, each with the earlier text that covers it, in order."""
        shard = self.shards[-1]
        # Ranges as found begin and end with windows; those that are cut out were shortened to whole characters.
        pairs = zip(shard.duplicates(self._ordinal), shard.raw_duplicates(self._ordinal), strict=True)
        return tuple(Duplicate(cut, tuple(self._cover(raw))) for cut, raw in pairs)

    def _cover(self, raw: Span) -> Iterator[Occurrence]:
        first, last = raw
        covered = first
        while covered < last:
            # Some window that occurred earlier holds the first byte that is not covered yet.
            low = max(first, covered - self.minimum_bytes + 1)
            high = min(covered, last - self.minimum_bytes)
            start, shard, position = self._first_window(low, high)
            found = self._extended(start, last, shard, position)
            yield found
            covered = found.text_bytes[1]

    def _first_window(self, low: int, high: int) -> tuple[int, Shard, int]:
        """The first window found to have occurred earlier, of those that start at `low` to `high`.

        (its start in the document, the shard and the position in the shard's text of its first occurrence)
        """
        anchors, repeats = self._anchors_between(low, high)
        for hashed, place in anchors.tolist():
            position, first = low + (place >> 20), low + (place >> 20) - (place >> 10 & 1023)
            for shard, earlier in self._proposed(hashed, position):
                start = self._equal_window(position, first, first + (place & 1023), shard, earlier)
                if start is not None:
                    return start, shard, earlier - position + start
        if len(repeats):  # equal to a window a period before it, which needs its own anchor to be found
            start = low + int(repeats[0, 0])
            return self._first_window(start, start)
        raise CorruptDataError(
            "the earlier text that a duplicate range repeats was not found",
            where=f"{self.shards[-1].text.folder}, document {self._ordinal:,}, bytes {low:,} to {high:,}",
            expected=f"{self.minimum_bytes} equal bytes before it in the dataset",
            next_step="verify the dataset: a text shard, its anchors or its ranges were changed",
        )

    def _anchors_between(self, low: int, high: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """(anchors, repeats) of the windows that start at `low` to `high`, as if they were a document of their own.

        Positions count from `low`. Formats: dedup/__init__.py.
        """
        from pipeline.dedup.anchor_kernels import find_anchors
        from pipeline.dedup.anchors import kgram_bytes

        text = np.concatenate([np.array([0xFF], np.uint8), self._document[low : high + self.minimum_bytes]])
        offsets = np.zeros(1, np.uint64)
        anchors = np.empty((high - low + 2, 2), np.uint64)
        repeats = np.empty_like(anchors)
        k = kgram_bytes(self.minimum_bytes)
        state = np.zeros(2, np.int64)
        found, repeated = find_anchors(
            text.ctypes.data, text.size, offsets.ctypes.data, 1, self.minimum_bytes, k, state, anchors, repeats
        )
        # Text begins behind the separator: places count from it, and so do the windows of repeats.
        return anchors[:found] - np.array([0, 1 << 20], np.uint64), repeats[:repeated] - np.uint64(1)

    def _proposed(self, hashed: int, position: int) -> Iterator[tuple[Shard, int]]:
        """(shard, position in its text) of every earlier anchor with a hash, in dataset order."""
        bucket = hashed >> 52
        for shard, anchors in zip(self.shards, self._anchors, strict=True):
            rows = anchors.rows[anchors.starts[bucket] : anchors.starts[bucket + 1]]
            for place in rows[rows[:, 0] == np.uint64(hashed), 1].tolist():
                if shard is self.shards[-1] and place >> 20 >= self._origin + position:
                    return
                yield shard, place >> 20

    def _equal_window(self, position: int, first: int, last: int, shard: Shard, earlier: int) -> int | None:
        """The first window start in [first, last] whose bytes equal those around `earlier`, if there is one."""
        text = shard.text.text
        back = min(position - first, earlier)
        # The separator equals no byte of a document, so nothing reaches over a document's end.
        before = np.flatnonzero(self._document[position - back : position] != text[earlier - back : earlier])
        start = position - back + (int(before[-1]) + 1 if len(before) else 0)
        mine = self._document[position : last + self.minimum_bytes]
        theirs = text[earlier : earlier + len(mine)]
        after = np.flatnonzero(mine[: len(theirs)] != theirs)
        end = position + (int(after[0]) if len(after) else len(theirs))
        return start if end - start >= self.minimum_bytes else None

    def _extended(self, start: int, last: int, shard: Shard, position: int) -> Occurrence:
        """The stretch from a pair of equal windows on, as far as the range and both documents agree."""
        end, earlier = start + self.minimum_bytes, position + self.minimum_bytes
        while end < last:
            mine = self._document[end : min(end + COMPARE_BYTES, last)]
            theirs = shard.text.text[earlier : earlier + len(mine)]
            unequal = np.flatnonzero(mine[: len(theirs)] != theirs)
            same = int(unequal[0]) if len(unequal) else len(theirs)
            end, earlier = end + same, earlier + same
            if same < len(mine):
                break
        ordinal = int(np.searchsorted(shard.text.offsets, np.uint64(position), side="right")) - 1
        begin = position - shard.text_span(ordinal)[0]
        return Occurrence((start, end), shard.document(ordinal), (begin, begin + end - start))

    @cached_property
    def _anchors(self) -> list[Anchors]:
        from pipeline.dedup.anchors import open_anchors

        return [open_anchors(self._build.folder("anchor", shard.name)) for shard in self.shards]
