"""Results of lineage: plain frozen values, and the same as aligned text.

A span [from, to) counts from 0 and excludes `to`; lines count from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from corpusmill.errors import inline

Span = tuple[int, int]

EOT, BOS, PADDING = "EOT", "BOS", "padding"


@dataclass(frozen=True)
class SourceDocument:
    """A document: its line in a source file, its id ("" if it has none), and its ordinal in its shard.

    `reference`: the entry of `dedup.against` that the file and the shard belong to; "" for the dataset's own documents.
    """

    source: str
    line: int
    id: str
    shard: int
    ordinal: int
    reference: str = ""


@dataclass(frozen=True)
class Piece:
    """Tokens of one document in a record; empty for a document that has only special tokens there.

    record_tokens    their positions in the record (numpy: in the file)
    document_tokens  which of the document's tokens they are
    text_bytes       their bytes, as spans of the document's original text; several where duplicates
                     were cut out between them
    preview          the beginning of their text, for people
    """

    document: SourceDocument
    record_tokens: Span
    document_tokens: Span
    text_bytes: tuple[Span, ...]
    preview: str


@dataclass(frozen=True)
class Special:
    """Positions of a record that hold no document's token; `what` is EOT, BOS or padding."""

    what: str
    record_tokens: Span


@dataclass(frozen=True)
class RecordTrace:
    """A record of an export and what it is made of, in order.

    `record_tokens` are the positions that the record covers: from 0 to its length. numpy files have no records; theirs
    are the positions of one document in the file.
    """

    export: str
    file: str
    record: int
    record_tokens: Span
    parts: tuple[Piece | Special, ...]


@dataclass(frozen=True)
class Holding:
    """A record that holds tokens of a document: the arguments of `trace` that lead back to it, and both spans.

    Both spans are empty for a document without tokens, of which the record holds only special tokens.
    """

    export: str
    file: str
    record: int
    record_tokens: Span
    document_tokens: Span


@dataclass(frozen=True)
class Occurrence:
    """A span of a document's text that occurs earlier, in a reference or in the dataset, and its first occurrence."""

    text_bytes: Span
    earlier: SourceDocument
    earlier_bytes: Span


@dataclass(frozen=True)
class Duplicate:
    """A duplicate range of a document's text, cut at whole characters, and the earlier text that covers it.

    One range may repeat several documents, since it unites all windows that occurred earlier. Only text that
    `fuzzy_share` removed between repeats is covered by no occurrence.
    """

    text_bytes: Span
    occurrences: tuple[Occurrence, ...]


@dataclass(frozen=True)
class Located:
    """What became of a document: its size, its duplicates, and every record that holds it.

    `removed_bytes` is 0 where duplicates are only annotated. `too_short_for` is the setting that dropped the document.
    `rewritten_bytes`: the size of the text that a step gave it after deduplication, None if none did.
    """

    document: SourceDocument
    text_bytes: int
    removed_bytes: int
    tokens: int
    duplicates: tuple[Duplicate, ...]
    records: tuple[Holding, ...]
    too_short_for: str = ""
    rewritten_bytes: int | None = None


@dataclass(frozen=True)
class RejectedLine:
    """A line that is not a document, why not, and the file that keeps its exact bytes."""

    source: str
    line: int
    reason: str
    preview: str
    quarantine: Path


@dataclass(frozen=True)
class ItemHit:
    """An item of a benchmark in a document's text: where, and how much of the item that covers."""

    benchmark: str
    item: str
    text_bytes: Span
    share: float


@dataclass(frozen=True)
class ContaminatedLine:
    """A document that was left out because its text holds items of benchmarks, and the file that lists them all."""

    source: str
    line: int
    id: str
    items: tuple[ItemHit, ...]
    hits: Path


@dataclass(frozen=True)
class NearDuplicateLine:
    """A document that was left out for its similarity with a kept one, and the file that lists all of its shard.

    `reference`: the entry of `dedup.against` that the kept one is of; "" for a document of the dataset.
    """

    source: str
    line: int
    id: str
    similarity: float
    kept: tuple[str, int, str]
    pairs: Path
    reference: str = ""


@dataclass(frozen=True)
class DroppedLine:
    """A document that a step dropped, why, and the file that lists all of its shard."""

    source: str
    line: int
    id: str
    reason: str
    dropped: Path


@dataclass(frozen=True)
class VerifiedRecords:
    """Records that were rebuilt from their source and are equal: their number by export, and what was read for it."""

    records: dict[str, int]
    tokens: int
    documents: int
    source_files: int


SPANS_SHOWN = 4
PART_COLUMNS = ("of the document", "bytes of its text", "source", "id", "text")


def render_trace(traced: RecordTrace) -> str:
    """A record and its parts, one per line."""
    documents = len({part.document.ordinal for part in traced.parts if isinstance(part, Piece)})
    first, last = traced.record_tokens
    head = (
        f"{inline(traced.file)}, record {traced.record:,}: {last - first:,} tokens, {number_of(documents, 'document')}"
    )
    columns = ("in the record", *PART_COLUMNS)
    return "\n".join([head, "", *table(columns, [part_row(part) for part in traced.parts])])


def part_row(part: Piece | Special, shift: int = 0) -> tuple[str, ...]:
    """The span of a part, shifted by `shift` positions, and the PART_COLUMNS."""
    first, last = part.record_tokens
    if isinstance(part, Special):
        return (_span((first + shift, last + shift)), part.what)
    return (
        _span((first + shift, last + shift)),
        _span(part.document_tokens),
        _spans(part.text_bytes),
        _place(part.document),
        part.document.id,
        part.preview,
    )


