"""Lineage results as aligned text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from corpusmill.errors import inline
from corpusmill.inspect.lineage.facts import (
    ContaminatedLine,
    DroppedLine,
    Duplicate,
    Holding,
    Located,
    Piece,
    RecordTrace,
    RejectedLine,
    SourceDocument,
    Span,
    Special,
    VerifiedRecords,
)

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


def render_located(entry: Located | ContaminatedLine | DroppedLine | RejectedLine) -> str:
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
