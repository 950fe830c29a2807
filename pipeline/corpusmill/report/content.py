"""A dataset's content: duplicates, benchmarks and dropped documents found in it, lengths, packing, order, budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from corpusmill.report.facts import Count, Facts, Flow, PowerHistogram, Seconds
from corpusmill.report.figures import counted


class SourceFileDuplicates(Facts):
    """One source file: the bytes of its documents' text, and how many of them lie in duplicate ranges."""

    path: str
    text_bytes: Count
    duplicate_bytes: Count


class RepeatedString(Facts):
    """A string that occurs `count` times: its first occurrence (`line` from 1), and its beginning."""

    count: Count
    source_file: str
    line: Count
    excerpt: str


def range_in_words(minimum_bytes: int, keep: str, fuzzy_share: float | None, *, against: bool = False) -> str:
    """What a range of duplicate text is under the settings of `dedup`, and why a range can be shorter than
    `minimum_bytes`.
    """
    where = "in a reference or earlier in the dataset" if against else "earlier in the dataset"
    words = f"strings of at least {minimum_bytes:,} bytes that occur {where}, cut at whole characters"
    if keep == "every_string":
        words += "; without what belongs to a copy that stays, so that a range may be far shorter"
    if fuzzy_share is not None:
        words += f", and what lies between them where they cover {fuzzy_share:.0%} or more"
    return words


class ReferenceHeld(Facts):
    """A reference of `dedup.against`, and how much of the dataset's text it holds (`held_bytes`).

    `version`: of a finished dataset, else "". Text that several references hold counts for the first of them.
    """

    path: str
    version: str
    documents: Count
    text_bytes: Count
    held_bytes: Count


def nothing_in_common(references: Sequence[ReferenceHeld], minimum_bytes: int) -> tuple[str, ...]:
    """A sentence for each reference that holds none of the dataset's text: it may be another corpus than was meant."""
    return tuple(
        f"the reference {reference.path} ({counted(reference.documents, 'document')}) has no {minimum_bytes:,} bytes in"
        f" common with the dataset{' that an earlier reference has not' if number else ''}"
        for number, reference in enumerate(references)
        if not reference.held_bytes
    )


class DuplicateSummary(Facts):
    """What exact-substring deduplication found; `mode` states whether it was removed or only annotated.

    `kept_gaps` are the bytes kept between two neighbouring ranges of one document. `most_repeated` are strings of
    `minimum_bytes` bytes. With references, `within_bytes` are those that only repeat within the dataset.
    """

    mode: Literal["remove", "annotate"]
    minimum_bytes: Count
    keep: Literal["first_window", "every_string"] = "first_window"
    fuzzy_share: Annotated[float, Field(gt=0, le=1)] | None = None
    ranges: PowerHistogram
    text_bytes: Count
    documents: Count
    documents_touched: Count
    documents_emptied: Count
    by_source_file: tuple[SourceFileDuplicates, ...] = ()
    kept_gaps: PowerHistogram = PowerHistogram()
    most_repeated: tuple[RepeatedString, ...] = ()
    references: tuple[ReferenceHeld, ...] = ()
    within_bytes: Count = 0

    @property
    def duplicate_bytes(self) -> int:
        """Bytes inside duplicate ranges."""
        return self.ranges.total

    @property
    def references_without_text(self) -> tuple[str, ...]:
        """What to say of references of which nothing is in the dataset."""
        return nothing_in_common(self.references, self.minimum_bytes)

    @property
    def range_in_words(self) -> str:
        """What a range is, for people."""
        return range_in_words(self.minimum_bytes, self.keep, self.fuzzy_share, against=bool(self.references))


class LengthSummary(Facts):
    """How long documents are: bytes of text before and after deduplication, and tokens. None: not known yet."""

    text_bytes_before: PowerHistogram
    text_bytes_after: PowerHistogram | None = None
    tokens: PowerHistogram | None = None


class PackingSummary(Facts):
    """Records of fixed length: every token slot is real, special (begin or end of text), padding, or a repetition
    because contexts overlap.
    """

    context_tokens: Count
    contexts: Count
    real_tokens: Count
    special_tokens: Count
    pad_tokens: Count
    repeated_tokens: Count = 0

    @property
    def slots(self) -> int:
        """All token slots."""
        return self.real_tokens + self.special_tokens + self.pad_tokens + self.repeated_tokens


class QualityMeasure(Facts):
    """One measure of the shuffle, its expectation in a perfect shuffle, and the tolerated distance from it."""

    name: str
    measured: Annotated[float, Field(allow_inf_nan=False)]
    ideal: Annotated[float, Field(allow_inf_nan=False)]
    tolerance: Seconds

    @property
    def is_good(self) -> bool:
        """Within the tolerance."""
        return abs(self.measured - self.ideal) <= self.tolerance


class MixingTable(Facts):
    """Where one format's records came from: records in each stretch of the source order (rows) and group of files."""

    format: str
    records: tuple[tuple[Count, ...], ...]


