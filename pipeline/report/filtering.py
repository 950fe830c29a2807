"""What custom steps dropped and changed."""

from __future__ import annotations

from pydantic import Field

from corpusmill.report.facts import Count, Facts


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
    """Decisions made elsewhere: how many, and how many of them match no document."""

    name: str
    decisions: Count
    unmatched: Count


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