def render_located(entry: Located | ContaminatedLine | NearDuplicateLine | DroppedLine | RejectedLine) -> str:
    """A document, its duplicates and its records; or why its line is not in the dataset."""
    if isinstance(entry, ContaminatedLine):
        items = [
            (
                item.benchmark,
                inline(item.item),
                f"{item.text_bytes[0]:,} to {item.text_bytes[1]:,}",
                f"{item.share:.0%}",
            )
            for item in entry.items
        ]
        lines = [
            f"{inline(entry.source)}, line {entry.line:,}  id {inline(entry.id) or 'none'}: removed, contaminated",
            f"  hits        {inline(str(entry.hits))}",
        ]
        return "\n".join([*lines, "", *table(("benchmark", "item", "at bytes", "of the item"), items)])
    if isinstance(entry, NearDuplicateLine):
        file, line, name = entry.kept
        file = f"{entry.reference}: {file}" if entry.reference else file
        lines = [
            f"{inline(entry.source)}, line {entry.line:,}  id {inline(entry.id) or 'none'}: removed, near-duplicate",
            f"  kept        {inline(file)}, line {line:,}  id {inline(name) or 'none'}: {entry.similarity:.1%} similar",
            f"  all pairs   {inline(str(entry.pairs))}",
        ]
        return "\n".join(lines)
    if isinstance(entry, DroppedLine):
        lines = [
            f"{inline(entry.source)}, line {entry.line:,}  id {inline(entry.id) or 'none'}: dropped, {entry.reason}",
            f"  all dropped {inline(str(entry.dropped))}",
        ]
        return "\n".join(lines)
    if isinstance(entry, RejectedLine):
        lines = [
            f"{inline(entry.source)}, line {entry.line:,}: rejected, {entry.reason}",
            f"  preview     {inline(entry.preview)}",
            f"  quarantine  {inline(str(entry.quarantine))}",
        ]
        return "\n".join(lines)
    document = entry.document
    size = f"{entry.text_bytes:,} bytes of text, {entry.removed_bytes:,} removed as duplicates"
    steps = "" if entry.rewritten_bytes is None else f" {entry.rewritten_bytes:,} as a step left it,"
    head = [
        f"{inline(_place(document))}  id {inline(document.id) or 'none'}",
        f"  shard {document.shard:05d}, document {document.ordinal:,}",
        f"  {size},{steps} {entry.tokens:,} tokens",
        f"  {_fate(entry)}",
    ]
    return "\n".join([*head, *_duplicates(entry), *_records(entry.records)])


def _fate(entry: Located) -> str:
    records = f"in {number_of(len(entry.records), 'record')}" if entry.records else "in no record"
    if entry.too_short_for:
        return f"too short, {entry.too_short_for}: {records}"
    if not entry.text_bytes:
        return f"empty: {records}"
    return f"removed whole: {records}" if entry.removed_bytes == entry.text_bytes else records


def _duplicates(entry: Located) -> list[str]:
    if not entry.duplicates:
        return []
    word = "removed" if entry.removed_bytes else "annotated"
    rows = [row for duplicate in entry.duplicates for row in _duplicate_rows(duplicate)]
    return ["", *table((f"bytes {word}", "of them", "first at bytes", "of the earlier document", "id"), rows)]


def _duplicate_rows(duplicate: Duplicate) -> list[tuple[str, ...]]:
    first, last = duplicate.text_bytes
    places = []
    covered = first
    for each in duplicate.occurrences:
        if covered < each.text_bytes[0]:
            places.append(_between((covered, each.text_bytes[0])))
        places.append((_span(each.text_bytes), _span(each.earlier_bytes), _place(each.earlier), each.earlier.id))
        covered = max(covered, each.text_bytes[1])
    if covered < last:
        places.append(_between((covered, last)))
    return [(span, *place) for span, place in zip_longest([_span(duplicate.text_bytes)], places, fillvalue="")]


def _between(span: Span) -> tuple[str, str, str, str]:
    return _span(span), "", "between repeats (dedup.fuzzy_share)", ""


def _records(records: Sequence[Holding]) -> list[str]:
    if not records:
        return []
    rows = [
        (record.file, f"{record.record:,}", _span(record.record_tokens), _span(record.document_tokens))
        for record in records
    ]
    return ["", *table(("file", "record", "in the record", "of the document"), rows)]


def render_verified(verified: VerifiedRecords) -> str:
    """How many records were compared, with how many documents and source files."""
    by_export = ", ".join(f"{export} {count:,}" for export, count in verified.records.items())
    return (
        f"{number_of(sum(verified.records.values()), 'record')} ({by_export}) rebuilt from "
        f"{number_of(verified.documents, 'document')} in {number_of(verified.source_files, 'source file')}:"
        f" all {verified.tokens:,} tokens are equal"
    )


def _place(document: SourceDocument) -> str:
    place = f"{document.source}:{document.line}"
    return f"{document.reference}: {place}" if document.reference else place


def _span(span: Span) -> str:
    return f"{span[0]:,} to {span[1]:,}"


def _spans(spans: Sequence[Span]) -> str:
    more = f", {len(spans) - SPANS_SHOWN} more" if len(spans) > SPANS_SHOWN else ""
    return ", ".join(map(_span, spans[:SPANS_SHOWN])) + more


def number_of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows below their headings, two spaces between columns."""
    lines = [columns, *(tuple(map(inline, row)) for row in rows)]
    widths = [
        max((len(line[place]) for line in lines if place < len(line)), default=0) for place in range(len(columns))
    ]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    ]
