"""The formats of whole documents: what Megatron's parts and Nanoset's files share, and each of them.

    megatron/<dataset>_<number>_<key>_document.bin and .idx                (export/megatron.py has the bytes)
    nanoset/00000_<number>_doc_shuffled.ds and those beside it             (export/nanoset.py has the bytes)

Where files of formats here and of OLMo-core (olmo.py) are cut at the same size, they hold the same bytes: the tokens
are written once, and get a second name. With OLMo-core's they have at most OLMO_TOKENS.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config.exports import OLMO_TOKENS
from corpusmill.engine.work import Input
from corpusmill.export.formats.base import Cells, Format, Output, Readable, Settings, Wanted, framing_of, record_batches
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages import gather
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.shuffle.stages.scatter import in_source_order
from corpusmill.tokens.stages.tokenize import vocabulary

with lazily:
    import numpy as np

    from corpusmill.export import megatron, nanoset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary

BLOCK_TOKENS = 1 << 20
KIND = "documents"


class DocumentFormat(Format):
    """A format whose records are whole documents, in files of about a size."""

    framed = True

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

    def stated(self, _exports: ExportsConfig, framing: dict[str, Any]) -> dict[str, Any]:
        return {"framing": framing}

    @abstractmethod
    def file_name(self, build: Build, number: int) -> str:
        """The name of an output."""

    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        size = self.shared_bytes(exports)
        assert size is not None
        return min(size, OLMO_TOKENS * token_bytes) if size == linked_bytes(exports) else size

    def _bounds(self, build: Build, documents: int) -> list[int]:
        if not documents:
            return [0]
        width = np.dtype(vocabulary(build).dtype).itemsize
        limit = self.output_bytes(build.config.exports, width)
        total_bytes = (shown_total(build, "tokens") + framed_tokens(build, documents)) * width
        if in_source_order(build):
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


def linked_bytes(exports: ExportsConfig) -> int | None:
    """The size of the files whose tokens OLMo-core's share; None if they share none."""
    if exports.olmo is None or exports.olmo.file_tokens is not None:
        return None
    if exports.megatron:
        return int(exports.megatron.part_bytes)
    return int(exports.nanoset.file_bytes) if exports.nanoset else None


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
    """(tokens, lengths) of documents without their special tokens, in blocks of about BLOCK_TOKENS.

    ValueError for documents of an index that no such tokens have, before anything is allocated for them.
    """
    framed = ends > starts  # a document kept bare has no special tokens either
    starts = starts + (framed & about.framing.bos).astype(np.uint64)
    ends = ends - (framed & about.framing.eod).astype(np.uint64)
    if (starts > ends).any() or int(ends.max(initial=0)) > len(tokens):
        raise ValueError(f"the index has a document that is not within its {len(tokens):,} tokens")
    first = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + np.uint64(BLOCK_TOKENS), side="right")))
        places = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
        yield np.concatenate([tokens[start:end] for start, end in places]), ends[first:last] - starts[first:last]
        first = last


def beside(path: Path, suffix: str) -> Path:
    """A file of an output."""
    return path.with_name(path.name + suffix)


class Megatron(DocumentFormat):
    """See export/megatron.py."""

    name = "megatron"
    data_suffix = ".bin"

    def file_name(self, build: Build, number: int) -> str:
        """{prefix}_{json key}_document, as Megatron's own tool has it."""
        key = re.sub(r"[^A-Za-z0-9.-]+", "_", build.config.source.text_field)
        return f"{build.config.name}_{number:05d}_{key}_document"

    def shared_bytes(self, exports: ExportsConfig) -> int | None:
        assert exports.megatron is not None
        return int(exports.megatron.part_bytes)

    def suffixes(self, _exports: ExportsConfig) -> tuple[str, ...]:
        return (".bin", ".idx")

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        size = settings.vocabulary.size
        written = megatron.write_part(
            folder,
            output.name,
            document_batches(cells, output),
            dtype=megatron.token_dtype(size),
            vocabulary_size=size,
            written=tally.add,
            **asdict(settings.framing_of_documents()),
        )
        return counted(written)

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        framing = asdict(framing_of(config.framing, ids))
        return counted(megatron.verify_part(path, vocabulary_size=ids.size, **framing))

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        index = beside(path, ".idx").read_bytes()
        sequences, bounds = (int(number) for number in np.frombuffer(index, "<u8", 2, 18))
        lengths = np.frombuffer(index, "<i4", sequences, 34).astype(np.uint64)
        boundaries = np.frombuffer(index, "<i8", bounds, 34 + 12 * sequences)
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])[boundaries]
        tokens = np.memmap(beside(path, ".bin"), {8: "<u2", 4: "<i4"}[index[17]], "r")
        yield from bare_documents(tokens, ends[:-1], ends[1:], about)

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        part = megatron.open_part(path)
        for record in wanted:
            yield part.document(record.record)


class Nanoset(DocumentFormat):
    """See export/nanoset.py."""

    name = "nanoset"
    data_suffix = ".ds"
    libraries = ("humanize",)

    def file_name(self, build: Build, number: int) -> str:
        """As datatrove names its files."""
        return nanoset.file_name(number, None) if in_source_order(build) else nanoset.file_name(0, number)

    def shared_bytes(self, exports: ExportsConfig) -> int | None:
        assert exports.nanoset is not None
        return int(exports.nanoset.file_bytes)

    def suffixes(self, exports: ExportsConfig) -> tuple[str, ...]:
        loss = (".ds.loss",) if exports.nanoset and exports.nanoset.loss else ()
        return (".ds", ".ds.index", ".ds.metadata", *loss)

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        framing = asdict(settings.framing_of_documents())
        written = nanoset.write_file(
            folder,
            output.name,
            document_batches(cells, output),
            eos_id=framing.pop("eod_id"),
            tokenizer_name=settings.vocabulary.name,
            vocabulary_size=settings.vocabulary.size,
            written=tally.add,
            **framing,
        )
        return self._with_loss(settings, folder, output, counted(written))

    def link(self, tokens: Path, _cells: Cells, output: Output, folder: Path, settings: Settings) -> dict[str, int]:
        """`tokens` is the `.bin` of a Megatron part."""
        opened = megatron.open_part(tokens.with_suffix(""))
        name, special = settings.vocabulary.name, settings.framing_of_documents().special_tokens
        written = nanoset.link_file(folder, output.name, opened, tokenizer_name=name, special_tokens=special)
        return self._with_loss(settings, folder, output, counted(written))

    def _with_loss(self, settings: Settings, folder: Path, output: Output, counts: dict[str, int]) -> dict[str, int]:
        if settings.loss and counts["slots"]:
            nanoset.write_loss(folder / f"{output.name}.ds", nanoset.every_token(counts["slots"]))
        return counts

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        framing = asdict(framing_of(config.framing, ids))
        seen = nanoset.verify_file(
            beside(path, ".ds"),
            vocabulary_size=ids.size,
            eos_id=framing.pop("eod_id"),
            tokenizer_name=ids.name,
            loss=bool(config.exports.nanoset and config.exports.nanoset.loss),
            **framing,
        )
        return counted(seen)

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        ends = np.fromfile(beside(path, ".ds.index"), "<u8")
        width = beside(path, ".ds.metadata").read_text().partition("\n")[0].rpartition("|")[2]
        tokens = np.memmap(beside(path, ".ds"), f"<u{width}", "r")
        yield from bare_documents(tokens, np.concatenate([np.zeros(1, np.uint64), ends[:-1]]), ends, about)

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        file = nanoset.open_file(beside(path, ".ds"))
        for record in wanted:
            yield file.document(record.record)
