"""Samples of a training run as frozen values, the documents in them, and both as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from corpusmill.errors import PermanentError, inline
from corpusmill.export.stages.layout import OutputPlan
from corpusmill.inspect.lineage import RecordTrace, Tracer
from corpusmill.inspect.lineage.facts import PART_COLUMNS, Piece, number_of, part_row, table

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
            "training.too_few_samples: the run draws fewer samples than asked for",
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


def render_sample(sample: SampleTrace) -> str:
    """A sample and its parts, one line per part; for one of another dataset, only the file."""
    if not sample.records:
        return f"sample {sample.number:,} of {inline(sample.file)}: another dataset's"
    rows, documents, tokens = [], set(), 0
    for record in sample.records:
        first, last = record.record_tokens
        for part in record.parts:
            place, *columns = part_row(part, tokens - first)
            rows.append((place, f"{record.record:,}", *columns))
            if isinstance(part, Piece):
                documents.add((part.document.shard, part.document.ordinal))
        tokens += last - first
    head = (
        f"sample {sample.number:,} of {inline(sample.file)}: {tokens:,} tokens, {number_of(len(documents), 'document')}"
    )
    return "\n".join([head, "", *table(("in the sample", "record", *PART_COLUMNS), rows)])
