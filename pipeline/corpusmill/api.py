"""The scripting interface: load a configuration, plan, build, open a dataset, trace records (docs/python.md).

What the functions need is imported when they are called, so importing this module is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.lazy import lazily

with lazily:
    from corpusmill import training
    from corpusmill.builds import graph, local, preflight
    from corpusmill.builds import plan as builds_plan
    from corpusmill.config import dataset, reading
    from corpusmill.engine import preview
    from corpusmill.inspect import lineage
    from corpusmill.inspect.datasets import dataset as datasets_dataset


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.preview import StepPreview
    from corpusmill.engine.running import RunnableBuild
    from corpusmill.inspect.datasets.dataset import Dataset
    from corpusmill.inspect.lineage.facts import RecordTrace
    from corpusmill.training import SampleTrace

    Configuration = DatasetConfig | dict[str, Any] | str | Path


def load(configuration: Configuration) -> DatasetConfig:
    """A checked configuration, from a YAML file or from plain values; ConfigError lists everything that is wrong."""
    if isinstance(configuration, dataset.DatasetConfig):
        return configuration
    if isinstance(configuration, dict):
        return reading.check_config(configuration, where="the configuration")
    return reading.load_config(configuration)


def plan(configuration: Configuration) -> list[StepPreview]:
    """Every step of a build in order: whether it would be reused or run, and why. Runs nothing."""
    build = planned(configuration)
    preflight.require_tokenizer(build)
    return preview.preview(build)


def build(configuration: Configuration, *, workers: int = 1, verify: bool = False) -> RunnableBuild:
    """Build a dataset, or reuse what is there; the build gives every step's receipt, counts and folder.

    With more than one worker, the calling script needs `if __name__ == "__main__":`, as with multiprocessing.
    With `verify` a step is reused only if its outputs still have their sha256.
    """
    return graph.open_build(local.build_dataset(load(configuration), workers=workers, verify=verify))


def open_dataset(folder: str | Path, configuration: Configuration | None = None) -> Dataset:
    """A finished dataset in a folder such as `outputs/web/latest`; SourceError if there is none.

    The configuration is needed for the source documents of a record, and for a tokenizer that only it can find.
    """
    return datasets_dataset.open_dataset(folder, None if configuration is None else load(configuration))


def trace(configuration: Configuration, format: str, file: int | str, record: int) -> RecordTrace:
    """The documents in one record of an export: source file, line, id, and their spans of tokens and bytes.

    `file` is the export file's number or name. PermanentError for a file or a record that is not there.
    """
    return lineage.trace(planned(configuration), format, file, record)


def trace_samples(
    configuration: Configuration,
    first: int,
    count: int = 1,
    *,
    megatron_cache: str | Path | None = None,
    sequence_tokens: int | None = None,
    seed: int | None = None,
    split: str | None = None,
    mixture: str | Path | None = None,
) -> Iterator[SampleTrace]:
    """The documents in `count` samples of a training run, from sample `first` on; with batches of B, step N begins at
    sample (N - 1) * B.

    Pass Megatron's index cache, or a Nanoset's `sequence_tokens` and `seed`, or, for a Nanoset of several folders, the
    `mixture.json` that corpusmill mix wrote. PermanentError for a cache or mixture of another seed, split, sequence
    length or dataset, and for samples that the run never draws.
    """
    known = training.open_samples(
        planned(configuration),
        megatron_cache=megatron_cache,
        sequence_tokens=sequence_tokens,
        seed=seed,
        split=split,
        mixture=mixture,
    )
    return training.trace_samples(known, first, count)


def planned(configuration: Configuration) -> RunnableBuild:
    """The build that a configuration plans, with the receipts it has so far. Runs nothing."""
    return graph.open_build(builds_plan.plan_dataset(load(configuration)))
