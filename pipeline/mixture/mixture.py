"""What a mixture of finished datasets comes to: draws and epochs of each, and what is never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import ConfigError
from pipeline.mixture.order import blend_draws, nanoset_draws, nanoset_epoch
from pipeline.mixture.sources import Source
from pipeline.mixture.weights import by_size, normalised

Trainer = Literal["megatron", "nanoset"]
MOST_SOURCES = 32_767  # Megatron's blend counts sources in int16


@dataclass(frozen=True)
class Exposure:
    """How much of one source one trainer sees.

    `samples`: its distinct samples; `drawn`: how many draws fall on it; `seen`: how many distinct samples are ever
    shown, however long the run; `tokens`: tokens trained on from it.
    """

    samples: int
    drawn: int
    seen: int
    tokens: int

    @property
    def epochs(self) -> float:
        """How often each of the source's samples is seen on average."""
        return self.drawn / self.samples

    @property
    def repeats_for_ever(self) -> bool:
        """Whether some of its samples come again in every epoch while others never come."""
        return self.seen < self.samples


@dataclass(frozen=True)
class Mixture:
    """Sources, their weights (float64, summing to 1), and what every trainer makes of them."""

    sources: tuple[Source, ...]
    weights: NDArray[np.float64]
    sequence_tokens: int
    samples: int
    seed: int
    exposures: dict[Trainer, tuple[Exposure, ...]]

    @property
    def tokens(self) -> int:
        """Tokens trained on, by any trainer."""
        return self.samples * self.sequence_tokens


def mix(
    sources: Sequence[Source],
    *,
    weights: Sequence[float] | None = None,
    alpha: float | None = None,
    sequence_tokens: int,
    budget_tokens: int,
    seed: int,
) -> Mixture:
    """Work out a mixture: weights as given, or the sources' sizes to the power `alpha`.

    `sequence_tokens` is what the model sees at once (S; both readers take S + 1 tokens), `budget_tokens` what the run
    trains on. `seed` is the trainer's. ConfigError for weights, sizes or sources that do not fit together.
    """
    _require_fitting(sources)
    if (weights is None) == (alpha is None):
        raise ConfigError("weights come from numbers or from alpha, not both", expected="one of them")
    if weights is not None and len(weights) != len(sources):
        raise ConfigError(
            "there is not one weight a source", expected=f"{len(sources)} weights", got=f"{len(weights)} weights"
        )
    shares = normalised(weights) if weights is not None else by_size([one.tokens for one in sources], alpha or 0.0)
    if sequence_tokens < 1 or budget_tokens < sequence_tokens:
        raise ConfigError(
            "the budget must be a sequence at least",
            expected=f"sequence_tokens >= 1 and budget_tokens >= {sequence_tokens}",
            got=f"{sequence_tokens} and {budget_tokens}",
        )
    samples = -(-budget_tokens // sequence_tokens)
    exposures: dict[Trainer, tuple[Exposure, ...]] = {}
    if all(one.megatron for one in sources):
        exposures["megatron"] = _megatron(sources, shares, sequence_tokens, samples)
    if all(one.nanoset for one in sources):
        exposures["nanoset"] = _nanoset(sources, shares, sequence_tokens, samples, seed)
    return Mixture(tuple(sources), shares, sequence_tokens, samples, seed, exposures)


def _megatron(
    sources: Sequence[Source], weights: NDArray[np.float64], sequence_tokens: int, samples: int
) -> tuple[Exposure, ...]:
    drawn = blend_draws(weights, samples).tolist()
    # Strides of S over a source's concatenated documents (GPTDataset): the last token is only ever a label.
    there = [max(0, sum(file.tokens for file in one.megatron) - 1) // sequence_tokens for one in sources]
    _require_samples(sources, there, sequence_tokens)
    return tuple(
        Exposure(samples=count, drawn=draws, seen=count, tokens=draws * sequence_tokens)
        for count, draws in zip(there, drawn, strict=True)
    )


def _nanoset(
    sources: Sequence[Source], weights: NDArray[np.float64], sequence_tokens: int, samples: int, seed: int
) -> tuple[Exposure, ...]:
    windows = nanoset_windows(sources, sequence_tokens)
    per_epoch = np.bincount(nanoset_epoch(windows, weights, seed)[0], minlength=len(windows)).tolist()
    drawn = nanoset_draws(windows, weights, samples, seed).tolist()
    return tuple(
        Exposure(samples=count, drawn=draws, seen=min(count, once), tokens=draws * sequence_tokens)
        for count, draws, once in zip(windows.tolist(), drawn, per_epoch, strict=True)
    )


def nanoset_windows(sources: Sequence[Source], sequence_tokens: int) -> NDArray[np.int64]:
    """Samples of every source's `.ds` files (int64); ConfigError for a source with none."""
    there = [sum(file.windows(sequence_tokens) for file in one.nanoset) for one in sources]
    _require_samples(sources, there, sequence_tokens)
    return np.array(there, np.int64)


def _require_samples(sources: Sequence[Source], there: list[int], sequence_tokens: int) -> None:
    for source, count in zip(sources, there, strict=True):
        if not count:
            raise ConfigError(
                "a source holds no whole sample",
                where=source.folder,
                expected=f"{sequence_tokens + 1:,} tokens at least in one file",
                got=f"{source.tokens:,} tokens",
                next_step="leave it out, or train on shorter sequences",
            )


def _require_fitting(sources: Sequence[Source]) -> None:
    """One tokenizer for all, no source twice, an export that all of them have."""
    if not 1 <= len(sources) <= MOST_SOURCES:
        raise ConfigError("a mixture needs sources", expected=f"1 to {MOST_SOURCES:,}", got=len(sources))
    first = sources[0]
    for number, source in enumerate(sources):
        if source.vocabulary != first.vocabulary:
            raise ConfigError(
                "two sources have different vocabularies",
                where=source.folder,
                expected=f"{_in_words(first.vocabulary)}, as {first.folder}",
                got=_in_words(source.vocabulary),
                next_step="build both with one tokenizer",
            )
        if source.folder in {one.folder for one in sources[:number]}:
            raise ConfigError("a source is named twice", where=source.folder, next_step="give it one larger weight")
    if not (all(one.megatron for one in sources) or all(one.nanoset for one in sources)):
        raise ConfigError(
            "no export is common to all sources",
            expected="megatron files in every source, or nanoset files in every source",
            got=[f"{one.name}: {'megatron' if one.megatron else 'nanoset'}" for one in sources],
        )


def _in_words(vocabulary: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in vocabulary.items())
