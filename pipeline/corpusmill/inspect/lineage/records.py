"""The place of each record in the shuffled order, file and record to shard and ordinal and back; and its documents.

Both directions are arithmetic on counts in receipts down to a single cell, whose rows (24 bytes a record) are read, and
for numpy summed up; shuffle.memory bounds a cell, so this does not grow with the dataset.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import CorruptDataError, PermanentError
from corpusmill.export.formats import FORMATS
from corpusmill.export.stages import layout
from corpusmill.inspect.lineage.facts import PADDING, Holding, Piece, RecordTrace, Span, Special
from corpusmill.inspect.lineage.shards import (
    Shard,
    Shards,
    Stretch,
    context_stretches,
    cut_stretches,
    document_stretches,
    file_stretches,
    original_spans,
)
from corpusmill.kernels.mapping import mapped
from corpusmill.shuffle.stages import scatter
from corpusmill.storage import is_local
from corpusmill.tokens.ranks import token_lengths
from corpusmill.tokens.stages.tokenize import configured_tokenizer, vocabulary_file
from corpusmill.tokens.token_shard import PROVENANCE
from corpusmill.upload.stages.upload import destination_folder

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.export.stages.layout import OutputPlan
    from corpusmill.tokens.tokenizer import Tokenizer


# Endings that files add to the name of their output; megatron and nanoset write several files per output.
ENDINGS = (
    ".bos.idx",
    ".ds.metadata",
    ".ds.index",
    ".ds",
    ".bin",
    ".idx",
    ".tar",
    ".npy",
    ".csv.gz",
    ".offsets",
    ".parquet",
)


def find_output(build: Build, export: str, file: int | str) -> layout.OutputPlan:
    """An output of an export by its number or by a name of one of its files, with or without folder and ending.

    numpy's numbers count test and train shards together, in the order of the stream.
    """
    formats = build.config.exports.formats()
    if export not in formats:
        raise PermanentError(
            "dataset.no_such_export: the dataset has no such export", where=export, expected=", ".join(formats)
        )
    outputs = layout.output_plans(build, export)
    if isinstance(file, int) or file.isdecimal():
        if int(file) < len(outputs):
            return outputs[int(file)]
    else:
        wanted = _bare(file.removeprefix(f"{export}/"))
        for output in outputs:
            if wanted in (_bare(output.name), _bare(PurePosixPath(output.name).name)):
                return output
    raise PermanentError(
        f"locate.no_such_file: {export} has no such file",
        expected=f"0 to {len(outputs) - 1}, or a name from {outputs[0].name} to {outputs[-1].name}",
        got=f"file {file}",
    )


def _bare(name: str) -> str:
    ending = next((suffix for suffix in ENDINGS if name.endswith(suffix)), "")
    return name.removesuffix(ending)


def export_folder(build: Build, export: str, output: layout.OutputPlan, *endings: str) -> Path:
    """The folder below which `output.name` lies: in the work folder, or once it was reclaimed, at a destination.

    Of a work folder in a bucket its files are fetched, those with `endings` or all. Those with `endings`, which the
    caller reads whole, are compared with the receipt. Others are not: they may have gigabytes, of which the caller
    reads a few records.
    CorruptDataError for one that differs, PermanentError if it was reclaimed and no destination is a folder.
    """
    unit = layout.unit_of(build, export, output)
    receipt = build.receipt("export", unit)
    names = {f"{export}/{output.name}{ending}" for ending in endings or ("", *ENDINGS)}
    files = [file for file in receipt.outputs if file.name in names]
    if not receipt.reclaimed:
        folder = build.step_folder("export", unit)
        if endings or is_shared(folder):
            build.folder("export", unit, *(file.name for file in files))
        return folder / export
    for destination in (destination_folder(build, unit) for unit in build.units("upload")):
        if is_local(destination):
            for file in files if endings else []:
                _require_same(Path(destination, file.name), file.sha256)
            return Path(destination, export)
    raise PermanentError(
        "locate.file_reclaimed: an exported file was deleted to free space, and no folder has a copy",
        where=f"{export}/{output.name}",
        expected="a destination that is a folder",
        got="`reclaim: eager`, and destinations in buckets",
        next_step="corpusmill verify --version latest reads what the buckets hold",
    )


def _require_same(path: Path, sha256: str) -> None:
    got = "no file"
    if path.is_file():
        with path.open("rb") as file:
            got = f"sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
    if got != f"sha256 {sha256}":
        raise CorruptDataError(
            "locate.export_changed: an exported file differs from the one that was written",
            where=path,
            expected=f"sha256 {sha256}, by the receipt of its export",
            got=got,
            next_step="repair the dataset from another copy (corpusmill repair), or build it again",
        )


def record_stretches(
    shards: Shards, export: str, output: layout.OutputPlan, record: int
) -> tuple[Shard, int, list[Stretch]]:
    """(the shard that a record comes from, the record's ordinal there, its stretches in order).

    For numpy, `record` is a position in the file, and the stretches are those of the document that has it.
    """
    shard, ordinal, stretches = _shown_stretches(shards, export, output, record)
    if shard.shown.shown is not None:
        shown = shard.shown.shown
        stretches = [
            stretch if stretch.special else replace(stretch, ordinal=int(shown[stretch.ordinal]))
            for stretch in stretches
        ]
    return shard, ordinal, stretches


def _shown_stretches(
    shards: Shards, export: str, output: layout.OutputPlan, record: int
) -> tuple[Shard, int, list[Stretch]]:
    """The same, with ordinals of showings in the stretches."""
    build = shards.build
    records = output.last - output.first
    if not 0 <= record < records:
        raise PermanentError(
            f"record.outside_file: {export}/{output.name} has no such record",
            where=f"record {record}",
            expected=f"0 to {records - 1}" + (", a position in the file" if FORMATS[export].stream else ""),
        )
    position = output.first + record
    span = layout.cell_slices(build, export, position, position + 1)[0]
    kind = scatter.KINDS[export]
    rows = cell_rows(build, kind, span.cell)
    row, eot = span.first, 0
    if FORMATS[export].stream:
        ends = stream_ends(rows)
        row = int(np.searchsorted(ends, np.uint64(span.first), side="right"))
        eot = record - span.first + (int(ends[row - 1]) if row else 0)
    number, ordinal, tokens = rows[row].tolist()
    shard = shards[number]
    if FORMATS[export].holds_text:
        return shard, ordinal, document_stretches(ordinal, shard.stream.tokens(ordinal), eot=False)
    if kind in build.config.exports.context_tokens():
        held = context_stretches(shard.contexts(kind), shard.packing, shard.shown.ends, ordinal)
        return shard, ordinal, [stretch for stretch in held if kind == "contexts" or stretch.special != PADDING]
    if FORMATS[export].stream:
        return shard, ordinal, file_stretches(ordinal, tokens, eot, records)
    bos, eot = _specials_around(build, tokens)
    return shard, ordinal, document_stretches(ordinal, tokens, bos=bos, eot=eot)


def _specials_around(build: Build, tokens: int) -> tuple[bool, bool]:
    """Whether a whole document of `tokens` tokens has BOS and EOT."""
    framing = build.config.framing
    framed = tokens > 0 or framing.empty_documents == "eod"
    return framing.bos and framed, framing.eod and framed


def holdings(build: Build, shard: Shard, ordinal: int) -> Iterator[Holding]:
    """Every record that holds tokens of a document, or the special tokens of one without any: by export, in order."""
    formats = build.config.exports.formats()
    for export in formats:
        if scatter.KINDS[export] in build.config.exports.context_tokens():
            yield from _context_holdings(build, export, shard, ordinal)
    whole = [export for export in formats if scatter.KINDS[export] in scatter.WHOLE]
    keeps_empty = scatter.keeps_empty(build)
    if whole and (len(shard.tokens.document(ordinal)) or keeps_empty):
        showings = shard.showings(ordinal)
        draws = [showing if keeps_empty else shard.stream.rank(showing) for showing in showings]
        holding = places(build, scatter.KINDS[whole[0]], shard, draws, showings)
        for export in whole:
            for cell, row in holding:
                yield from document_holdings(build, export, cell, row, shard.stream.tokens(showings[0]))


def document_holdings(build: Build, export: str, cell: int, row: int, tokens: int) -> Iterator[Holding]:
    """The records of one export that hold the document in row `row` of a cell; several if numpy's files cut it."""
    base = list(accumulate(layout.positions_per_cell(build, export), initial=0))[cell]
    outputs = layout.output_plans(build, export)
    if not FORMATS[export].stream:
        output = _output_at(outputs, base + row)
        bos = int(FORMATS[export].framed and _specials_around(build, tokens)[0])
        held = (bos, tokens + bos)
        yield Holding(export, f"{export}/{output.name}", base + row - output.first, held, (0, tokens))
        return
    rows = cell_rows(build, "documents", cell)
    eot = base + int(stream_ends(rows[: row + 1])[-1]) - tokens - 1
    for output in outputs[_output_at(outputs, eot).number :]:
        if output.first > eot + tokens:
            return
        stretches = file_stretches(0, tokens, eot - output.first, output.last - output.first)
        for stretch in stretches:
            if not stretch.special:
                held = (stretch.document_first, stretch.document_first + stretch.last - stretch.first)
                yield Holding(
                    export, f"{export}/{output.name}", stretches[0].first, (stretch.first, stretch.last), held
                )


def _context_holdings(build: Build, export: str, shard: Shard, ordinal: int) -> Iterator[Holding]:
    kind = scatter.KINDS[export]
    plan = shard.contexts(kind)
    showings = set(shard.showings(ordinal))
    pieces = np.flatnonzero(np.isin(plan.documents, sorted(showings)))
    contexts = sorted(set((np.searchsorted(plan.bounds, pieces, side="right") - 1).tolist()))
    outputs = layout.output_plans(build, export)
    bases = list(accumulate(layout.positions_per_cell(build, export), initial=0))
    held = []
    for context, (cell, row) in zip(contexts, places(build, kind, shard, contexts, contexts), strict=True):
        output = _output_at(outputs, bases[cell] + row)
        for stretch in context_stretches(plan, shard.packing, shard.shown.ends, context):
            if stretch.ordinal in showings:
                held.append(
                    Holding(
                        export,
                        f"{export}/{output.name}",
                        bases[cell] + row - output.first,
                        (stretch.first, stretch.last),
                        (stretch.document_first, stretch.document_first + stretch.last - stretch.first),
                    )
                )
    yield from sorted(held, key=lambda holding: holding.document_tokens)


def places(build: Build, kind: str, shard: Shard, draws: list[int], ordinals: list[int]) -> list[tuple[int, int]]:
    """(cell, row) of some records of a shard, by their ordinals; `draws` are their numbers in the order of drawing.

    The cells are drawn again (10 ns per record of the shard), and only their rows are searched.
    """
    drawn = scatter.cells_of_records(build, kind, shard.number, max(draws, default=-1) + 1)
    cells = drawn[draws].tolist() if draws else []
    place_of = {}
    for cell in sorted(set(cells)):
        rows = cell_rows(build, kind, cell)
        mine = np.flatnonzero(rows[:, 0] == shard.number)
        place_of.update(
            {(cell, record): row for record, row in zip(rows[mine, 1].tolist(), mine.tolist(), strict=True)}
        )
    try:
        return [(cell, place_of[cell, ordinal]) for cell, ordinal in zip(cells, ordinals, strict=True)]
    except KeyError as error:
        raise CorruptDataError(
            "locate.record_not_in_cell: a record is not in its cell",
            where=f"{kind}, shard {shard.name}, (cell, ordinal) {error}",
            expected="one row",
            got="none",
            next_step="verify the dataset: a gathered cell was changed",
        ) from error


def cell_rows(build: Build, kind: str, cell: int) -> NDArray[np.uint64]:
    """A cell's provenance: uint64 (records, 3) of shard, ordinal, tokens; memory-mapped."""
    return mapped(build.folder("gather", f"{kind}-{cell:05d}", PROVENANCE) / PROVENANCE, "<u8").reshape(-1, 3)


def stream_ends(rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """uint64 per row: where each document ends in the cell's stream, an EOT before each."""
    return np.cumsum(rows[:, 2] + np.uint64(1), dtype=np.uint64)


def _output_at(outputs: list[layout.OutputPlan], position: int) -> layout.OutputPlan:
    return outputs[bisect_right(outputs, position, key=lambda output: output.first) - 1]


PREVIEW_CHARACTERS = 60
PREVIEW_BYTES = 4 * PREVIEW_CHARACTERS  # a character has at most 4


def trace(build: Build, export: str, file: int | str, record: int) -> RecordTrace:
    """What a record is made of: source documents with their spans of tokens and bytes, EOT and padding.

    `file` is a shard's or part's number or name. `record` counts from 0 within it: the context of a WebDataset shard,
    the document of a Megatron or Nanoset part. A numpy shard is a stream without records: there `record` is a position,
    and the answer is the part in this file of the document at that position.

    Raises PermanentError for an unknown export, file or record.
    """
    return Tracer(build).record(export, find_output(build, export, file), record)


class Tracer:
    """Traces records of one build; files stay open from one record to the next."""

    def __init__(self, build: Build) -> None:
        self._shards = Shards(build)

    def record(
        self, export: str, output: OutputPlan, record: int, first: int = 0, last: int | None = None
    ) -> RecordTrace:
        """The parts of a record of an output, or of its positions [first, last). Raises as `trace` does."""
        shard, _, stretches = record_stretches(self._shards, export, output, record)
        if last is not None:
            stretches = cut_stretches(stretches, first, last)
        parts = [
            Special(stretch.special, (stretch.first, stretch.last)) if stretch.special else _piece(shard, stretch)
            for stretch in stretches
        ]
        span = stretches[0].first, stretches[-1].last
        return RecordTrace(export, f"{export}/{output.name}", record, span, tuple(parts))


def reference_tokenizer(build: Build) -> Tokenizer:
    """The dataset's tokenizer in the reference library, whichever engine made the tokens."""
    return build.remembered(("reference tokenizer",), lambda: configured_tokenizer(build.config, engine="reference"))


def _piece(shard: Shard, stretch: Stretch) -> Piece:
    end = stretch.document_first + stretch.last - stretch.first
    spans = _text_spans(shard, stretch.ordinal, stretch.document_first, end)
    first = shard.text_span(stretch.ordinal)[0]
    text = b"".join(
        shard.text.text[first + low : first + min(high, low + PREVIEW_BYTES)].tobytes()
        for low, high in spans[:PREVIEW_BYTES]
    )
    document = shard.document(stretch.ordinal)
    return Piece(document, (stretch.first, stretch.last), (stretch.document_first, end), spans, preview(text))


def _text_spans(shard: Shard, ordinal: int, first: int, last: int) -> tuple[Span, ...]:
    """The bytes of the original text of tokens [first, last) of a document."""
    kept = shard.kept(ordinal)
    tokens = shard.tokens.document(ordinal)
    if (first, last) == (0, len(tokens)):
        return tuple(kept)
    # Tokens do not overlap, so the bytes before a token are the bytes of the tokens before it. But normalized (NFC) or
    # space-prefixed text does not decode to itself, and then the library tells which bytes a token covers.
    config = shard.build.config
    vocabulary = shard.build.remembered(("vocabulary file",), lambda: vocabulary_file(config))
    if vocabulary.kind == "tiktoken" and not config.tokenizer.parse_special:
        lengths = token_lengths(vocabulary.content, tokens[:last], where=vocabulary.path)
    else:
        start = shard.text_span(ordinal)[0]
        text = b"".join(shard.text.text[start + low : start + high].tobytes() for low, high in kept)
        lengths = np.diff(reference_tokenizer(shard.build).reference.token_ends(text), prepend=0)[:last]
    before = int(lengths[:first].sum())
    return original_spans(kept, before, before + int(lengths[first:].sum()))


def preview(text: bytes) -> str:
    """The beginning of some UTF-8 bytes in printable characters; a truncated character is dropped."""
    # Unprintable characters (controls, bidirectional marks) could forge a terminal's text.
    shown = text[:PREVIEW_BYTES].decode(errors="ignore")[:PREVIEW_CHARACTERS]
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in shown)
