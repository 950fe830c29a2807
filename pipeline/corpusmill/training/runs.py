"""Identifies the training run that a user means, from its index cache, mixture, seed and tokens per sequence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.errors import PermanentError
from corpusmill.lazy import lazily
from corpusmill.training.megatron_samples import MegatronSamples
from corpusmill.training.sample import Samples

with lazily:
    from corpusmill.training import nanoset_samples


if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def open_samples(
    build: Build,
    *,
    megatron_cache: str | Path | None = None,
    sequence_tokens: int | None = None,
    seed: int | None = None,
    split: str | None = None,
    mixture: str | Path | None = None,
) -> Samples:
    """The samples of a run: of Megatron by its index cache, else of a Nanoset by the tokens of a sequence and the seed.

    In a cache the other three select the run; for a Nanoset, no seed means datatrove's order. A Nanoset of several
    folders is given by the `mixture.json` of corpusmill mix, which has both; if given, too, they must agree.
    PermanentError for a dataset without the export, a Nanoset without `sequence_tokens` or with a split, and a cache or
    mixture without one such run on this dataset.
    """
    wanted = "nanoset" if megatron_cache is None else "megatron"
    formats = build.config.exports.formats()
    if wanted not in formats:
        raise PermanentError(
            "dataset.no_such_export: the dataset has no such export",
            where=build.config.name,
            expected=wanted,
            got=", ".join(formats),
        )
    if megatron_cache is not None and mixture is not None:
        raise PermanentError(
            "training.blend_in_cache: a run of Megatron has its blend in the cache",
            expected="megatron_cache or mixture",
            got="both",
            next_step="leave the mixture out",
        )
    if megatron_cache is not None:
        return MegatronSamples(build, Path(megatron_cache), seed=seed, sequence_tokens=sequence_tokens, split=split)
    if mixture is not None and split is None:
        known = nanoset_samples.read_mixture(Path(mixture), build)
        if sequence_tokens not in (None, known.sequence_tokens) or seed not in (None, known.seed):
            raise PermanentError(
                "mixture.other_run: the mixture is for another run",
                where=mixture,
                expected=f"seed {seed}, {sequence_tokens} tokens a sample",
                got=f"seed {known.seed}, {known.sequence_tokens} tokens a sample",
                next_step="run corpusmill mix with the run's seed and sequence tokens",
            )
        return nanoset_samples.NanosetSamples(build, known.sequence_tokens, known.seed, known)
    if sequence_tokens is None or split is not None:
        raise PermanentError(
            "training.nanoset_order: a Nanoset's order of samples follows from the tokens of a sequence and the seed",
            expected="sequence_tokens, optionally a seed, and no split",
            got="no sequence_tokens" if sequence_tokens is None else f"split {split}",
            next_step="for a run of Megatron, give its index cache",
        )
    return nanoset_samples.NanosetSamples(build, sequence_tokens, seed)
