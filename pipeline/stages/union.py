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

from corpusmill.engine.stage import Recount, Stage, whole
from corpusmill.errors import visible
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.context import sections_of
from corpusmill.stages.index import text_stage, text_total
from corpusmill.stages.reference import place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

SHOWN_FILES = 10  # source files that lose most
REMOVE_RANGES, CUT_RANGES, REFERENCE_RANGES = "remove_ranges", "cut_ranges", "reference_ranges"


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    anchors = [("anchor", shard)] if build.plan.references and build.units("anchor") else []
    return [(text_stage(build, shard), shard), *anchors, *whole(build, "match")]


def _units(build: Build) -> list[str]:
    return [] if build.config.dedup.mode == "none" else build.units("index")


def _settings(build: Build, shard: str) -> dict[str, Any]:
    dedup = build.config.dedup
    settings = {"shard": place_of(build, shard), "keep": dedup.keep, "fuzzy_share": dedup.fuzzy_share}
    against = {"against": len(build.plan.references)} if build.plan.references else {}
    return {**settings, "minimum_bytes": dedup.minimum_bytes, **against}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    from corpusmill.dedup.fuzzy import join_spans
    from corpusmill.dedup.matches import EARLIER_WINDOWS, LATER_WINDOWS, MATCH_RANGES
    from corpusmill.dedup.ranges import align_ranges, kept_whole, range_statistics, union_ranges, write_ranges
    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.report.histograms import power_histogram

    text = open_text_shard(build.folder(text_stage(build, shard), shard))
    dedup = build.config.dedup
    rows = matched_rows(build, shard, MATCH_RANGES)
    ranges = union_ranges(rows)
    repeated_bytes = int((ranges[:, 1] - ranges[:, 0]).sum())
    if dedup.keep == "every_string":
        assert dedup.minimum_bytes is not None
        later, earlier = (union_ranges(matched_rows(build, shard, name)) for name in (LATER_WINDOWS, EARLIER_WINDOWS))
        ranges = kept_whole(later, earlier, dedup.minimum_bytes)
    cut = aligned = align_ranges(text.text, text.offsets, ranges)
    if dedup.fuzzy_share is not None:
        cut = join_spans(aligned, text.offsets, dedup.fuzzy_share)
    write_ranges(folder / REMOVE_RANGES, ranges)
    write_ranges(folder / CUT_RANGES, cut)
    lengths = cut[:, 1] - cut[:, 0]
    statistics = range_statistics(cut, text.offsets, len(text.text))
    counts = {
        "ranges_in": len(rows),
        "ranges_out": len(ranges),
        "repeated_bytes": repeated_bytes,
        "duplicate_bytes": int((ranges[:, 1] - ranges[:, 0]).sum()),
        "fuzzy_bytes": int(lengths.sum() - (aligned[:, 1] - aligned[:, 0]).sum()),
        "removed_bytes": int(lengths.sum()),
        "documents_touched": statistics["documents_touched"],
        "documents_emptied": statistics["documents_emptied"],
        "bytes_read": rows.nbytes,
    }
    details: dict[str, Any] = {
        "range_bytes": power_histogram(lengths).model_dump(),
        "kept_gap_bytes": power_histogram(kept_gaps(text.offsets, cut)).model_dump(),
        "by_source_file": _by_source_file(text, cut),
    }
    if build.plan.references:
        held, within = _held_by_references(build, shard, text, aligned, folder)
        counts |= {"within_bytes": within, "reference_bytes": sum(held)}
        details["reference_bytes"] = held
    return Outcome(counts=counts, details=details)


