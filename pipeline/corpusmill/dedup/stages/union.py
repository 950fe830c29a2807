"""Union: merges the ranges that all partitions found in one shard, and cuts them at whole characters (step 7).

Writes `remove_ranges` (the reference's file, raw bytes positions in `tokenized`) and `cut_ranges` (the same format,
shortened so that no character is split: what writeback and tokenize take out). With `keep: every_string` both leave a
whole copy of each repeated window; with `fuzzy_share` the second also holds the text between neighbouring repeats.

    reference_ranges    start u64 | end u64 | reference u64     with `against` alone: what of `cut_ranges` a reference
                                                                holds, the first that has it
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import AnswerSettings, sections_in
from corpusmill.dedup.stages.partitions import repeated_strings
from corpusmill.dedup.stages.reference import place_of, units_of
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Stage, StepName, whole
from corpusmill.engine.work import Input, Inputs, Resources, Work
from corpusmill.errors import visible
from corpusmill.lazy import lazily
from corpusmill.report.content import (
    DuplicateSummary,
    ReferenceHeld,
    RepeatedString,
    SourceFileDuplicates,
    range_in_words,
)
from corpusmill.report.facts import PowerHistogram
from corpusmill.sources.stages.index import text_stage, text_total

with lazily:
    import numpy as np

    from corpusmill.dedup import anchors, exchange, references
    from corpusmill.dedup import ranges as dedup_ranges
    from corpusmill.documents import text_shard
    from corpusmill.report import histograms


if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

SHOWN_FILES = 10  # source files that lose most
REPEATED_STRINGS = 10
REMOVE_RANGES, CUT_RANGES, REFERENCE_RANGES = "remove_ranges", "cut_ranges", "reference_ranges"


class Settings(AnswerSettings, frozen=True, kw_only=True):
    """Which ranges stay. `against`: how many references there are."""

    keep: str
    fuzzy_share: float | None
    against: int | UnsetType = UNSET


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "text": [(text_stage(build, shard), shard)],
        "anchors": [("anchor", shard)] if build.plan.references else [],
        "matches": whole(build, "match"),
    }


def _identity(build: Build, shard: str) -> Settings:
    dedup = build.config.dedup
    return Settings(
        shard=place_of(build, shard),
        keep=dedup.keep,
        fuzzy_share=dedup.fuzzy_share,
        minimum_bytes=dedup.window_bytes,
        against=len(build.plan.references) if build.plan.references else UNSET,
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    text, matches = text_shard.open_text_shard(inputs["text"].folder()), inputs.every("matches")
    rows = matched_rows(matches, settings.shard, dedup_ranges.MATCH_RANGES)
    ranges = dedup_ranges.union_ranges(rows)
    repeated_bytes = _covered(ranges)
    if settings.keep == "every_string":
        later, earlier = (
            dedup_ranges.union_ranges(matched_rows(matches, settings.shard, name))
            for name in (dedup_ranges.LATER_WINDOWS, dedup_ranges.EARLIER_WINDOWS)
        )
        ranges = dedup_ranges.kept_whole(later, earlier, settings.minimum_bytes)
    cut = aligned = dedup_ranges.align_ranges(text.text, text.offsets, ranges)
    if settings.fuzzy_share is not None:
        cut = dedup_ranges.join_spans(aligned, text.offsets, settings.fuzzy_share)
    dedup_ranges.write_ranges(folder / REMOVE_RANGES, ranges)
    dedup_ranges.write_ranges(folder / CUT_RANGES, cut)
    counts = {
        "ranges_in": len(rows),
        "ranges_out": len(ranges),
        "repeated_bytes": repeated_bytes,
        "duplicate_bytes": _covered(ranges),
        "fuzzy_bytes": _covered(cut) - _covered(aligned),
        "removed_bytes": _covered(cut),
        **dedup_ranges.count_documents(cut, text.offsets, len(text.text)),
        "bytes_read": rows.nbytes,
    }
    details: dict[str, Any] = {
        "range_bytes": histograms.power_histogram(cut[:, 1] - cut[:, 0]).model_dump(),
        "kept_gap_bytes": histograms.power_histogram(kept_gaps(text.offsets, cut)).model_dump(),
        "by_source_file": _by_source_file(text, cut),
    }
    if settings.against:
        held, within = _held_by_references(inputs, settings, text, aligned, folder)
        counts |= {"within_bytes": within, "reference_bytes": sum(held)}
        details["reference_bytes"] = held
    return Outcome(counts=counts, details=details)


def _held_by_references(
    inputs: Inputs, settings: Settings, text: TextShard, aligned: NDArray[np.uint64], folder: Path
) -> tuple[list[int], int]:
    """Write the parts of a shard's ranges that each reference holds; returns the bytes per reference, and of none."""
    windows = matched_rows(inputs.every("matches"), settings.shard, dedup_ranges.REFERENCE_WINDOWS, columns=3)
    periods: Iterable[NDArray[np.uint64]] = ()
    if len(windows):
        repeats = anchors.open_anchors(inputs["anchors"].folder()).repeats
        periods = exchange.periods_of(text.text, repeats, settings.minimum_bytes)
    referred = references.referred_bytes(windows, periods, settings.minimum_bytes)
    *parts, within = references.split_by_reference(aligned, referred, settings.against or 0)
    rows = np.concatenate([np.insert(part, 2, number, axis=1) for number, part in enumerate(parts)])
    (folder / REFERENCE_RANGES).write_bytes(np.ascontiguousarray(rows[np.argsort(rows[:, 0])], "<u8").data)
    return [_covered(part) for part in parts], _covered(within)