class ShuffleSummary(Facts):
    """The global permutation: records by kind ("document", "context"), and the cells they went through.

    Without a seed the records are in source order, and there are no quality measures.
    """

    seed: Count | None
    cells: Count
    records_by_kind: dict[str, Count]
    quality: tuple[QualityMeasure, ...] = ()
    significance: Annotated[float, Field(gt=0, lt=1)] = 0.001
    mixing: tuple[MixingTable, ...] = ()

    @property
    def order(self) -> str:
        """The order of the records, for people."""
        return "source order: not shuffled" if self.seed is None else f"shuffled with seed {self.seed}"

    @property
    def warnings(self) -> tuple[QualityMeasure, ...]:
        """The measures outside their bands."""
        return tuple(quality for quality in self.quality if not quality.is_good)


class BenchmarkFound(Facts):
    """One benchmark: its items, how many are too short or too common to decide, how many were found, and how often."""

    name: str
    sha256: str
    items: Count
    undecidable: Count
    items_met: Count
    hits: Count


class ItemFound(Facts):
    """One of the items that were found most often."""

    benchmark: str
    item: str
    hits: Count


class HitExample(Facts):
    """A hit: its passage in pieces, each with whether the item has the same words."""

    benchmark: str
    item: str
    source_file: str
    line: Count
    id: str
    share: Annotated[float, Field(ge=0, le=1)]
    pieces: tuple[tuple[str, bool], ...]


class ContaminationSummary(Facts):
    """What decontamination found, and the action taken; `borderline`: the hits with the smallest shares."""

    action: Literal["remove", "cut", "annotate", "report"]
    documents: Count
    documents_hit: Count
    benchmarks: tuple[BenchmarkFound, ...]
    most_met: tuple[ItemFound, ...] = ()
    borderline: tuple[HitExample, ...] = ()


class SourceLeftOut(Facts):
    """An entry of `source.paths`: its documents, and those that are near-duplicates of earlier ones."""

    path: str
    documents: Count
    left_out: Count


class DocumentExcerpt(Facts):
    """A document, and a part of its text in pieces, each with whether the other document of the pair lacks it."""

    source_file: str
    line: Count
    id: str
    pieces: tuple[tuple[str, bool], ...]


class NearDuplicatePair(Facts):
    """A document, the kept one that it is a near-duplicate of, and their similarity."""

    similarity: Annotated[float, Field(ge=0, le=1)]
    left_out: DocumentExcerpt
    kept: DocumentExcerpt


class NearDuplicateSummary(Facts):
    """What near-duplicates were found, and the action taken.

    `recall`: the expected share of the pairs of similarity `similarity` that hashing proposes. `groups`: of each kept
    document that has any, the documents that it stands for, itself included. `by_similarity`: of each whole percent,
    the pairs from there to below the next; 100: equal sets. `pairs`: some, in order of similarity. `by_reference`: the
    path of each that was compared with, and how many documents are near-duplicates of its own.
    """

    action: Literal["remove", "annotate", "report"]
    similarity: Annotated[float, Field(gt=0, le=1)]
    words: Count
    within: Literal["dataset", "source"]
    recall: Annotated[float, Field(ge=0, le=1)]
    documents: Count
    left_out: Count
    text_bytes: Count
    text_bytes_left_out: Count
    by_source: tuple[SourceLeftOut, ...] = ()
    by_reference: tuple[tuple[str, Count], ...] = ()
    groups: PowerHistogram = PowerHistogram()
    by_similarity: dict[int, Count] = Field(default_factory=dict)
    pairs: tuple[NearDuplicatePair, ...] = ()


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


class SourceShown(Facts):
    """An entry of `source.paths`, its budget ("": none) and its counts: everything is shown `whole` times, and the
    `rest_` counts once more. `empty` documents have no tokens and are counted among `documents`.
    """

    path: str
    budget: str
    tokens: Count
    documents: Count
    empty: Count
    whole: Count
    rest_tokens: Count
    rest_documents: Count
    rest_empty: Count

    @property
    def shown_tokens(self) -> int:
        """Tokens of all showings."""
        return self.whole * self.tokens + self.rest_tokens

    @property
    def epochs(self) -> float:
        """How often a token is shown on average; 0 where there is none."""
        return self.shown_tokens / self.tokens if self.tokens else 0.0

    @property
    def by_times(self) -> tuple[tuple[int, int], ...]:
        """(times, number of documents shown that many times), of documents with tokens."""
        held, more = self.documents - self.empty, self.rest_documents - self.rest_empty
        pairs = ((self.whole, held - more), (self.whole + 1, more))
        return tuple((times, documents) for times, documents in pairs if documents)


class BudgetSummary(Facts):
    """All sources, in the order of `source.paths`."""

    sources: tuple[SourceShown, ...]

    def documents_flow(self) -> Flow:
        """Documents with tokens: those that are left out, and showings after the first."""
        times = [pair for source in self.sources for pair in source.by_times]
        return _flow(times)

    def tokens_flow(self) -> Flow:
        """The same of tokens."""
        return _flow(
            [
                pair
                for source in self.sources
                for pair in (
                    (source.whole, source.tokens - source.rest_tokens),
                    (source.whole + 1, source.rest_tokens),
                )
            ]
        )


def _flow(times: list[tuple[int, int]]) -> Flow:
    """`times`: pairs (how often it is shown, its amount)."""
    left_out = sum(amount for shown, amount in times if not shown)
    again = sum((shown - 1) * amount for shown, amount in times if shown > 1)
    return Flow(
        into=sum(amount for _, amount in times),
        out=sum(shown * amount for shown, amount in times),
        lost={"beyond the budget": left_out} if left_out else {},
        gained={"shown again": again} if again else {},
    )
