"""The source that is drawn at each step.

Source: NVIDIA/Megatron-LM core/datasets/helpers.cpp (build_blending_indices); huggingface/nanotron data/nanoset.py and
docs/nanoset.md, whose example is our golden vector (its shuffled arrays are those of seed 1234).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.kernels.compiled import kernel

MOST_STEPS = 4_000_000_000  # sources times samples: a few seconds

# numpy keeps RandomState's stream forever (NEP 19); it is what the reference shuffles with.


@kernel
def _most_wanted(weights: Any, drawn: Any, step: Any) -> Any:
    """The source furthest behind its share at `step`; the first of equals."""
    scale = float(max(step, 1))
    best = 0
    furthest = weights[0] * scale - drawn[0]
    for source in range(1, len(weights)):
        behind = weights[source] * scale - drawn[source]
        if behind > furthest:
            best, furthest = source, behind
    return best


@kernel
def _fill_order(weights: Any, drawn: Any, sources: Any, ordinals: Any) -> None:
    for step in range(len(sources)):
        source = _most_wanted(weights, drawn, step)
        sources[step] = source
        ordinals[step] = drawn[source]
        drawn[source] += 1


@kernel
def _count_draws(weights: Any, drawn: Any, samples: Any) -> None:
    for step in range(samples):
        drawn[_most_wanted(weights, drawn, step)] += 1


def blend_order(weights: NDArray[np.float64], samples: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Megatron's blend: int16 source and int64 number of its earlier draws, for every sample.

    `weights`: float64 (sources,), summing to 1; fewer than 32,768 sources.
    """
    sources, ordinals = np.empty(samples, np.int16), np.empty(samples, np.int64)
    _fill_order(weights, np.zeros(len(weights), np.int64), sources, ordinals)
    return sources, ordinals


def blend_draws(weights: NDArray[np.float64], samples: int) -> NDArray[np.int64]:
    """int64 (sources,): draws of each source in the first `samples` steps; memory grows with sources, not with samples.

    Exact up to MOST_STEPS comparisons. Beyond, which would take minutes, the shares of `samples` rounded to whole
    draws, which differ by at most two draws per source (tests).
    """
    drawn = np.zeros(len(weights), np.int64)
    if samples * len(weights) > MOST_STEPS:
        shares = weights * samples
        drawn[:] = np.floor(shares)
        drawn[np.argsort(drawn - shares, kind="stable")[: samples - int(drawn.sum())]] += 1
        return drawn
    _count_draws(weights, drawn, samples)
    return drawn


def nanoset_epoch(
    windows: NDArray[np.int64], weights: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """One epoch of a Nanoset: (source, window of it) of sum(windows) samples, in the order they are trained on.

    `windows`: int64, one a source, none zero. Both arrays are shuffled with a RandomState(seed) of their own, which is
    the same permutation.
    """
    sources, ordinals = blend_order(weights, int(windows.sum()))
    ordinals %= windows[sources]
    for array in (sources, ordinals):
        np.random.RandomState(seed).shuffle(array)
    return sources, ordinals


def nanoset_files(files: int) -> list[int]:
    """The order in which a Nanoset joins the files of a folder, as indexes into the files in order of name.

    nanotron lets datatrove shuffle them without passing a seed, so it is datatrove's default, 42.
    """
    order: list[int] = np.random.default_rng(42).permutation(files).tolist()
    return order


def nanoset_counts(
    windows: NDArray[np.int64], weights: NDArray[np.float64], samples: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of every source (int64): draws among the first `samples` of a Nanoset, windows these show, windows ever shown."""
    sources, ordinals = nanoset_epoch(windows, weights, seed)
    epochs, rest = divmod(samples, len(sources))
    whole, cut = (np.bincount(part, minlength=len(windows)) for part in (sources, sources[:rest]))
    starts = np.cumsum(windows) - windows
    shown = np.zeros(int(windows.sum()), bool)
    first = slice(min(samples, len(sources)))
    shown[starts[sources[first]] + ordinals[first]] = True
    return epochs * whole + cut, np.add.reduceat(shown, starts, dtype=np.int64), np.minimum(whole, windows)