def cuts_stage(build: Build) -> str:
    """The stage whose CUT_RANGES apply to the text that is written back and tokenized (sources/stages/index.py)."""
    return "refine" if build.units("refine") else "union"


def repeats_of(build: Build, shard: str) -> NDArray[np.uint64]:
    """uint64 (r, 2): all ranges of a shard's text that occurred earlier, kept copies included."""
    matches = [Input(build, ("match", partition)) for partition in build.units("match")]
    return dedup_ranges.union_ranges(matched_rows(matches, place_of(build, shard), dedup_ranges.MATCH_RANGES))


def matched_rows(matches: list[Input], shard: int, name: str, columns: int = 2) -> NDArray[np.uint64]:
    """The rows of one of all shards, (r, columns), in the files called `name` of every partition."""
    return np.concatenate([sections_in(match.blocks).read(name, shard, columns=columns) for match in matches])


def held_by_references(build: Build) -> list[int]:
    """For each reference, the bytes of the dataset's duplicate ranges that it is the first to hold."""
    return held_by_each(build.receipts("union")) if build.plan.references else []


def held_by_each(united: list[Receipt]) -> list[int]:
    """The same from the receipts of all shards."""
    return [sum(column) for column in zip(*(receipt.details["reference_bytes"] for receipt in united), strict=True)]


