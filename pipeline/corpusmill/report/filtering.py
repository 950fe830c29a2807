"""What custom steps dropped and changed."""

from __future__ import annotations

from pydantic import Field

from corpusmill.report.facts import Count, Facts
from corpusmill.report.figures import counted


class StepFound(Facts):
    """A reason, and what was dropped for it."""

    reason: str
    documents: Count
    text_bytes: Count


class DroppedExample(Facts):
    """A document that was dropped, and the beginning of its text."""

    reason: str
    source_file: str
    line: Count
    id: str
    text_bytes: Count
    excerpt: str


class DecisionsFound(Facts):
    """Decisions made elsewhere, or the list of `forget`: how many rows, how many of them match no document, and where
    the first of these are.
    """

    name: str
    decisions: Count
    unmatched: Count
    unmatched_places: tuple[str, ...] = ()

    def matched_text(self) -> str:
        """`3 of 5 rows match a document; not list.jsonl row 2, list.jsonl row 4`."""
        text = f"{self.decisions - self.unmatched:,} of {counted(self.decisions, 'row')} match a document"
        more = ", ..." if len(self.unmatched_places) < self.unmatched else ""
        return f"{text}; not {', '.join(self.unmatched_places)}{more}" if self.unmatched else text


class FilterSummary(Facts):
    """What the steps did to the indexed documents.

    `documents_dropped_late`: of the dropped, those after deduplication (`before: writeback`). Among them,
    `documents_lost` held the only kept copy of text, `text_bytes_lost`, whose repeats had been removed. Steps before
    and after deduplication may rewrite the same document, or give it attributes: those after count as `..._late` and
    not in the count without it. `failed`: by step, the documents that it failed on and kept.
    """

    documents: Count
    documents_dropped: Count
    documents_dropped_late: Count = 0
    documents_lost: Count = 0
    text_bytes_lost: Count = 0
    documents_rewritten: Count
    documents_rewritten_late: Count = 0
    documents_with_attributes: Count
    documents_with_attributes_late: Count = 0
    failed: dict[str, Count] = Field(default_factory=dict)
    reasons: tuple[StepFound, ...] = ()
    examples: tuple[DroppedExample, ...] = ()
    decisions: tuple[DecisionsFound, ...] = ()
