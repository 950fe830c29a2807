"""The windows that a partition found, and their files.

match_ranges        start u64 LE | end u64 LE       sections by shard (sections.py): bytes of windows that occurred
                                                    earlier, ascending and disjoint
later_windows, earlier_windows      the same form, for keep: every_string
reference_windows                   first u64 | one past the last u64 | reference u64, sections by shard: starts of
                     windows that are in a reference (references.py); only where there are references
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.ranges import Ranges, union_ranges
from corpusmill.dedup.sections import Sections, write_sections

MATCH_RANGES, LATER_WINDOWS, EARLIER_WINDOWS = "match_ranges", "later_windows", "earlier_windows"
REFERENCE_WINDOWS = "reference_windows"
NO_RANGES: Ranges = np.empty((0, 2), np.uint64)


@dataclass(frozen=True)
class Matches:
    """Per shard, ascending and disjoint, rows uint64 (r, 2).

    ranges      bytes of windows that occurred earlier in dataset order
    later       the starts of these windows: first, one past the last; empty unless requested
        earlier     starts of windows that these equal, among them the first of every repeated window; empty unless
                    requested
    windows     how many windows occurred earlier
    referred    rows (r, 3) of those in a reference: first, one past the last, the reference's number; only with
    references
    """

    ranges: list[Ranges]
    later: list[Ranges]
    earlier: list[Ranges]
    windows: int
    referred: list[NDArray[np.uint64]] = field(default_factory=list)

    @classmethod
    def of_windows(
        cls, later: Sequence[Ranges], earlier: list[Ranges], minimum_bytes: int, *, want_windows: bool
    ) -> Matches:
        """From rows of windows per shard, where no window is in two rows."""
        widen = np.array([0, minimum_bytes - 1], np.uint64)
        return cls(
            [union_ranges(own + widen) for own in later],
            [union_ranges(own) if want_windows else NO_RANGES for own in later],
            earlier,
            sum(int((own[:, 1] - own[:, 0]).sum()) for own in later),
        )

    def without(self, shards: int) -> Matches:
        """These matches without those of the first `shards` shards: the references, from which nothing is removed."""
        none, no_referred = [NO_RANGES] * shards, [np.empty((0, 3), np.uint64)] * shards
        return Matches(
            none + self.ranges[shards:],
            none + self.later[shards:],
            none + self.earlier[shards:],
            self.windows,
            no_referred + self.referred[shards:] if self.referred else [],
        )

    def write(self, folder: Path, *, with_windows: bool) -> None:
        """Write `match_ranges` and, for `keep: every_string`, the files of windows."""
        write_sections(folder, MATCH_RANGES, self.ranges)
        if with_windows:
            write_sections(folder, LATER_WINDOWS, self.later)
            write_sections(folder, EARLIER_WINDOWS, self.earlier)
        if self.referred:
            write_sections(folder, REFERENCE_WINDOWS, self.referred)

    def united(self, others: Sections, *, with_windows: bool) -> Matches:
        """The union with matches that were written to another folder; `windows` counts only these."""

        def both(name: str, own: list[Ranges]) -> list[Ranges]:
            read = (others.read(name, shard, columns=2) for shard in range(len(own)))
            return [union_ranges(np.concatenate(pair)) for pair in zip(read, own, strict=True)]

        ranges = both(MATCH_RANGES, self.ranges)
        if not with_windows:
            return Matches(ranges, self.later, self.earlier, self.windows)
        later, earlier = both(LATER_WINDOWS, self.later), both(EARLIER_WINDOWS, self.earlier)
        return Matches(ranges, later, earlier, self.windows)
