"""The duplicates of all shards, and what references hold of them, for the report."""

from __future__ import annotations

from corpusmill.dedup.stages.match import repeated_strings
from corpusmill.dedup.stages.reference import units_of
from corpusmill.dedup.stages.union import held_by_references
from corpusmill.engine.build import Build
from corpusmill.engine.plan import Reference
from corpusmill.report.content import DuplicateSummary, ReferenceHeld, RepeatedString, SourceFileDuplicates
from corpusmill.report.facts import PowerHistogram
from corpusmill.report.histograms import merge_histograms
from corpusmill.sources.stages.index import text_total

REPEATED_STRINGS = 10


def duplicates(build: Build) -> DuplicateSummary | None:
    """The duplicates within the dataset and in references; None without deduplication."""
    dedup = build.config.dedup
    if dedup.mode == "none":
        return None
    by_file = [
        SourceFileDuplicates(**file)
        for receipt in build.receipts("union")
        for file in receipt.details["by_source_file"]
    ]
    return DuplicateSummary(
        mode=dedup.mode,
        minimum_bytes=dedup.window_bytes,
        keep=dedup.keep,
        fuzzy_share=dedup.fuzzy_share,
        ranges=_histogram(build, "range_bytes"),
        text_bytes=text_total(build, "text_bytes_out"),
        documents=text_total(build, "documents_out"),
        documents_touched=build.total("union", "documents_touched"),
        documents_emptied=build.total("union", "documents_emptied"),
        by_source_file=tuple(by_file),
        kept_gaps=_histogram(build, "kept_gap_bytes"),
        most_repeated=_most_repeated(build),
        references=references_found(build),
        within_bytes=build.total("union", "within_bytes"),  # 0 without references
    )


def references_found(build: Build) -> tuple[ReferenceHeld, ...]:
    """The references, and how much of the dataset's text each is the first to hold."""
    held = zip(build.plan.references or (), held_by_references(build), strict=True)
    return tuple(_reference(build, reference, size) for reference, size in held)


def _reference(build: Build, reference: Reference, held_bytes: int) -> ReferenceHeld:
    receipts = [build.receipt("reference", unit) for unit in units_of(reference)]
    return ReferenceHeld(
        path=reference.path,
        version=reference.version,
        documents=sum(receipt.counts["documents_out"] for receipt in receipts),
        text_bytes=sum(receipt.counts["text_bytes_out"] for receipt in receipts),
        held_bytes=held_bytes,
    )


def _most_repeated(build: Build) -> tuple[RepeatedString, ...]:
    """Of all partitions, the most frequent first; only one of the strings that begin in one document, since they
    overlap.
    """
    repeated = [RepeatedString(**string) for string in repeated_strings(build)]
    repeated.sort(key=lambda string: (-string.count, string.source_file, string.line, string.excerpt))
    by_document: dict[tuple[str, int], RepeatedString] = {}
    for string in repeated:
        by_document.setdefault((string.source_file, string.line), string)
    return tuple(by_document.values())[:REPEATED_STRINGS]


def _histogram(build: Build, name: str) -> PowerHistogram:
    return merge_histograms(PowerHistogram.model_validate(receipt.details[name]) for receipt in build.receipts("union"))
