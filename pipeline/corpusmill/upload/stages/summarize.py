"""Receipts to the report's summary: every number in the report is a count of some receipt."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import yaml

from corpusmill.decontamination.stages.decontaminate import contamination
from corpusmill.dedup.stages.union import duplicates
from corpusmill.engine.build import Build
from corpusmill.engine.estimates import last_estimate
from corpusmill.engine.ledger import Check
from corpusmill.engine.rounds import steps_of
from corpusmill.engine.runs import begun_at, why_latest_stays
from corpusmill.export.formats import FORMATS
from corpusmill.export.nanoset import windows_of
from corpusmill.fingerprint import FOLDER_DIGITS
from corpusmill.kernels.content import add_up
from corpusmill.near_duplicates.stages.shown import near_duplicates
from corpusmill.report.content import (
    LengthSummary,
    MixingTable,
    PackingSummary,
    QualityMeasure,
    ShuffleSummary,
)
from corpusmill.report.facts import PowerHistogram, StageSummary
from corpusmill.report.histograms import merge_histograms
from corpusmill.report.shards import ShardTable, StepFacts, shard_row, step_name
from corpusmill.report.summary import (
    BalanceCheck,
    BuildSummary,
    DecodedSummary,
    DestinationSummary,
    EncodedSummary,
    EstimatedFigure,
    ExportSummary,
    OutputFile,
    QuarantineExample,
    QuarantineFile,
    VocabularySummary,
)
from corpusmill.shuffle.quality import OrderQuality, qualities_bands
from corpusmill.shuffle.stages import gather, scatter
from corpusmill.shuffle.stages.budget import budget_summary, shown_total
from corpusmill.sources.stages.index import quarantine_of, rejected_examples, rejected_reasons
from corpusmill.steps.stages.applying import filter_summary
from corpusmill.tokens.stages.tokenize import vocabulary
from corpusmill.upload.stages.manifest import QUALITY, UNIT
from corpusmill.upload.stages.upload import destination_folder
from corpusmill.version import __version__

CHAIN = (
    "filtered text",
    "decontaminated text",
    "compared text",
    "refined text",
    "text",
    "kept text",
    "content",
    "documents content",
    "contexts content",
)  # docs/guarantees.md


def summarize(build: Build) -> BuildSummary:
    """The summary of a build whose every stage but the report has finished."""
    stages = [stage for stage in build.graph.names if stage != "report"]
    steps = steps_of(build.graph)
    step_of = {stage: step.name for step in steps.values() for stage in step.stages}
    plan = build.plan
    summary = BuildSummary(
        dataset=build.config.name,
        plan=build.plan_folder.name[-FOLDER_DIGITS:],
        code_version=__version__,
        configuration=yaml.safe_dump(build.config.model_dump(mode="json", exclude_none=True), sort_keys=False),
        source_files=len({file.location for file in plan.files()}),
        other_files=str(plan.others or ""),
        source_bytes=plan.source_bytes(),
        stages=tuple(_stage(build, stage, step_of[stage]) for stage in stages if build.units(stage)),
        titles={name: step.title for name, step in steps.items()},
        filtered=filter_summary(build),
        contamination=contamination(build),
        near_duplicates=near_duplicates(build),
        duplicates=duplicates(build),
        lengths=_lengths(build),
        packing=_packing(build),
        budget=budget_summary(build),
        shuffle=_shuffle(build),
        exports=tuple(_export(build, name) for name in build.config.exports.formats()),
        destinations=tuple(_destination(build, unit) for unit in build.units("upload")),
        quarantine=_quarantine(build),
        checks=_checks(build, stages),
        vocabulary=_vocabulary(build),
        decoded=_decoded(build),
        encoded=_encoded(build),
        latest_stays=why_latest_stays(build.plan_receipt) if build.units("upload") else "",
    )
    return summary.model_copy(update={"estimate": _estimate(build, summary)})


def shard_table(build: Build) -> ShardTable:
    """Every shard's row and every step's digest; stages that run every time have no comparable digest."""
    stages = [stage.name for stage in build.graph if stage.reuse]
    receipts = {stage: {unit: build.receipt(stage, unit) for unit in build.units(stage)} for stage in stages}
    digests = {stage: dict(build.rollup(stage).digests) for stage in stages}
    steps: dict[str, dict[str, StepFacts]] = {shard: {} for shard in build.plan.shard_names()}
    for stage in build.graph.per_shard:
        for unit, receipt in receipts[stage].items():
            shard, name = step_name(stage, unit)
            steps[shard][name] = StepFacts(receipt.counts, digests[stage][unit], receipt.seconds)
    rows = [
        shard_row(shard, steps[shard], sum(file.size_bytes for file in files))
        for shard, files in zip(build.plan.shard_names(), build.plan.shards, strict=True)
    ]
    return ShardTable(rows=tuple(rows), digests=digests)


def _stage(build: Build, stage: str, step: str) -> StageSummary:
    units = build.units(stage)
    receipts = build.receipts(stage)
    shown = build.graph[stage].shown
    flows = shown.flows(build)
    ends = [build.finished_at(stage, unit) for unit in units]
    began = begun_at(build.plan_folder)
    fresh = [(end - receipt.seconds, end) for receipt, end in zip(receipts, ends, strict=True) if end >= began]
    return StageSummary(
        stage=stage,
        step=step,
        unit=shown.unit_word,
        units_total=len(units),
        units_done=len(receipts),
        units_reused=len(units) - len(fresh),
        documents=flows.get("documents"),
        text_bytes=flows.get("text_bytes"),
        tokens=flows.get("tokens"),
        seconds=sum(receipt.seconds for receipt in receipts),
        wall_seconds=max(end for _, end in fresh) - min(start for start, _ in fresh) if fresh else None,
        wall_began=max(0.0, min(start for start, _ in fresh) - began) if fresh else None,
        timed_bytes=build.total(stage, "bytes_read"),
        peak_rss_bytes=max(receipt.peak_rss_bytes for receipt in receipts),
        on_trunk=shown.on_trunk,
        requests=sum(receipt.traffic.get("requests", 0) for receipt in receipts),
        retries=sum(receipt.traffic.get("retries", 0) for receipt in receipts),
        without_checksum=sum(receipt.traffic.get("without_checksum", 0) for receipt in receipts),
        wire_bytes=sum(receipt.traffic.get(way, 0) for receipt in receipts for way in ("bytes_received", "bytes_sent")),
    )


def _histogram(build: Build, stage: str, name: str) -> PowerHistogram:
    return merge_histograms(PowerHistogram.model_validate(receipt.details[name]) for receipt in build.receipts(stage))


def _lengths(build: Build) -> LengthSummary:
    return LengthSummary(
        text_bytes_before=_histogram(build, "index", "document_bytes"),
        text_bytes_after=_histogram(build, "tokenize", "document_bytes"),
        tokens=_histogram(build, "tokenize", "document_tokens"),
    )


def _packing(build: Build) -> PackingSummary | None:
    for kind, context_tokens in build.config.exports.context_tokens().items():
        return PackingSummary(
            context_tokens=context_tokens,
            contexts=gather.of_kind(build, kind, "records"),
            real_tokens=shown_total(build, "tokens"),
            special_tokens=gather.of_kind(build, kind, "special_tokens"),
            pad_tokens=gather.of_kind(build, kind, "pad_tokens"),
            repeated_tokens=gather.of_kind(build, kind, "repeated_tokens"),
        )
    return None


def _shuffle(build: Build) -> ShuffleSummary:
    measured = []
    if not scatter.in_source_order(build):
        read = json.loads((build.folder("manifest", UNIT) / QUALITY).read_bytes())
        measured = [(kind, OrderQuality(**read[kind])) for kind in scatter.held_kinds(build.config.exports)]
    significance = build.config.shuffle.significance
    return ShuffleSummary(
        seed=None if scatter.in_source_order(build) else build.config.shuffle.seed,
        cells=scatter.cells(build),
        records_by_kind={
            kind.removesuffix("s"): gather.of_kind(build, kind, "records")
            for kind in scatter.held_kinds(build.config.exports)
        },
        quality=tuple(
            QualityMeasure(name=name, measured=band.measured, ideal=band.ideal, tolerance=band.tolerance)
            for name, band in qualities_bands(measured, significance)
        ),
        significance=significance,
        mixing=tuple(
            MixingTable(format=name, records=tuple(tuple(row) for row in table))
            for _, quality in measured
            for name, table in sorted(quality.tables.items())
            if table is not None
        ),
    )


def _export(build: Build, name: str) -> ExportSummary:
    files: list[OutputFile] = []
    nanoset = build.config.exports.nanoset
    sequence_tokens = nanoset.sequence_tokens if nanoset is not None and name == "nanoset" else None
    for receipt in build.receipts("export"):
        holds: dict[str, Any] = {detail["name"]: detail for detail in receipt.details["files"]}
        outputs = [output for output in receipt.outputs if output.name.startswith(f"{name}/")]
        files += [_output(output.name, output.size_bytes, output.sha256, holds, sequence_tokens) for output in outputs]
    numpy = build.config.exports.numpy
    layout = numpy.layout if numpy is not None and name == "numpy" else None
    text = build.config.exports.parquet_text if FORMATS[name].holds_text else None
    group_rows = text.rows_per_group if text is not None else None
    return ExportSummary(
        format=name, files=tuple(files), sequence_tokens=sequence_tokens, layout=layout, group_rows=group_rows
    )


def _output(name: str, size_bytes: int, sha256: str, holds: dict[str, Any], sequence_tokens: int | None) -> OutputFile:
    """One file; records and tokens are stated for the file that holds them (.bin, .ds, .npy, .tar)."""
    stem = name.removesuffix(FORMATS[name.partition("/")[0]].data_suffix)
    held = holds.get(name) or holds.get(stem, {})
    windows, dropped_tokens = None, None
    if sequence_tokens is not None and "slots" in held:
        windows, dropped_tokens = windows_of(held["slots"], sequence_tokens)
    return OutputFile(
        path=name,
        size_bytes=size_bytes,
        sha256=sha256,
        records=held.get("records"),
        tokens=None if FORMATS[name.partition("/")[0]].holds_text else held.get("slots"),
        windows=windows,
        dropped_tokens=dropped_tokens,
    )


def _destination(build: Build, unit: str) -> DestinationSummary:
    receipt = build.receipt("upload", unit)
    files = receipt.counts["files"]
    return DestinationSummary(
        where=destination_folder(build, unit),
        files=files,
        verified_files=files,  # an upload that could not verify a file has no receipt
        size_bytes=receipt.counts["dataset_bytes"],
    )


def _vocabulary(build: Build) -> VocabularySummary:
    vocabulary_of = vocabulary(build)
    width = np.dtype(vocabulary_of.dtype).itemsize
    return VocabularySummary(
        name=vocabulary_of.name, ids=vocabulary_of.size, eot_id=vocabulary_of.eot_id, token_bytes=width
    )


def _decoded(build: Build) -> DecodedSummary:
    documents, normalized, unproven = (
        build.total("tokenize", f"documents_{what}") for what in ("out", "normalized", "unproven")
    )
    return DecodedSummary(exactly=documents - normalized - unproven, normalized=normalized, unproven=unproven)


def _encoded(build: Build) -> EncodedSummary:
    engines = [receipt.details["engine"] for receipt in build.receipts("tokenize")]
    return EncodedSummary(
        engines=tuple(sorted({engine["name"] for engine in engines})),
        reasons=tuple(sorted({engine["why_slow"] for engine in engines} - {""})),
        documents=build.total("tokenize", "documents_out"),
        by_reference=build.total("tokenize", "documents_by_reference"),
        special=build.total("tokenize", "documents_special"),
        special_is_text=not build.config.tokenizer.parse_special,
    )


def _estimate(build: Build, summary: BuildSummary) -> tuple[EstimatedFigure, ...]:
    """The last estimate against the actual figures; empty if the dataset was never estimated."""
    estimated = last_estimate(build)
    if estimated is None:
        return ()
    tokens, text_bytes = summary.first_into("tokens") or 0, summary.first_into("text_bytes") or 0
    share = summary.duplicates.duplicate_bytes / text_bytes if summary.duplicates and text_bytes else 0.0
    core_seconds = sum(stage.seconds for stage in summary.stages) / estimated.cores
    sizes = {export.format: export.size_bytes for export in summary.exports}
    peak = max((stage.peak_rss_bytes for stage in summary.stages), default=0)
    return (
        EstimatedFigure(
            name="tokens",
            unit="tokens",
            estimated=estimated.tokens,
            actual=tokens,
            low=estimated.tokens_low,
            high=estimated.tokens_high,
        ),
        EstimatedFigure(name="text", unit="bytes", estimated=estimated.text_bytes, actual=text_bytes),
        EstimatedFigure(
            name="duplicate text", unit="share", estimated=estimated.duplicate_share, actual=share, lower_bound=True
        ),
        EstimatedFigure(
            name=f"time on {estimated.cores} cores",
            unit="seconds",
            estimated=estimated.hours * 3600,
            actual=core_seconds,
        ),
        EstimatedFigure(name="memory of a worker", unit="bytes", estimated=estimated.peak_rss_bytes, actual=peak),
        *(
            EstimatedFigure(name=f"{name} files", unit="bytes", estimated=size, actual=sizes[name])
            for name, size in estimated.output_bytes.items()
            if name in sizes
        ),
    )


def _quarantine(build: Build) -> tuple[QuarantineFile, ...]:
    files = []
    for shard in build.units("index"):
        receipt = build.receipt("index", shard)
        rejected = sum(rejected_reasons(receipt.counts).values())
        if rejected:
            examples = tuple(
                QuarantineExample(reason=reason, source_file=file, line=line)
                for file, line, reason in rejected_examples(build, shard)
            )
            path = str(quarantine_of(build, shard))
            files.append(QuarantineFile(path=path, documents=rejected, examples=examples))
    return tuple(files)


def _checks(build: Build, stages: list[str]) -> tuple[BalanceCheck, ...]:
    """The accounts of every stage; those of content first, in order of the chain."""
    checks = [(stage, check) for stage in stages for check in merged_checks(build.checks(stage))]
    checks.sort(key=lambda pair: (not pair[1].of_content, pair[1].of_content and _link(pair[1].name)))
    return tuple(_check(stage, check) for stage, check in checks)


def _link(account: str) -> int:
    """The position of a content account in CHAIN; those of exports are last."""
    return CHAIN.index(account) if account in CHAIN else len(CHAIN)


def merged_checks(checks: list[Check]) -> list[Check]:
    """Checks of the same name summed over all units: one line in the report instead of one per unit.

    Each was checked on its own when its step ran; sums of balanced accounts balance.
    """
    sides: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # counts, or content sums
    for check in checks:
        for merged, terms in zip(sides.setdefault(check.name, ({}, {})), (check.left, check.right), strict=True):
            for label, value in terms:
                merged[label] = merged[label] + value if label in merged else value
    return [Check(name, tuple(left.items()), tuple(right.items())) for name, (left, right) in sides.items()]


def _check(stage: str, check: Check) -> BalanceCheck:
    left: Any = check.left
    right: Any = check.right
    if check.of_content:
        left, right = (
            ((" + ".join(label for label, _ in terms), str(add_up(value for _, value in terms))),)
            for terms in (left, right)
        )
    return BalanceCheck(name=f"{stage}: {check.name}", left=left, right=right)
