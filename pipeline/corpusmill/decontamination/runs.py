"""Weights of runs of words: low for runs in many items, zero for common phrases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import inlined, kernel

MOST_SEQUENCES = 60
PHRASE_WORDS = 3

BASE = np.uint64(0x9DDFEA08EB382D69)
_ODD = np.uint64(0xFF51AFD7ED558CCD)


@inlined
def mixed(run: Any) -> Any:
    """The key of a run of words, from its polynomial hash."""
    run = (run ^ (run >> np.uint64(32))) * _ODD
    return run ^ (run >> np.uint64(29))


@kernel
def _run_keys(words: Any, size: Any, keys: Any) -> None:
    leaves = np.uint64(1)
    for _ in range(size - 1):
        leaves *= BASE
    run = np.uint64(0)
    for i in range(len(words)):
        run = run * BASE + words[i]
        if i >= size - 1:
            keys[i - size + 1] = mixed(run)
            run -= words[i - size + 1] * leaves


def run_keys(words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """uint64 (words - size + 1,): the key of every run of `size` words."""
    keys = np.empty(max(len(words) - size + 1, 0), np.uint64)
    if len(keys):
        _run_keys(np.require(words, requirements="C"), size, keys)
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Every run of words within one sequence, sorted by key, then place.

    `keys` uint64 (n,); `places` int64 (n,), the run's first word; `weights` float32 (n,), 0 for common runs and for the
    second occurrence of a run in a sequence.
    """

    keys: NDArray[np.uint64]
    places: NDArray[np.int64]
    weights: NDArray[np.float32]

    def by_place(self, words: int) -> NDArray[np.float32]:
        """float32 (words,): the weight of the run that begins at each word."""
        by_place = np.zeros(words, np.float32)
        by_place[self.places] = self.weights
        return by_place


def find_runs(words: NDArray[np.uint64], bounds: NDArray[np.int64], size: int, common: NDArray[np.bool_]) -> Runs:
    """The runs of `size` words of the sequences `words[bounds[i] : bounds[i + 1]]`.

    `common` bool (words,): whether a common run begins there (`begins_common`); a run of nothing but common runs has
    weight 0.
    """
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    keys = run_keys(words, size)
    (inside,) = np.nonzero(owner[: len(keys)] == owner[len(owner) - len(keys) :])
    places = inside[np.argsort(keys[inside], kind="stable")]
    keys, owner = keys[places], owner[places]
    new_key = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    new_pair = new_key | np.append(True, owner[1:] != owner[:-1])[: len(keys)]
    group = np.cumsum(new_key) - 1
    sequences = np.bincount(group, new_pair)[group] if len(keys) else np.zeros(0)
    all_common = np.logical_and.reduce([common[places + behind] for behind in range(size - PHRASE_WORDS + 1)])
    informative = new_pair & (sequences <= MOST_SEQUENCES) & ~all_common
    weights = np.where(informative, 1 / np.maximum(sequences, 1), 0).astype(np.float32)
    return Runs(keys, places, weights)


def common_runs(phrases: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """The keys of all runs of `PHRASE_WORDS` words in these phrases, ascending."""
    return np.unique(np.concatenate([run_keys(words, PHRASE_WORDS) for words in phrases]))


def begins_common(words: NDArray[np.uint64], common: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether a common run begins at each word."""
    begins = np.zeros(len(words), np.bool_)
    begins[: max(len(words) - PHRASE_WORDS + 1, 0)] = is_among(run_keys(words, PHRASE_WORDS), common)
    return begins


def is_among(values: NDArray[np.uint64], few: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool (values,): which of many values are among `few`, ascending. Unlike np.isin, this does not sort the many."""
    places = np.minimum(np.searchsorted(few, values), len(few) - 1)
    among: NDArray[np.bool_] = few[places] == values
    return among
