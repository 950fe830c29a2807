"""Finds the outcome of every document: matches the rows of two versions, partitioned by identity.

Each round matches the remaining documents that agree in its columns, and removes as many as both versions have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.inspect.difference.documents import AMOUNTS, ROW, Numbers, Rows

PARTITIONS = 256
ROUNDS = {
    "unchanged": ("identity", "source", "text", "cuts"),
    "cut": ("identity", "source", "text"),  # same text, different duplicates
    "changed": ("identity", "source"),
    "moved": ("identity", "text"),  # to another file
}
OUTCOMES = (*ROUNDS, "lost", "gained")
MEASURES = ("documents", *AMOUNTS)


def count_outcomes(old: Iterable[Rows], new: Iterable[Rows], sources: Numbers) -> NDArray[np.int64]:
    """int64 (sources, outcomes, measures, 2): the amounts by source file, outcome, measure, and side."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [_partition(batches, Path(folder, side)) for side, batches in (("old", old), ("new", new))]
        totals = np.zeros((len(sources), len(OUTCOMES), len(MEASURES), 2), np.int64)
        for number in range(PARTITIONS):
            rows = [np.fromfile(folder / str(number), ROW) for folder in folders]
            for outcome, columns in enumerate(ROUNDS.values()):
                for side, matched in enumerate(match(rows[0], rows[1], columns)):
                    _add(totals[:, outcome, :, side], rows[side][matched])
                    rows[side] = rows[side][~matched]
            for side, outcome in enumerate((OUTCOMES.index("lost"), OUTCOMES.index("gained"))):
                _add(totals[:, outcome, :, side], rows[side])
    return totals


def match(old: Rows, new: Rows, columns: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of each side have a partner with equal `columns`: of n and m equal ones the first min(n, m)."""
    values = [np.concatenate([old[column], new[column]]) for column in columns]
    is_new = np.arange(len(old) + len(new)) >= len(old)
    order = np.lexsort((is_new, *values))
    differs = np.zeros(len(order), bool)
    for value in values:
        differs[1:] |= value[order][1:] != value[order][:-1]
    group, is_new = np.cumsum(differs), is_new[order]
    counts = [np.bincount(group[is_new == side], minlength=len(order)) for side in (False, True)]
    starts = np.cumsum(counts[0] + counts[1]) - counts[0] - counts[1]
    rank = np.arange(len(order)) - starts[group] - np.where(is_new, counts[0][group], 0)
    matched = np.zeros(len(order), bool)
    matched[order] = rank < np.minimum(*counts)[group]
    return matched[: len(old)], matched[len(old) :]


def _partition(batches: Iterable[Rows], folder: Path) -> Path:
    """Write the rows to the files 0 to PARTITIONS - 1 in `folder` by their identity; returns `folder`."""
    folder.mkdir()
    with ExitStack() as stack:
        files = [stack.enter_context((folder / str(number)).open("wb")) for number in range(PARTITIONS)]
        for rows in batches:
            numbers = rows["identity"] % np.uint64(PARTITIONS)
            order = np.argsort(numbers, kind="stable")
            ends = np.searchsorted(numbers[order], np.arange(1, PARTITIONS))
            for file, part in zip(files, np.split(rows[order], ends), strict=True):
                file.write(part.tobytes())
    return folder


def _add(totals: NDArray[np.int64], rows: Rows) -> None:
    """Add the rows' amounts to `totals` int64 (sources, measures)."""
    for place, measure in enumerate(MEASURES):
        np.add.at(totals[:, place], rows["source"], 1 if measure == "documents" else rows[measure])
