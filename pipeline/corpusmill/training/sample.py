"""Samples of a training run as frozen values, and the documents in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from corpusmill.errors import PermanentError
from corpusmill.export.stages.layout import OutputPlan
from corpusmill.inspect.lineage import RecordTrace, Tracer

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


@dataclass(frozen=True)
class RecordSpan:
    """Tokens [first, last) of a record of an export file, special tokens counted."""

    record: int
    first: int
    last: int


@dataclass(frozen=True)
class Drawn:
    """The source of one sample: a file, and spans of its records in order.

    `file` is the trainer's name for it. `output` is None for a file of another dataset, whose records are not known.
    """

    file: str
    output: OutputPlan | None
    spans: tuple[RecordSpan, ...] = ()


@dataclass(frozen=True)
class SampleTrace:
    """One sample of a training run, by its number from 0: the records in it, each cut to what the sample shows.

    The concatenated tokens of `records` are the sample's. `records` is empty for a sample of another dataset.
    """

    number: int
    file: str
    records: tuple[RecordTrace, ...]


class Samples(Protocol):
    """The order in which a run draws its samples."""

    export: str
    build: Build

    def __len__(self) -> int: ...

    @property
    def title(self) -> str:
        """A description of the run for people."""

    def sample(self, number: int) -> Drawn:
        """The spans of sample `number` (below the length)."""


def trace_samples(samples: Samples, first: int, count: int) -> Iterator[SampleTrace]:
    """The documents in `count` samples from number `first` on. PermanentError for samples that the run never draws."""
    if not 0 <= first <= first + count <= len(samples):
        raise PermanentError(
            "training.too_few_samples: the run draws fewer samples",
            where=samples.title,
            expected=f"samples 0 to {len(samples) - 1:,}",
            got=f"samples {first:,} to {first + count - 1:,}",
        )
    tracer = Tracer(samples.build)
    for number in range(first, first + count):
        drawn = samples.sample(number)
        records = tuple(
            tracer.record(samples.export, drawn.output, span.record, span.first, span.last)
            for span in drawn.spans
            if drawn.output
        )
        yield SampleTrace(number, drawn.file, records)
