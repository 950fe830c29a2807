"""Rebuilds records from their source: reads the lines again, cuts, tokenizes and packs again, compares the ids.

Of the build's results only positions are trusted: lines come from the source files, ranges are cut with plain slices,
the reference library tokenizes whichever engine made the tokens, and the ids are compared with those that the exports'
own readers read from the exported files.

Price: one pass over every source file with a sampled document (decompression, about 0.5 GB/s), tiktoken at
10 MB/s over the sampled documents, one pass over the headers of every tar with a sampled record. Memory: one source
block, and the ids of the sampled documents.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.documents.field_names import field_of, get_field
from corpusmill.errors import VerificationError
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import Wanted
from corpusmill.export.stages import layout
from corpusmill.fingerprint import random_words
from corpusmill.inspect.lineage.facts import VerifiedRecords
from corpusmill.inspect.lineage.records import (
    cell_rows,
    document_holdings,
    export_folder,
    find_output,
    record_stretches,
    reference_tokenizer,
)
from corpusmill.inspect.lineage.shards import Shard, Shards, Stretch
from corpusmill.shuffle.stages import scatter
from corpusmill.shuffle.stages.gather import per_cell
from corpusmill.sources.copies import read_numbered
from corpusmill.sources.stages import download

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


Ids = NDArray[Any]


@dataclass(frozen=True)
class Sampled:
    """A record to verify, and the stretches that it is made of."""

    export: str
    output: layout.OutputPlan
    record: int
    shard: Shard
    ordinal: int
    stretches: list[Stretch]

    @property
    def pieces(self) -> Ids:
        """How many slots it has of each of its documents."""
        kind = scatter.KINDS[self.export]
        if kind not in self.shard.build.config.exports.context_tokens():
            return np.array([self.stretches[-1].last - self.stretches[0].first])
        plan = self.shard.contexts(kind)
        return plan.sizes[plan.bounds[self.ordinal] : plan.bounds[self.ordinal + 1]]

    @property
    def wanted(self) -> Wanted:
        first, last = self.stretches[0].first, self.stretches[-1].last
        return Wanted(self.record, first, last, f"{self.shard.number:05d}-{self.ordinal:09d}")

    @property
    def file(self) -> str:
        return f"{self.export}/{self.output.name}"


def verify_records(build: Build, sample: int, seed: int) -> VerifiedRecords:
    """Rebuild `sample` records from their source and compare; all records if there are no more.

    Each draw is uniform over the records of all exports (for numpy, over documents, each with all its pieces) and a
    function of `seed`. Raises VerificationError at the first difference, naming file, record, both ids and the source;
    SourceError if a source file has changed.
    """
    shards = Shards(build)
    sampled = sorted(
        (record for export, place in _draw(build, sample, seed) for record in _records(shards, export, place)),
        key=lambda record: (record.export, record.output.number, record.record),
    )
    wanted: dict[int, set[int]] = defaultdict(set)
    for record in sampled:
        wanted[record.shard.number] |= {stretch.ordinal for stretch in record.stretches if not stretch.special}
    tokenizer = reference_tokenizer(build)
    texts = {
        (number, ordinal): text
        for number in sorted(wanted)
        for ordinal, text in reread_documents(build, shards[number], wanted[number])
    }
    ids = {place: tokenizer.encode([text])[0] for place, text in texts.items()}
    counts: Counter[str] = Counter()
    tokens = 0
    for path, chosen in _by_file(build, sampled):
        form, wanted_here = FORMATS[chosen[0].export], [record.wanted for record in chosen]
        counts[form.name] += len(chosen)
        found = form.records(path, wanted_here, chosen[0].shard.tokens.tokens.dtype)
        if form.holds_text:
            for record, text in zip(chosen, found, strict=True):
                place = record.shard.number, record.stretches[0].ordinal
                _compare(record, text, np.frombuffer(texts[place], np.uint8))
            continue
        rebuilt = [_rebuilt(record, ids) for record in chosen]
        for record, ids_found, expected in zip(chosen, found, rebuilt, strict=True):
            _compare(record, ids_found, expected)
            tokens += len(ids_found)
        pieces = [record.pieces for record in chosen]
        columns = form.wrong_columns(path, build.config.exports, wanted_here, rebuilt, pieces)
        for record, column in zip(chosen, columns, strict=False):
            _require_no(column, record)
    sources = {shards[number].document(ordinal).source for number, ordinal in ids}
    return VerifiedRecords(dict(sorted(counts.items())), tokens, len(ids), len(sources))


def _draw(build: Build, sample: int, seed: int) -> Iterator[tuple[str, int]]:
    """(export, number of the record in its shuffled order), distinct."""
    formats = build.config.exports.formats()
    sizes = [sum(per_cell(build, scatter.KINDS[export], "records")) for export in formats]
    ends = list(accumulate(sizes))
    drawn: dict[int, None] = dict.fromkeys(range(ends[-1]) if sample >= ends[-1] else ())
    words = random_words({"verify": seed})
    while len(drawn) < min(sample, ends[-1]):
        drawn[int(words.random_raw()) * ends[-1] >> 64] = None
    for number in drawn:
        place = bisect_right(ends, number)
        yield formats[place], number - (ends[place] - sizes[place])


def _records(shards: Shards, export: str, place: int) -> Iterator[Sampled]:
    """The record at a place of an export's order; for numpy, every file's piece of that document."""
    build = shards.build
    if FORMATS[export].stream:
        ends = list(accumulate(per_cell(build, "documents", "records")))
        cell = bisect_right(ends, place)
        row = place - (ends[cell - 1] if cell else 0)
        tokens = int(cell_rows(build, "documents", cell)[row, 2])
        places = [(holding.file, holding.record) for holding in document_holdings(build, export, cell, row, tokens)]
    else:
        outputs = layout.output_plans(build, export)
        output = outputs[bisect_right(outputs, place, key=lambda holding: holding.first) - 1]
        places = [(output.name, place - output.first)]
    for file, record in places:
        output = find_output(build, export, file)
        yield Sampled(export, output, record, *record_stretches(shards, export, output, record))


def _rebuilt(record: Sampled, ids: dict[tuple[int, int], Ids]) -> Ids:
    """int64: the ids that the record must hold: the documents' slices, and special ids elsewhere."""
    pieces = []
    for stretch in record.stretches:
        size = stretch.last - stretch.first
        if stretch.special:
            pieces.append(np.full(size, record.shard.tokens.special_id(stretch.special), np.int64))
        else:
            document = ids[record.shard.number, stretch.ordinal]
            pieces.append(document[stretch.document_first : stretch.document_first + size].astype(np.int64))
    return np.concatenate([np.empty(0, np.int64), *pieces])


