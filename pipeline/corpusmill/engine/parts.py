"""Divides the units of a stage into parts, one for each task of a scheduler.

A scheduler spends a quarter of a second on a task, so a small dataset has one task a step, and a large one as many as
its bytes need. Part k of n is computed when its task starts: names of units are in no scheduler's database, and a plan
that is made again divides what is there then.

    units        00000 00001 00002 00003 00004 00005        of one stage, or of several with the same names
    bytes        ====== == == ====== ====== ==
    part of 3    1/3          2/3           3/3             neighbours, of about equal size
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

from corpusmill.errors import ConfigError

PART_BYTES = 1 << 30  # of sources: work for a quarter of a minute to several minutes
UNIT_BYTES = 1 << 20  # of sources, the least that a unit counts: what any step costs, some 20 ms, in bytes
_WRITTEN = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


class Part(NamedTuple):
    """The part `number`, from 1, of `of` parts."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def of_units(self, names: list[str], sizes: list[int]) -> list[str]:
        """The names in this part; `sizes`: bytes of each, at least UNIT_BYTES each. May be none."""
        weights = [max(UNIT_BYTES, size) for size in sizes]
        total = sum(weights)
        # A unit belongs to the part that holds its middle.
        return [
            name
            for name, weight, end in zip(names, weights, accumulate(weights), strict=True)
            if (2 * end - weight) * self.of // (2 * total) == self.number - 1
        ]


WHOLE = Part(1, 1)


def read_part(text: str) -> Part:
    """The part that is written as `3/16`; ConfigError for anything else."""
    found = _WRITTEN.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise ConfigError("part.unknown: there is no such part", got=text, expected="<number>/<how many>, such as 3/16")
    return Part(int(found[1]), int(found[2]))


def number_of_parts(source_bytes: int, shards: int, most: int) -> int:
    """How many parts each step of a dataset has: one for about PART_BYTES, no more than shards or `most`."""
    return max(1, min(most, shards, source_bytes // PART_BYTES))
