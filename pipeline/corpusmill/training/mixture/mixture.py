"""The figures of a mixture of finished datasets: draws and epochs of each source, and samples that are never seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corpusmill.config.epochs import epochs_of
from corpusmill.errors import ConfigError
from corpusmill.training.mixture.order import blend_draws, nanoset_counts
from corpusmill.training.mixture.sources import (
    DEFAULT_SPLIT,
    BlendPart,
    Source,
    Split,
    by_size,
    files_needed,
    has_empty_split,
    normalised,
    parts_by_files,
    parts_by_sequences,
)

Way = Literal["megatron", "megatron_splits", "nanoset"]
MOST_SOURCES = 32_767  # Megatron's blend counts sources in int16


@dataclass(frozen=True)
class Exposure:
    """How much one way of training sees of one source.

    `there`: its tokens in the training split; `samples`: their distinct samples in one epoch; `drawn`: draws of this
    source; `seen`: how many distinct samples this budget shows, for Megatron at most; `reachable`: how many are ever
    shown, however long the run; `tokens`: tokens trained on; `epochs`: how often each token (Megatron) or sample
    (Nanoset, which drops the tail of every file) is seen on average.
    """

    there: int
    samples: int
    drawn: int
    seen: int
    reachable: int
    tokens: int
    epochs: float

    @property
    def never(self) -> int:
        """Samples that no epoch shows: every epoch draws the same ones."""
        return self.samples - self.reachable


@dataclass(frozen=True)
class Mixture:
    """Sources, their weights (float64, summing to 1), Megatron's split, and the exposures of every way of training.

    `megatron` is Megatron with --data-path and --split, `megatron_splits` with the files' splits, both of
    corpusmill.training.mixture.sources; `data_path` are the files of the first, in order.
    """

    sources: tuple[Source, ...]
    weights: NDArray[np.float64]
    sequence_tokens: int
    samples: int
    seed: int
    split: Split
    exposures: dict[Way, tuple[Exposure, ...]]
    data_path: tuple[BlendPart, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens trained on, whichever way."""
        return self.samples * self.sequence_tokens

    @property
    def indivisible_files(self) -> tuple[BlendPart, ...]:
        """Files of `data_path` with too few documents for the split, with which Megatron does not start."""
        return tuple(part for part in self.data_path if has_empty_split(part.file, self.split))

    @property
    def undivided(self) -> tuple[Source, ...]:
        """Sources with too few files for splits by file: all of their files train."""
        if files_needed(self.split) == 1 or "megatron_splits" not in self.exposures:
            return ()
        return tuple(
            source
            for source in self.sources
            if len(parts_by_files(source, 1.0, self.split)["train"]) == len(source.megatron)
        )


