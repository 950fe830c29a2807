"""What a format is, and what formats share: the records of an output in batches, the content sums of what was written
(kernels/content.py) by cell, for the balance, and by file, for anyone; for formats of whole documents, where their
files are cut and how documents are read back.

A writer passes the token sums of its records, in order, computed from the arrays that it writes. They are weighted
twice:

* by cell and place in the cell, as gather weighted them: over all files of a format, a cell's slices must hold what was
gathered. An output that was reused at other offsets does not balance.
* by place in the file: `content` in dataset.json, which anyone can recompute from the file alone (docs/guarantees.md).

Special tokens around documents are left out of both, because they depend on framing. All slots of a context count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import UNSET, UnsetType

from corpusmill.config import FramingConfig
from corpusmill.engine.work import Identity, Input
from corpusmill.errors import TokenizerError
from corpusmill.kernels import advance
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages import gather, scatter
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.tokens.stages.tokenize import Vocabulary, vocabulary

with lazily:
    import numpy as np

    from corpusmill.export import framing
    from corpusmill.kernels import content_kernels, slices
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.framing import Framing
    from corpusmill.kernels.content_kernels import Words


BATCH_TOKENS = 1 << 19
BLOCK_TOKENS = 1 << 20
KIND = "documents"

Cells = dict[int, Input]
"""The gathered cells that a unit reads, by number."""


class CellSlice(NamedTuple):
    """The part [first, last) of one cell's positions."""

    cell: int
    first: int
    last: int


class Settings(Identity, frozen=True, kw_only=True):
    """What a unit writes: for each format number, name and slices of its outputs (see Output), and the ids in them.

    `framing` of whole documents, unless it is the default; `loss`: Nanoset files say which tokens are trained on.
    """

    outputs: dict[str, list[tuple[int, str, list[CellSlice]]]]
    vocabulary: Vocabulary
    framing: dict[str, Any] | UnsetType = UNSET
    loss: bool | UnsetType = UNSET
    libraries: dict[str, str]

    def framing_of_documents(self) -> Framing:
        """The special tokens around documents."""
        return framing_of(FramingConfig.model_validate(self.framing or {}), self.vocabulary)


@dataclass(frozen=True)
class Output:
    """One output file (or file set): its number, its path below the format's folder, its slices.

    `slices` in order, in positions of the cell (see layout.OutputPlan).
    """

    number: int
    name: str
    slices: list[CellSlice]


@dataclass(frozen=True)
class Readable:
    """What a reader needs besides the files: the framing of documents, and the dtype of raw files."""

    framing: FramingConfig
    dtype: np.dtype[Any]


class Wanted(NamedTuple):
    """A record of a file: its number, its positions [first, last), and `shard-ordinal`, where it comes from."""

    record: int
    first: int
    last: int
    origin: str


