"""Summaries for tests: a usual build, a huge one, an empty one, an unfinished one, one with hostile names."""

from __future__ import annotations

from corpusmill.report.content import (
    DocumentExcerpt,
    DuplicateSummary,
    LengthSummary,
    NearDuplicatePair,
    PackingSummary,
    QualityMeasure,
    ShuffleSummary,
    SourceFileDuplicates,
    SourceLeftOut,
)
from corpusmill.report.facts import Flow, PowerBin, PowerHistogram, StageSummary
from corpusmill.report.summary import (
    BalanceCheck,
    BuildSummary,
    DestinationSummary,
    ExportSummary,
    OutputFile,
    QuarantineExample,
    QuarantineFile,
)
from tests.report.usual_summary import CONFIGURATION, PLAN, export, histogram, usual

__all__ = ["broken", "empty", "histogram", "hostile", "huge", "planned", "usual"]


def huge() -> BuildSummary:
    """200 shards, 1,000 output files, 10**13 tokens, 3,000 source files, 1,000 checks, many reasons."""
    base = usual()
    factor = 10_000

    def grown(flow: Flow | None) -> Flow | None:
        if flow is None:
            return None
        return Flow(
            into=flow.into * factor,
            out=flow.out * factor,
            lost={name: count * factor for name, count in flow.lost.items()},
            gained={name: count * factor for name, count in flow.gained.items()},
        )

    def grown_bins(shape: PowerHistogram) -> PowerHistogram:
        return PowerHistogram(
            bins=tuple(PowerBin(power=b.power, count=b.count * factor, total=b.total * factor) for b in shape.bins)
        )

    stages = tuple(
        stage.model_copy(
            update={
                "documents": grown(stage.documents),
                "text_bytes": grown(stage.text_bytes),
                "tokens": grown(stage.tokens),
                "units_total": 200,
                "units_done": 200,
                "units_reused": 199,
                "seconds": stage.seconds * factor,
                "timed_bytes": stage.timed_bytes * factor,
                "peak_rss_bytes": 900 * 2**30,
            }
        )
        for stage in base.stages
    )
    reasons = {f"reason number {number}": 10**6 * (number + 1) for number in range(9)}
    index = stages[1].model_copy(
        update={"documents": Flow(into=12_333_640_000 + sum(reasons.values()), out=12_333_640_000, lost=reasons)}
    )
    assert base.duplicates
    assert base.packing
    assert base.lengths
    return base.model_copy(
        update={
            "dataset": "everything-" * 5 + "x",
            "source_files": 3000,
            "source_bytes": base.source_bytes * factor,
            "stages": (stages[0], index, *stages[2:]),
            "duplicates": base.duplicates.model_copy(
                update={
                    "ranges": grown_bins(base.duplicates.ranges),
                    "text_bytes": base.duplicates.text_bytes * factor,
                    "by_source_file": tuple(
                        SourceFileDuplicates(
                            path="s3://bucket/" + "deep/" * 12 + f"part-{n:05d}.jsonl.zst",
                            text_bytes=10**12,
                            duplicate_bytes=10**9 * (n % 900),
                        )
                        for n in range(3000)
                    ),
                }
            ),
            "exports": (
                export(
                    "webdataset",
                    "shard_{:08d}.tar",
                    "manifest.jsonl",
                    files=999,
                    contexts=base.packing.contexts * factor,
                    context_tokens=2049,
                ),
            ),
            "checks": tuple(
                BalanceCheck(
                    name=f"shard {n:05d}: documents", left=(("in", 10**9 + n),), right=(("out", 10**9), ("rejected", n))
                )
                for n in range(1000)
            ),
        }
    )