def mix(
    sources: Sequence[Source],
    *,
    weights: Sequence[float] | None = None,
    alpha: float | None = None,
    sequence_tokens: int,
    budget_tokens: int,
    seed: int,
    split: Split = DEFAULT_SPLIT,
) -> Mixture:
    """Compute a mixture: by the given weights, or by the sources' sizes to the power `alpha`.

    `sequence_tokens` is what the model sees at once (S; both readers take S + 1 tokens), `budget_tokens` what the run
    trains on. `seed` is the trainer's, `split` Megatron's (training, validation, test). ConfigError for weights, sizes
    or sources that do not fit together.
    """
    _require_fitting(sources)
    if (weights is None) == (alpha is None):
        raise ConfigError("mixture.weights_and_alpha: use weights or alpha, not both", expected="one of them")
    if weights is not None and len(weights) != len(sources):
        raise ConfigError(
            "mixture.weight_count: the number of weights differs from the number of sources",
            expected=f"{len(sources)} weights",
            got=f"{len(weights)} weights",
        )
    shares = (
        normalised(weights, [source.folder for source in sources])
        if weights is not None
        else by_size([source.tokens for source in sources], alpha or 0.0)
    )
    if sequence_tokens < 1 or budget_tokens < sequence_tokens:
        raise ConfigError(
            "mixture.empty_budget: the budget must be at least one sequence",
            expected=f"sequence_tokens >= 1 and budget_tokens >= {sequence_tokens}",
            got=f"{sequence_tokens} and {budget_tokens}",
        )
    samples = -(-budget_tokens // sequence_tokens)
    exposures: dict[Way, tuple[Exposure, ...]] = {}
    data_path: tuple[BlendPart, ...] = ()
    if all(source.megatron for source in sources):
        pairs = list(zip(sources, shares.tolist(), strict=True))
        ways: dict[Way, list[list[BlendPart]]] = {
            "megatron": [parts_by_sequences(source, weight, split) for source, weight in pairs],
            "megatron_splits": [parts_by_files(source, weight, split)["train"] for source, weight in pairs],
        }
        data_path = tuple(part for parts in ways["megatron"] for part in parts)
        for way, parts in ways.items():
            exposures[way] = _megatron(sources, parts, sequence_tokens, samples)
    if all(source.nanoset for source in sources):
        exposures["nanoset"] = _nanoset(sources, shares, sequence_tokens, samples, seed)
    return Mixture(tuple(sources), shares, sequence_tokens, samples, seed, split, exposures, data_path)


def _megatron(
    sources: Sequence[Source], parts: list[list[BlendPart]], sequence_tokens: int, samples: int
) -> tuple[Exposure, ...]:
    """Every file is a dataset of its own, whose samples are strides of S over its documents; the last token is only a
    label. The blend draws files, and each file has as many epochs as its draws need.
    """
    weights = np.array([part.weight for of_source in parts for part in of_source])
    for _ in range(2):  # Megatron normalises in the builder and in the blend, which may differ in the last bit
        weights = weights / np.sum(weights)
    drawn = iter(blend_draws(weights, samples).tolist())
    strides = [[max(0, part.tokens - 1) // sequence_tokens for part in of_source] for of_source in parts]
    _require_samples(sources, [sum(stride) for stride in strides], sequence_tokens)
    exposures = []
    for of_source, each in zip(parts, strides, strict=True):
        draws = [next(drawn) for _ in of_source]
        there = sum(part.tokens for part in of_source)
        exposures.append(
            Exposure(
                there=there,
                samples=sum(each),
                drawn=sum(draws),
                seen=sum(epochs_of(*pair).seen for pair in zip(each, draws, strict=True) if pair[0]),
                reachable=sum(each),
                tokens=sum(draws) * sequence_tokens,
                epochs=epochs_of(there, sum(draws) * sequence_tokens).mean,
            )
        )
    return tuple(exposures)


def _nanoset(
    sources: Sequence[Source], weights: NDArray[np.float64], sequence_tokens: int, samples: int, seed: int
) -> tuple[Exposure, ...]:
    windows = nanoset_windows(sources, sequence_tokens)
    drawn, seen, reachable = (counts.tolist() for counts in nanoset_counts(windows, weights, samples, seed))
    return tuple(
        Exposure(
            there=sum(file.tokens for file in source.nanoset),
            samples=there,
            drawn=drawn[number],
            seen=seen[number],
            reachable=reachable[number],
            tokens=drawn[number] * sequence_tokens,
            epochs=epochs_of(there, drawn[number]).mean,
        )
        for number, (source, there) in enumerate(zip(sources, windows.tolist(), strict=True))
    )


def nanoset_windows(sources: Sequence[Source], sequence_tokens: int) -> NDArray[np.int64]:
    """Samples of every source's `.ds` files (int64); ConfigError for a source with none."""
    there = [sum(file.windows(sequence_tokens) for file in source.nanoset) for source in sources]
    _require_samples(sources, there, sequence_tokens)
    return np.array(there, np.int64)


def _require_samples(sources: Sequence[Source], there: list[int], sequence_tokens: int) -> None:
    for source, count in zip(sources, there, strict=True):
        if not count:
            raise ConfigError(
                "mixture.source_too_small: a source has no whole sample",
                where=source.folder,
                expected=f"{sequence_tokens + 1:,} tokens or more in one file",
                got=f"{source.tokens:,} tokens",
                next_step="leave it out, or train on shorter sequences",
            )


def _require_fitting(sources: Sequence[Source]) -> None:
    """Require one tokenizer for all, no source twice, and an export that all sources have."""
    if not 1 <= len(sources) <= MOST_SOURCES:
        raise ConfigError(
            "mixture.no_sources: a mixture needs sources", expected=f"1 to {MOST_SOURCES:,}", got=len(sources)
        )
    first = sources[0]
    for number, source in enumerate(sources):
        if source.vocabulary != first.vocabulary:
            raise ConfigError(
                "mixture.vocabularies_differ: two sources have different vocabularies",
                where=source.folder,
                expected=f"{_in_words(first.vocabulary)}, as {first.folder}",
                got=_in_words(source.vocabulary),
                next_step="build both with one tokenizer",
            )
        if source.folder in {source.folder for source in sources[:number]}:
            raise ConfigError(
                "mixture.source_twice: a source is named twice",
                where=source.folder,
                next_step="name it once, with a larger weight",
            )
    if not (all(source.megatron for source in sources) or all(source.nanoset for source in sources)):
        raise ConfigError(
            "mixture.no_common_export: no export is common to all sources",
            expected="megatron files in every source, or nanoset files in every source",
            got=[f"{source.name}: {'megatron' if source.megatron else 'nanoset'}" for source in sources],
        )


def _in_words(vocabulary: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in vocabulary.items())
