"""Counts what a process moves to and from work folders in buckets, and the blocks it found in its machine's cache.

To sum over several processes, name a file in CORPUSMILL_MOVED (a task of Airflow does, for its metrics): each process
appends a line of JSON, counts by name. Without the variable nothing is written.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from corpusmill.storage.retries import Traffic

MOVED = "CORPUSMILL_MOVED"


@dataclass
class Moved(Traffic):
    """Requests to buckets and their bytes; blocks of 1 MiB that steps opened: cached (hits), or fetched (misses)."""

    cache_hits: int = 0
    cache_misses: int = 0
    _reported: Counter[str] = field(default_factory=Counter, repr=False, compare=False)

    def as_counts(self) -> dict[str, int]:
        """The figures by name."""
        names = ("requests", "retries", "bytes_received", "bytes_sent", "cache_hits", "cache_misses")
        return {name: getattr(self, name) for name in names}

    def news(self) -> dict[str, int]:
        """The figures since the last call, without those that are 0."""
        with self._lock:
            counts = Counter(self.as_counts())
            reported, self._reported = self._reported, counts
            return dict(counts - reported)


_of_process: dict[int, Moved] = {}


def moved() -> Moved:
    """The counts of this process; a fork starts at 0."""
    return _of_process.setdefault(os.getpid(), Moved())


def report_moved() -> None:
    """Append the counts since the last call to the file in CORPUSMILL_MOVED, if set."""
    place = os.environ.get(MOVED)
    if place and (news := moved().news()):
        # One short write to a file that is only appended to: lines of several processes do not mix.
        with suppress(FileNotFoundError), Path(place).open("ab", buffering=0) as file:
            file.write(json.dumps(news).encode() + b"\n")


def reported(place: Path) -> dict[str, int]:
    """The sums of all lines of a file."""
    total: Counter[str] = Counter()
    for line in place.read_bytes().splitlines():
        total.update(json.loads(line))
    return dict(total)