def kept_gaps(offsets: NDArray[np.uint64], cut: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """uint64: bytes kept between neighbouring ranges (r, 2) of one document; `offsets`: the shard's."""
    document = np.searchsorted(offsets, cut[:, 0])
    gaps: NDArray[np.uint64] = (cut[1:, 0] - cut[:-1, 1])[document[1:] == document[:-1]]
    return gaps


def _by_source_file(text: TextShard, cut: NDArray[np.uint64]) -> list[dict[str, Any]]:
    """Text bytes and duplicate bytes of each source file; a range never crosses a document's end."""
    covered = np.concatenate([np.zeros(1, np.uint64), np.cumsum(cut[:, 1] - cut[:, 0], dtype=np.uint64)])
    rows = []
    for source in text.sources:
        bounds = text.bounds(source.first_document, source.documents)
        first, last = np.searchsorted(cut[:, 0], bounds[[0, -1]])
        text_bytes = int(bounds[-1] - bounds[0]) - source.documents
        rows.append(
            {"path": source.path, "text_bytes": text_bytes, "duplicate_bytes": int(covered[last] - covered[first])}
        )
    return rows


def removal_in_words(build: Build) -> str:
    """Markdown: how much of the text repeats and would be removed (or annotated), and from which source files most.

    "" if the dataset is not deduplicated. Read from receipts; StepMissingError before union has finished.
    """
    dedup = build.config.dedup
    if dedup.mode == "none":
        return ""
    receipts = build.receipts("union")
    ranges = sum(PowerHistogram.model_validate(receipt.details["range_bytes"]).count for receipt in receipts)
    text_bytes, documents = (text_total(build, name) for name in ("text_bytes_out", "documents_out"))
    counts = {name: build.total("union", name) for name in ("removed_bytes", "documents_touched", "documents_emptied")}
    verb = "removed" if dedup.mode == "remove" else "annotated, and kept"
    against = bool(build.plan.references)
    rows = [
        f"**{counts['removed_bytes']:,} of {text_bytes:,} bytes of text"
        f" ({_share(counts['removed_bytes'], text_bytes)}) would be {verb}**, in {ranges:,} ranges.",
        "",
        f"* {counts['documents_touched']:,} of {documents:,} documents are affected,"
        f" {counts['documents_emptied']:,} of them entirely.",
        f"* Ranges are {range_in_words(dedup.window_bytes, dedup.keep, dedup.fuzzy_share, against=against)}.",
        *_held_in_words(build),
        "",
        "| source file | bytes of text | would go | share |",
        "|---|--:|--:|--:|",
        *(
            f"| {code_span(path)} | {whole:,} | {gone:,} | {_share(gone, whole)} |"
            for gone, whole, path in _files(receipts)[:SHOWN_FILES]
        ),
    ]
    return "\n".join(rows)


def _held_in_words(build: Build) -> list[str]:
    """How much of the removed text repeats within the dataset, and how much is in which reference."""
    if not build.plan.references:
        return []
    held = zip(build.plan.references, held_by_references(build), strict=True)
    return [
        f"* {build.total('union', 'within_bytes'):,} bytes repeat within the dataset.",
        *(f"* {size:,} bytes are in {code_span(reference.path)}." for reference, size in held),
    ]


def code_span(text: str) -> str:
    """Markdown that shows `text` verbatim, in table cells too: its fence is longer than any backticks in it."""
    shown = visible(text).replace("\n", r"\n").replace("|", r"\|")  # tables split cells before spans are read
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if shown.startswith("`") or shown.endswith("`") else f"{fence}{shown}{fence}"


def _files(receipts: list[Receipt]) -> list[tuple[int, int, str]]:
    """(bytes removed, bytes of text, path) of every source file, those that lose most first."""
    listed = [file for receipt in receipts for file in receipt.details["by_source_file"]]
    rows = [(file["duplicate_bytes"], file["text_bytes"], file["path"]) for file in listed]
    return sorted(rows, key=lambda row: (-row[0], row[2]))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0 %"


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    ranges, cut = dedup_ranges.read_ranges(folder / REMOVE_RANGES), dedup_ranges.read_ranges(folder / CUT_RANGES)
    counts = {"ranges_out": len(ranges), "duplicate_bytes": _covered(ranges), "removed_bytes": _covered(cut)}
    if (folder / REFERENCE_RANGES).exists():
        counts["reference_bytes"] = _covered(np.fromfile(folder / REFERENCE_RANGES, "<u8").reshape(-1, 3))
    return Recount(counts)


def _checks(build: Build, _shard: str, receipt: Receipt) -> list[Check]:
    """Removed text repeats text of the dataset or of a reference, or is between repeats."""
    counts = receipt.counts
    if not build.plan.references:
        return []
    kinds = (("within", "within_bytes"), ("in references", "reference_bytes"), ("between repeats", "fuzzy_bytes"))
    removed = (("in ranges", counts["removed_bytes"]),)
    return [Check("repeats", removed, tuple((label, counts[count]) for label, count in kinds))]


def _covered(ranges: NDArray[np.uint64]) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def ranges_match_check(build: Build) -> Check:
    """Ranges written by all partitions = ranges read by all shards."""
    matched, united = build.total("match", "ranges"), build.total("union", "ranges_in")
    return Check("ranges", (("found by match", matched),), (("read by union", united),))


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
    found = []
    for reference, held in zip(build.plan.references or (), held_by_references(build), strict=True):
        receipts = [build.receipt("reference", unit) for unit in units_of(reference)]
        read = {
            count: sum(receipt.counts[f"{count}_out"] for receipt in receipts) for count in ("documents", "text_bytes")
        }
        found.append(ReferenceHeld(path=reference.path, version=reference.version, held_bytes=held, **read))
    return tuple(found)


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
    return histograms.merge_histograms(
        PowerHistogram.model_validate(receipt.details[name]) for receipt in build.receipts("union")
    )


STAGE = Stage(
    "union",
    version=2,
    after=("match",),
    per_shard=True,
    wanted=lambda config: config.dedup.mode != "none",
    units_of="index",
    work=Work(Settings, _identity, _inputs, _run),
    recount=_recount,
    checks=_checks,
    schedule=Schedule(approval=removal_in_words),
)