def _compare(record: Sampled, ids: Ids, expected: Ids) -> None:
    common = min(len(ids), len(expected))
    unequal = np.flatnonzero(ids[:common].astype(np.int64) != expected[:common])
    if len(ids) == len(expected) and not len(unequal):
        return
    at = int(unequal[0]) if len(unequal) else common
    position = record.stretches[0].first + at
    stretch = next((part for part in record.stretches if position < part.last), record.stretches[-1])
    source = "no document: " + stretch.special
    if not stretch.special:
        document = record.shard.document(stretch.ordinal)
        token = stretch.document_first + position - stretch.first
        source = f"{document.source}, line {document.line:,}, id {document.id!r}, its token {token:,}"
    raise VerificationError(
        "trace.record_differs: an exported record differs from its source",
        where=f"{record.file}, record {record.record:,}, token {position:,}",
        expected=f"{expected[at : at + 8].tolist()} ... ({len(expected):,} tokens)",
        got=f"{ids[at : at + 8].tolist()} ... ({len(ids):,} tokens)",
        details=(("source", source),),
        next_step="run verify on the whole dataset; if only this file is wrong, reprocess its export",
    )


def _require_no(column: str, record: Sampled) -> None:
    if column:
        raise VerificationError(
            "trace.column_differs: a column of an exported record differs from its source",
            where=f"{record.file}, record {record.record:,}, column {column}",
            expected=f"what follows from documents of {record.pieces.tolist()} tokens",
            got="other values",
            next_step="run verify on the whole dataset; if only this file is wrong, reprocess its export",
        )


def _by_file(build: Build, sampled: list[Sampled]) -> Iterator[tuple[Path, list[Sampled]]]:
    """(an exported file, the sampled records in it)."""
    by_file: dict[tuple[str, int], list[Sampled]] = defaultdict(list)
    for record in sampled:
        by_file[record.export, record.output.number].append(record)
    for chosen in by_file.values():
        yield export_folder(build, chosen[0].export, chosen[0].output) / chosen[0].output.name, chosen


def reread_documents(build: Build, shard: Shard, ordinals: set[int]) -> Iterator[tuple[int, bytes]]:
    """(ordinal, its text without what was cut) of some documents of a shard, from the lines of their source files.

    Raises VerificationError for a line that does not hold the document's text or id; SourceError for a changed file.
    """
    for copy, source in zip(download.shard_copies(build, shard.name), shard.text.sources, strict=True):
        here = range(source.first_document, source.first_document + source.documents)
        at_line = {int(shard.text.line_numbers[ordinal]): ordinal for ordinal in ordinals if ordinal in here}
        if at_line:
            for number, line in read_numbered(copy, set(at_line), build.config.source):
                ordinal = at_line.pop(number)
                yield ordinal, _text(build, shard, ordinal, line)
        if at_line:
            lost = shard.document(at_line[min(at_line)])
            raise VerificationError(
                "trace.source_too_short: a source file ends before an indexed line",
                where=lost.source,
                got=f"no line {lost.line:,}",
            )


def _text(build: Build, shard: Shard, ordinal: int, line: bytes) -> bytes:
    document = shard.document(ordinal)
    source = build.config.source
    try:
        record = json.loads(line)
        text: bytes = field_of(record, source.text_field).encode()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VerificationError(
            "trace.line_not_a_document: an indexed line is not a document",
            where=f"{document.source}, line {document.line:,}",
            expected=f"an object with a text at {source.text_field!r}",
            got=f"{type(error).__name__}: {error}",
        ) from error
    if ordinal in shard.text.rewritten:  # a step changed the line's text before it was indexed
        text = shard.text.document_bytes(ordinal)
    first, last = shard.text_span(ordinal)
    identity = get_field(record, source.id_field)
    if len(text) != last - first or (isinstance(identity, str) and identity != document.id):
        raise VerificationError(
            "trace.line_changed: a line differs from the document that was indexed from it",
            where=f"{document.source}, line {document.line:,}",
            expected=f"{last - first:,} bytes of text, id {document.id!r}",
            got=f"{len(text):,} bytes of text, id {identity!r}",
            next_step="reprocess this shard from download on",
        )
    return b"".join(text[low:high] for low, high in shard.kept(ordinal))