def _held_by_references(
    build: Build, shard: str, text: TextShard, aligned: NDArray[np.uint64], folder: Path
) -> tuple[list[int], int]:
    """Write the parts of a shard's ranges that each reference holds; returns the bytes per reference, and of none."""
    import numpy as np

    from corpusmill.dedup.anchors import open_anchors
    from corpusmill.dedup.exchange import periods_of
    from corpusmill.dedup.matches import REFERENCE_WINDOWS
    from corpusmill.dedup.references import referred_bytes, split_by_reference

    assert build.config.dedup.minimum_bytes is not None
    assert build.plan.references is not None
    minimum_bytes = build.config.dedup.minimum_bytes
    windows = matched_rows(build, shard, REFERENCE_WINDOWS, columns=3)
    periods: Iterable[NDArray[np.uint64]] = ()
    if build.units("anchor") and len(windows):  # suffix arrays list these windows, too
        repeats = open_anchors(build.folder("anchor", shard)).repeats
        periods = periods_of(text.text, repeats, minimum_bytes)
    *parts, within = split_by_reference(
        aligned, referred_bytes(windows, periods, minimum_bytes), len(build.plan.references)
    )
    rows = np.concatenate([np.insert(part, 2, number, axis=1) for number, part in enumerate(parts)])
    (folder / REFERENCE_RANGES).write_bytes(np.ascontiguousarray(rows[np.argsort(rows[:, 0])], "<u8").data)
    return [_covered(part) for part in parts], _covered(within)


def cuts_stage(build: Build) -> str:
    """The stage whose CUT_RANGES apply to the text that is written back and tokenized (stages/index.py)."""
    return "refine" if build.units("refine") else "union"


def repeats_of(build: Build, shard: str) -> NDArray[np.uint64]:
    """uint64 (r, 2): all ranges of a shard's text that occurred earlier, kept copies included."""
    from corpusmill.dedup.matches import MATCH_RANGES
    from corpusmill.dedup.ranges import union_ranges

    return union_ranges(matched_rows(build, shard, MATCH_RANGES))


def matched_rows(build: Build, shard: str, name: str, columns: int = 2) -> NDArray[np.uint64]:
    """The rows of one shard, (r, columns), in the files called `name` of every partition."""
    import numpy as np

    matches = [sections_of(build, "match", partition) for partition in build.units("match")]
    place = place_of(build, shard)
    return np.concatenate([match.read(name, place, columns=columns) for match in matches])


def held_by_references(build: Build) -> list[int]:
    """For each reference, the bytes of the dataset's duplicate ranges that it is the first to hold."""
    if not build.plan.references:
        return []
    rows = [receipt.details["reference_bytes"] for receipt in build.receipts("union")]
    return [sum(column) for column in zip(*rows, strict=True)]


def kept_gaps(offsets: NDArray[np.uint64], cut: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """uint64: bytes kept between neighbouring ranges (r, 2) of one document; `offsets`: the shard's."""
    import numpy as np

    document = np.searchsorted(offsets, cut[:, 0])
    gaps: NDArray[np.uint64] = (cut[1:, 0] - cut[:-1, 1])[document[1:] == document[:-1]]
    return gaps


def _by_source_file(text: TextShard, cut: NDArray[np.uint64]) -> list[dict[str, Any]]:
    """Text bytes and duplicate bytes of each source file; a range never crosses a document's end."""
    import numpy as np

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
    from corpusmill.report.content import range_in_words
    from corpusmill.report.facts import PowerHistogram

    dedup = build.config.dedup
    if dedup.mode == "none":
        return ""
    assert dedup.minimum_bytes is not None
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
        f"* Ranges are {range_in_words(dedup.minimum_bytes, dedup.keep, dedup.fuzzy_share, against=against)}.",
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
    import numpy as np

    from corpusmill.dedup.ranges import read_ranges

    ranges, cut = read_ranges(folder / REMOVE_RANGES), read_ranges(folder / CUT_RANGES)
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


STAGE = Stage(
    "union",
    version=2,
    after=("match",),
    per_shard=True,
    group="find_ranges",
    approval=removal_in_words,
    approved="removal",
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    checks=_checks,
)


def ranges_match_check(build: Build) -> Check:
    """Ranges written by all partitions = ranges read by all shards."""
    matched, united = build.total("match", "ranges"), build.total("union", "ranges_in")
    return Check("ranges", (("found by match", matched),), (("read by union", united),))
