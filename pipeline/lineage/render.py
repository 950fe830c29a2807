"""Lineage results as aligned text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from corpusmill.errors import visible
from corpusmill.lineage.facts import (
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


def render_trace(found: RecordTrace) -> str:
    """A record and what it is made of, a line a part."""
    documents = len({one.document.ordinal for one in found.parts if isinstance(one, Piece)})
    first, last = found.record_tokens
    head = f"{inline(found.file)}, record {found.record:,}: {last - first:,} tokens, {number_of(documents, 'document')}"
    columns = ("in the record", *PART_COLUMNS)
    return "\n".join([head, "", *table(columns, [part_row(one) for one in found.parts])])


def part_row(one: Piece | Special, shift: int = 0) -> tuple[str, ...]:
    """Where a part stands, `shift` positions further on than in the record, and the PART_COLUMNS."""
    first, last = one.record_tokens
    if isinstance(one, Special):
        return (_span((first + shift, last + shift)), one.what)
    return (
        _span((first + shift, last + shift)),
        _span(one.document_tokens),
        _spans(one.text_bytes),
        _place(one.document),
        one.document.id,
        one.preview,
    )


def render_located(found: Located | ContaminatedLine | DroppedLine | RejectedLine) -> str:
    """A document, what was found twice in it, and its records; or why its line is none."""
    if isinstance(found, ContaminatedLine):
        items = [
            (one.benchmark, inline(one.item), f"{one.text_bytes[0]:,} to {one.text_bytes[1]:,}", f"{one.share:.0%}")
            for one in found.items
        ]
        lines = [
            f"{inline(found.source)}, line {found.line:,}  id {inline(found.id) or 'none'}: removed, contaminated",
            f"  hits        {inline(str(found.hits))}",
        ]
        return "\n".join([*lines, "", *table(("benchmark", "item", "at bytes", "of the item"), items)])
    if isinstance(found, DroppedLine):
        lines = [
            f"{inline(found.source)}, line {found.line:,}  id {inline(found.id) or 'none'}: dropped, {found.reason}",
            f"  all dropped {inline(str(found.dropped))}",
        ]
        return "\n".join(lines)
    if isinstance(found, RejectedLine):
        lines = [
            f"{inline(found.source)}, line {found.line:,}: rejected, {found.reason}",
            f"  preview     {inline(found.preview)}",
            f"  quarantine  {inline(str(found.quarantine))}",
        ]
        return "\n".join(lines)
    document = found.document
    size = f"{found.text_bytes:,} bytes of text, {found.removed_bytes:,} removed as duplicates"
    steps = "" if found.rewritten_bytes is None else f" {found.rewritten_bytes:,} as a step left it,"
    head = [
        f"{inline(_place(document))}  id {inline(document.id) or 'none'}",
        f"  shard {document.shard:05d}, document {document.ordinal:,}",
        f"  {size},{steps} {found.tokens:,} tokens",
        f"  {_fate(found)}",
    ]
    return "\n".join([*head, *_duplicates(found), *_records(found.records)])


def _fate(found: Located) -> str:
    records = f"in {number_of(len(found.records), 'record')}" if found.records else "in no record"
    if found.too_short_for:
        return f"too short, {found.too_short_for}: {records}"
    if not found.text_bytes:
        return f"empty: {records}"
    return f"removed whole: {records}" if found.removed_bytes == found.text_bytes else records


def _duplicates(found: Located) -> list[str]:
    if not found.duplicates:
        return []
    word = "removed" if found.removed_bytes else "annotated"
    rows = [row for one in found.duplicates for row in _duplicate_rows(one)]
    return ["", *table((f"bytes {word}", "of them", "first at bytes", "of the earlier document", "id"), rows)]


def _duplicate_rows(one: Duplicate) -> list[tuple[str, ...]]:
    first, last = one.text_bytes
    places = []
    covered = first
    for each in one.occurrences:
        if covered < each.text_bytes[0]:
            places.append(_between((covered, each.text_bytes[0])))
        places.append((_span(each.text_bytes), _span(each.earlier_bytes), _place(each.earlier), each.earlier.id))
        covered = max(covered, each.text_bytes[1])
    if covered < last:
        places.append(_between((covered, last)))
    return [(span, *place) for span, place in zip_longest([_span(one.text_bytes)], places, fillvalue="")]


def _between(span: Span) -> tuple[str, str, str, str]:
    return _span(span), "", "between repeats (dedup.fuzzy_share)", ""


def _records(records: Sequence[Holding]) -> list[str]:
    if not records:
        return []
    rows = [(one.file, f"{one.record:,}", _span(one.record_tokens), _span(one.document_tokens)) for one in records]
    return ["", *table(("file", "record", "in the record", "of the document"), rows)]


def render_verified(found: VerifiedRecords) -> str:
    """How many records were compared, and with what."""
    by_export = ", ".join(f"{export} {count:,}" for export, count in found.records.items())
    return (
        f"{number_of(sum(found.records.values()), 'record')} ({by_export}) rebuilt from "
        f"{number_of(found.documents, 'document')} in {number_of(found.source_files, 'source file')}:"
        f" all {found.tokens:,} tokens are equal"
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


def inline(text: str) -> str:
    """Text from outside as one line that neither moves the cursor nor looks like another line."""
    return visible(text).replace("\n", r"\n").replace("\t", r"\t")


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
