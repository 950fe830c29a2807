"""What formats of whole documents share: where their files are cut, and how documents are read back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.work import Input
from corpusmill.export.formats.base import Cells, Format, Output, Readable, record_batches
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages import gather, scatter
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.tokens.stages.tokenize import vocabulary

with lazily:
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import ExportsConfig
    from corpusmill.engine.build import Build

BLOCK_TOKENS = 1 << 20
KIND = "documents"


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

    @abstractmethod
    def part_bytes(self, exports: ExportsConfig) -> int:
        """The size of an output."""

    def output_bytes(self, exports: ExportsConfig, _token_bytes: int) -> int:
        return self.part_bytes(exports)

    def _bounds(self, build: Build, documents: int) -> list[int]:
        if not documents:
            return [0]
        limit = self.part_bytes(build.config.exports)
        width = np.dtype(vocabulary(build).dtype).itemsize
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