def empty() -> BuildSummary:
    """A build over no documents: all stages finished, everything zero."""
    nothing = Flow(into=0, out=0)
    zero = StageSummary(
        stage="index",
        unit="shard",
        units_total=1,
        units_done=1,
        units_reused=0,
        documents=nothing,
        text_bytes=nothing,
        seconds=0.0,
        timed_bytes=0,
        peak_rss_bytes=0,
    )
    none = PowerHistogram()
    return BuildSummary(
        dataset="nothing",
        plan=PLAN,
        code_version="0.1.0",
        configuration="",
        source_files=1,
        source_bytes=0,
        stages=(
            zero,
            zero.model_copy(update={"stage": "tokenize", "tokens": nothing}),
            zero.model_copy(update={"stage": "scatter", "documents": None, "text_bytes": None, "tokens": nothing}),
        ),
        duplicates=DuplicateSummary(
            mode="remove",
            minimum_bytes=500,
            ranges=none,
            text_bytes=0,
            documents=0,
            documents_touched=0,
            documents_emptied=0,
        ),
        lengths=LengthSummary(text_bytes_before=none, text_bytes_after=none, tokens=none),
        packing=PackingSummary(context_tokens=2049, contexts=0, real_tokens=0, special_tokens=0, pad_tokens=0),
        shuffle=ShuffleSummary(seed=0, cells=1, records_by_kind={"context": 0}),
        exports=(
            ExportSummary(format="webdataset", files=(OutputFile(path="webdataset/manifest.jsonl", size_bytes=0),)),
        ),
        destinations=(DestinationSummary(where="outputs/nothing", files=1, verified_files=1, size_bytes=0),),
        checks=(BalanceCheck(name="index: documents", left=(("in", 0),), right=(("out", 0),)),),
    )


def planned() -> BuildSummary:
    """A build of which only the plan exists."""
    return BuildSummary(
        dataset="planned",
        plan=PLAN,
        code_version="0.1.0",
        configuration=CONFIGURATION,
        source_files=48,
        source_bytes=1_402_118_220,
    )


def broken() -> BuildSummary:
    """Half done, and three documents are missing between index and tokenize."""
    base = usual()
    stages = [stage.model_copy(update={"units_done": 7, "units_reused": 0}) for stage in base.stages[:6]]
    wrong = BalanceCheck(
        name="tokenize shard 00017: documents", left=(("in", 41_233),), right=(("out", 41_190), ("rejected", 40))
    )
    return base.model_copy(
        update={
            "stages": tuple(stages),
            "exports": (),
            "packing": None,
            "shuffle": None,
            "checks": (*base.checks, wrong),
            "destinations": (
                DestinationSummary(where="s3://corpora/web-en", files=64, verified_files=60, size_bytes=8_219_004_110),
            ),
        }
    )


def hostile(name: str) -> BuildSummary:
    """`name` in every place that takes text from outside."""
    base = usual()
    flow = Flow(into=3, out=3, lost={name: 1}, gained={name + "2": 1})
    stage = base.stages[1].model_copy(
        update={"stage": name, "step": name, "unit": name, "documents": flow, "tokens": flow}
    )
    assert base.duplicates
    assert base.near_duplicates
    excerpt = DocumentExcerpt(source_file=name, line=1, id=name, pieces=((name, True), (name, False)))
    return base.model_copy(
        update={
            "dataset": name,
            "plan": name,
            "code_version": name,
            "configuration": name,
            "stages": (stage, stage),
            "near_duplicates": base.near_duplicates.model_copy(
                update={
                    "by_source": (SourceLeftOut(path=name, documents=2, left_out=1),),
                    "pairs": (NearDuplicatePair(similarity=1, left_out=excerpt, kept=excerpt),),
                }
            ),
            "duplicates": base.duplicates.model_copy(
                update={"by_source_file": (SourceFileDuplicates(path=name, text_bytes=2, duplicate_bytes=1),)}
            ),
            "shuffle": ShuffleSummary(
                seed=1,
                cells=1,
                records_by_kind={name: 1},
                quality=(QualityMeasure(name=name, measured=1, ideal=0, tolerance=0),),
            ),
            "exports": (ExportSummary(format=name, files=(OutputFile(path=name, size_bytes=1, sha256=name),)),),
            "destinations": (DestinationSummary(where=name, files=1, verified_files=0, size_bytes=1),),
            "quarantine": (
                QuarantineFile(
                    path=name,
                    documents=1,
                    examples=(QuarantineExample(reason=name, source_file=name, line=1, excerpt=name),),
                ),
            ),
            "checks": (BalanceCheck(name=name, left=((name, name),), right=((name, 1),)),),
        }
    )