class Format(ABC):
    """A training format.

    `name`: of its section in the configuration, and of its folder; `stream`: its positions are tokens of the stream
    with an EOT before each document, else they are records; `libraries`: those whose versions can change its bytes.
    """

    name: ClassVar[str]
    stream: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        """The names of its outputs, and the bounds between them, of `total` positions."""

    @abstractmethod
    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        """Bytes of the ids of a full output."""

    def suffixes(self, _exports: ExportsConfig) -> tuple[str, ...]:
        """What its files add to the name of their output, a suffix each."""
        return ("",)

    @abstractmethod
    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        """Write an output below the format's folder, adding its content to `tally`; returns records and slots."""

    @abstractmethod
    def verify(self, config: DatasetConfig, path: Path, positions: int, ids: Vocabulary) -> dict[str, int]:
        """Check every byte of an output against the format; returns records and slots as they were read.

        `path` is the output's, without the suffixes of its files. VerificationError by file and byte.
        """

    @abstractmethod
    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        """(tokens, lengths) of its records without special tokens, block by block, read without the writer's code."""

    @abstractmethod
    def records(self, path: Path, wanted: Sequence[Wanted], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """The ids of some records of an output, in ascending order, as they are in the file."""


def record_batches(cells: Cells, output: Output) -> Iterator[tuple[Any, Any, Any, Any]]:
    """(tokens, ends, shards, ordinals) of an output's records, about BATCH_TOKENS at a time."""
    for number, first, last in output.slices:
        cell = token_shard.open_record_shard(cells[number].folder())
        for begin, end in slices.runs(cell.ends, BATCH_TOKENS, first, last):
            tokens, ends = cell.slice(begin, end)
            yield tokens, ends, cell.shards[begin:end], cell.ordinals[begin:end]
            advance.note_done(end - begin)


def framing_of(wanted: FramingConfig, ids: Vocabulary) -> Framing:
    """The special tokens around whole documents; TokenizerError for BOS where the tokenizer has none."""
    if wanted.bos and ids.bos_id is None:
        raise TokenizerError(
            f"tokenizer.no_bos: the tokenizer {ids.name} has no BOS token", next_step="name it as tokenizer.bos"
        )
    return framing.Framing(
        ids.eot_id if wanted.eod else None, ids.bos_id if wanted.bos else None, wanted.empty_documents
    )


class WrittenContent:
    """Consumes the sums of consecutive records of some stretches (cell, first, last) of cells."""

    def __init__(self, stretches: Sequence[tuple[int, int, int]]) -> None:
        self._stretches = stretches
        self._ends = list(accumulate(last - first for _, first, last in stretches))  # in records
        self._records = 0
        self.file = NOTHING
        self.cells: dict[int, ContentSum] = {}

    def add(self, sums: Words) -> None:
        """The token sums uint64 (2, n) of the next n records. IndexError for more records than the stretches hold."""
        first, last = self._records, self._records + sums.shape[1]
        if last > max(self._ends, default=0):
            raise IndexError(f"{last:,} records were written of {max(self._ends, default=0):,}")
        self.file += content_kernels.placed_sum(sums, 0, np.arange(first, last, dtype=np.uint64))
        while self._records < last:
            number = bisect_right(self._ends, self._records)
            cell, _, behind = self._stretches[number]
            stop, offset = min(last, self._ends[number]), behind - self._ends[number]
            places = np.arange(self._records + offset, stop + offset, dtype=np.uint64)
            self.add_to_cell(cell, sums[:, self._records - first : stop - first], places)
            self._records = stop

    def add_to_cell(self, cell: int, sums: Words, places: NDArray[np.uint64]) -> None:
        """The token sums of records, or of pieces of them, by their places in one cell."""
        more = content_kernels.placed_sum(sums, cell, places)
        self.cells[cell] = self.cells.get(cell, NOTHING) + more

    def to_json(self) -> dict[str, object]:
        """`content` of the file, and `cells`: [cell, content] of each cell with records in it."""
        return {"content": str(self.file), "cells": [[cell, str(part)] for cell, part in sorted(self.cells.items())]}


class DocumentFormat(Format):
    """A format whose records are whole documents, in files of about a size."""

    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        """Contiguous runs of documents, in as many parts as the part size requires.

        After a uniform shuffle equal numbers of documents are nearly equal numbers of tokens. In source order every
        part but the last has the part's size, found from the counts of every shard as if the documents within one were
        equally long: text appended to the source does not change the parts before it.
        """
        bounds = self._bounds(build, total)
        if build.config.framing.empty_documents == "boundary":
            bounds = _without_empty_parts(build, bounds)
        return [self.file_name(build, number) for number in range(len(bounds) - 1)], bounds

    @abstractmethod
    def file_name(self, build: Build, number: int) -> str:
        """The name of an output."""

    def _bounds(self, build: Build, documents: int) -> list[int]:
        if not documents:
            return [0]
        width = np.dtype(vocabulary(build).dtype).itemsize
        limit = self.output_bytes(build.config.exports, width)
        total_bytes = (shown_total(build, "tokens") + framed_tokens(build, documents)) * width
        if scatter.in_source_order(build):
            return _source_bounds(build, max(1, limit // width))
        parts = min(documents, -(-total_bytes // limit))
        return [number * documents // parts for number in range(parts + 1)]


def _source_bounds(build: Build, tokens_per_part: int) -> list[int]:
    """The documents at which the stream of framed tokens passes multiples of `tokens_per_part`, and both ends."""
    bounds, documents, tokens = {0}, 0, 0
    special = build.config.framing.eod + build.config.framing.bos
    cells = zip(*(gather.per_cell(build, KIND, what) for what in ("records", "slots")), strict=True)
    for records, slots in cells:
        framed = slots + special * records
        marks = range(-(-tokens // tokens_per_part) * tokens_per_part, tokens + framed, tokens_per_part)
        bounds |= {documents + (mark - tokens) * records // framed for mark in marks}
        documents, tokens = documents + records, tokens + framed
    return sorted(bounds | {documents})


def _without_empty_parts(build: Build, bounds: list[int]) -> list[int]:
    """The bounds of parts that have tokens: documents without any join the part before, the first ones the next.

    No reader can map a file without bytes. Only where `empty_documents: boundary` keeps such documents bare can a part
    be empty; how many tokens precede a bound is then read from the gathered cells, eight bytes a bound.
    """
    kept = [bounds[0]]
    tokens = 0
    for bound in bounds[1:]:
        before = _tokens_before(build, bound)
        if before > tokens:
            kept.append(bound)
            tokens = before
    return [*kept[:-1], bounds[-1]] if len(kept) > 1 else [0]


def _tokens_before(build: Build, document: int) -> int:
    """Tokens of all documents before one in the global order."""
    tokens = first = 0
    for cell, records in enumerate(gather.per_cell(build, KIND, "records")):
        if document <= first + records:
            ends = gather.provenance(Input(build, ("gather", f"{KIND}-{cell:05d}"))).ends
            return tokens + (int(ends[document - first - 1]) if document > first else 0)
        tokens += gather.per_cell(build, KIND, "slots")[cell]
        first += records
    return tokens


def framed_tokens(build: Build, records: int) -> int:
    """Special tokens of `records` whole documents, which are all documents, in one export."""
    wanted = build.config.framing
    bare = shown_total(build, "documents_empty") if wanted.empty_documents == "boundary" else 0
    return (records - bare) * (wanted.eod + wanted.bos)


def document_batches(cells: Cells, output: Output) -> Iterator[tuple[Any, Any]]:
    """(tokens, ends) of an output's documents."""
    for tokens, ends, _, _ in record_batches(cells, output):
        yield tokens, ends


def counted(seen: dict[str, int]) -> dict[str, int]:
    """Records and slots, from the counts of a writer or a verifier."""
    return {"records": seen["documents"], "slots": seen["tokens"] + seen["special_tokens"]}


def bare_documents(
    tokens: NDArray[Any], starts: NDArray[np.uint64], ends: NDArray[np.uint64], about: Readable
) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
    """(tokens, lengths) of documents without their special tokens, in blocks of about BLOCK_TOKENS."""
    framed = ends > starts  # a document kept bare has no special tokens either
    starts = starts + (framed & about.framing.bos).astype(np.uint64)
    ends = ends - (framed & about.framing.eod).astype(np.uint64)
    first = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + np.uint64(BLOCK_TOKENS), side="right")))
        places = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
        yield np.concatenate([tokens[start:end] for start, end in places]), ends[first:last] - starts[first:last]
        first = last


def beside(path: Path, suffix: str) -> Path:
    """A file of an output."""
    return path.with_name(path.name + suffix)
