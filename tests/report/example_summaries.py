"""Summaries for tests: a usual build, a huge one, an empty one, an unfinished one, one with hostile names."""

from __future__ import annotations

import hashlib

from pipeline.report.summary import (
    BalanceCheck,
    BuildSummary,
    DestinationSummary,
    DuplicateSummary,
    ExportSummary,
    Flow,
    LengthSummary,
    MixingTable,
    OutputFile,
    PackingSummary,
    PowerBin,
    PowerHistogram,
    QualityMeasure,
    QuarantineExample,
    QuarantineFile,
    RepeatedString,
    ShuffleSummary,
    SourceFileDuplicates,
    StageSummary,
)

PLAN = hashlib.sha256(b"plan").hexdigest()
CONFIGURATION = """name: web-en
source:
  paths: [data/web/, "data/books/*.jsonl.zst"]
dedup:
  mode: remove
  minimum_bytes: 500
tokenizer:
  name: cl100k_base
shuffle:
  seed: 1234
exports:
  webdataset: {context_tokens: 2049}
  megatron: {}
"""


def histogram(shape: dict[int, int], *, mean: float = 1.44) -> PowerHistogram:
    """`shape` counts by power; the mean value of a bin is `mean` times its lower edge."""
    return PowerHistogram(
        bins=tuple(
            PowerBin(power=p, count=n, total=0 if p < 0 else int(n * 2**p * mean)) for p, n in sorted(shape.items())
        )
    )


def mixture(stretches: int, files: int) -> tuple[tuple[int, ...], ...]:
    """Counts around 200 with a spread like chance's, and one place that is far off."""
    rows = [[200 + (row * 7919 + file * 104_729) % 43 - 21 for file in range(files)] for row in range(stretches)]
    rows[3][5] = 320
    return tuple(tuple(row) for row in rows)


def usual() -> BuildSummary:
    """About 1.2 M documents and 4.6 GB of text, all stages finished, every account balanced."""
    ranges = histogram(
        {8: 3120, 9: 187_204, 10: 96_411, 11: 40_877, 12: 15_310, 13: 5208, 14: 1406, 15: 322, 16: 41, 18: 2}
    )
    removed = ranges.total
    documents, text = 1_234_567, 4_612_345_678
    too_long, not_utf8, empty = 212, 31, 960
    kept_documents = documents - too_long - not_utf8 - empty
    emptied = 3411
    tokens = 1_021_443_876
    contexts = 499_001
    special, pad = kept_documents - emptied, 1291
    slots = contexts * 2049
    tokens = slots - special - pad
    megatron_tokens = tokens + special
    return BuildSummary(
        dataset="web-en",
        plan=PLAN,
        code_version="0.1.0",
        configuration=CONFIGURATION,
        source_files=48,
        source_bytes=1_402_118_220,
        stages=(
            StageSummary(
                stage="download",
                unit="shard",
                units_total=19,
                units_done=19,
                units_reused=17,
                seconds=21.2,
                wall_seconds=11.1,
                timed_bytes=1_402_118_220,
                peak_rss_bytes=61_000_000,
            ),
            StageSummary(
                stage="index",
                unit="shard",
                units_total=19,
                units_done=19,
                units_reused=17,
                documents=Flow(
                    into=documents,
                    out=kept_documents,
                    lost={"empty": empty, "too long": too_long, "not UTF-8": not_utf8},
                ),
                text_bytes=Flow(into=text, out=text - 48_112_004, lost={"rejected": 48_112_004}),
                seconds=38.77,
                wall_seconds=20.4,
                timed_bytes=text,
                peak_rss_bytes=412_000_000,
            ),
            StageSummary(
                stage="match",
                unit="partition",
                units_total=16,
                units_done=16,
                units_reused=0,
                seconds=49.4,
                wall_seconds=25.8,
                timed_bytes=text,
                peak_rss_bytes=1_190_000_000,
                on_trunk=False,
            ),
            StageSummary(
                stage="find_ranges",
                unit="shard",
                units_total=19,
                units_done=19,
                units_reused=0,
                text_bytes=Flow(into=text - 48_112_004, out=text - 48_112_004 - removed, lost={"duplicates": removed}),
                seconds=6.1,
                wall_seconds=3.3,
                timed_bytes=text,
                peak_rss_bytes=210_000_000,
            ),
            StageSummary(
                stage="writeback",
                unit="shard",
                units_total=19,
                units_done=19,
                units_reused=0,
                documents=Flow(into=kept_documents, out=kept_documents),
                text_bytes=Flow(into=text - 48_112_004 - removed, out=text - 48_112_004 - removed),
                seconds=31.0,
                wall_seconds=16.2,
                timed_bytes=text,
                peak_rss_bytes=380_000_000,
                on_trunk=False,
            ),
            StageSummary(
                stage="tokenize",
                unit="shard",
                units_total=19,
                units_done=19,
                units_reused=0,
                documents=Flow(
                    into=kept_documents, out=kept_documents - emptied, lost={"emptied by deduplication": emptied}
                ),
                text_bytes=Flow(into=text - 48_112_004 - removed, out=text - 48_112_004 - removed),
                tokens=Flow(into=tokens, out=tokens),
                seconds=38.2,
                wall_seconds=20.1,
                timed_bytes=text - removed,
                peak_rss_bytes=690_000_000,
            ),
            StageSummary(
                stage="scatter",
                unit="shard",
                units_total=19,
                units_done=19,
                units_reused=0,
                tokens=Flow(into=tokens, out=slots, gained={"end of text": special, "padding": pad}),
                seconds=7.7,
                wall_seconds=4.1,
                timed_bytes=4 * slots,
                peak_rss_bytes=300_000_000,
            ),
            StageSummary(
                stage="gather",
                unit="cell",
                units_total=16,
                units_done=16,
                units_reused=0,
                tokens=Flow(into=slots, out=slots),
                seconds=6.9,
                wall_seconds=3.7,
                timed_bytes=4 * slots,
                peak_rss_bytes=280_000_000,
            ),
            StageSummary(
                stage="export",
                unit="part",
                units_total=62,
                units_done=62,
                units_reused=0,
                tokens=Flow(into=slots, out=slots),
                seconds=9.3,
                wall_seconds=5.0,
                timed_bytes=4 * slots,
                peak_rss_bytes=150_000_000,
            ),
            StageSummary(
                stage="upload",
                unit="part",
                units_total=62,
                units_done=62,
                units_reused=0,
                seconds=12.5,
                wall_seconds=7.7,
                timed_bytes=8 * slots,
                peak_rss_bytes=90_000_000,
            ),
        ),
        duplicates=DuplicateSummary(
            mode="remove",
            minimum_bytes=500,
            ranges=ranges,
            text_bytes=text - 48_112_004,
            documents=kept_documents,
            documents_touched=214_006,
            documents_emptied=emptied,
            by_source_file=tuple(
                SourceFileDuplicates(
                    path=f"data/web/part-{n:05d}.jsonl.zst",
                    text_bytes=96_000_000 + 1_234_567 * (n % 7),
                    duplicate_bytes=(removed // 48) * (1 + n * 11 % 17) // 9,
                )
                for n in range(48)
            ),
            kept_gaps=histogram(
                {0: 310, 1: 2400, 2: 3100, 3: 9800, 5: 41_000, 7: 96_000, 9: 88_000, 11: 30_500, 14: 90}
            ),
            most_repeated=(
                RepeatedString(
                    count=41_206,
                    source_file="data/web/part-00001.jsonl.zst",
                    line=17,
                    excerpt="We use cookies to make this site work.\n<script>alert(1)</script>\nBy clicking you agree",
                ),
                RepeatedString(
                    count=9_014, source_file="data/web/part-00003.jsonl.zst", line=5, excerpt="中文 über " * 16
                ),
            ),
        ),
        lengths=LengthSummary(
            text_bytes_before=histogram(
                {
                    -1: 0,
                    4: 900,
                    5: 3300,
                    6: 9800,
                    7: 26_400,
                    8: 71_000,
                    9: 164_000,
                    10: 274_000,
                    11: 301_000,
                    12: 218_000,
                    13: 108_000,
                    14: 41_200,
                    15: 12_100,
                    16: 3200,
                    17: 700,
                    18: 64,
                }
            ),
            text_bytes_after=histogram(
                {
                    -1: emptied,
                    4: 1400,
                    5: 4100,
                    6: 12_000,
                    7: 31_000,
                    8: 80_000,
                    9: 174_000,
                    10: 276_000,
                    11: 291_000,
                    12: 204_000,
                    13: 99_000,
                    14: 37_500,
                    15: 10_800,
                    16: 2900,
                    17: 610,
                    18: 50,
                }
            ),
            tokens=histogram(
                {
                    1: 700,
                    2: 2600,
                    3: 8000,
                    4: 22_800,
                    5: 62_000,
                    6: 144_000,
                    7: 250_000,
                    8: 292_000,
                    9: 224_000,
                    10: 118_000,
                    11: 46_000,
                    12: 14_000,
                    13: 3900,
                    14: 900,
                    15: 110,
                    16: 4,
                }
            ),
        ),
        packing=PackingSummary(
            context_tokens=2049, contexts=contexts, real_tokens=tokens, special_tokens=special, pad_tokens=pad
        ),
        shuffle=ShuffleSummary(
            mixing=(
                MixingTable(format="webdataset", records=mixture(32, 29)),
                MixingTable(format="megatron", records=mixture(12, 8)),
            ),
            seed=1234,
            cells=16,
            records_by_kind={"context": contexts, "document": special},
            quality=(
                QualityMeasure(
                    name="rank correlation of old and new position", measured=0.00071, ideal=0.0, tolerance=0.0042
                ),
                QualityMeasure(name="neighbours from one document", measured=0.00002, ideal=0.00001, tolerance=0.0001),
            ),
        ),
        exports=(
            export(
                "webdataset", "shard_{:08d}.tar", "manifest.jsonl", files=61, contexts=contexts, context_tokens=2049
            ),
            ExportSummary(
                format="megatron",
                files=(
                    OutputFile(
                        path="megatron/web-en_text_document.bin",
                        size_bytes=4 * megatron_tokens,
                        records=special,
                        tokens=megatron_tokens,
                        sha256=hashlib.sha256(b"bin").hexdigest(),
                    ),
                    OutputFile(
                        path="megatron/web-en_text_document.idx",
                        size_bytes=34 + 20 * special,
                        sha256=hashlib.sha256(b"idx").hexdigest(),
                    ),
                ),
            ),
        ),
        destinations=(
            DestinationSummary(where="outputs/web-en", files=64, verified_files=64, size_bytes=8_219_004_110),
            DestinationSummary(where="s3://corpora/web-en", files=64, verified_files=64, size_bytes=8_219_004_110),
        ),
        quarantine=(
            QuarantineFile(
                path="index/00003-9f2c51d0a4e7b813/quarantine.jsonl",
                documents=31 + 212,
                examples=(
                    QuarantineExample(
                        reason="not UTF-8",
                        source_file="data/web/part-00003.jsonl.zst",
                        line=4711,
                        excerpt='{"id": "a81", "text": "caf\\u00e9 \\ud83d',
                    ),
                    QuarantineExample(
                        reason="too long",
                        source_file="data/web/part-00003.jsonl.zst",
                        line=60_125,
                        excerpt='{"id": "b07", "text": "0,0,0,0,0,0,0,0,0,0,0,0,0,0,',
                    ),
                ),
            ),
            QuarantineFile(
                path="index/00011-02aa19cd77b01f3e/quarantine.jsonl",
                documents=960,
                examples=(
                    QuarantineExample(
                        reason="empty", source_file="data/books/gutenberg.jsonl.zst", line=17, excerpt='{"text": ""}'
                    ),
                ),
            ),
        ),
        checks=(
            BalanceCheck(
                name="index: documents",
                left=(("in", documents),),
                right=(("out", kept_documents), ("empty", empty), ("too long", too_long), ("not UTF-8", not_utf8)),
            ),
            BalanceCheck(
                name="find_ranges: text bytes",
                left=(("in", text - 48_112_004),),
                right=(("out", text - 48_112_004 - removed), ("removed", removed)),
            ),
            BalanceCheck(
                name="match: windows", left=(("sum over partitions", 391_004_122),), right=(("union", 391_004_122),)
            ),
            BalanceCheck(
                name="tokenize: documents",
                left=(("in", kept_documents),),
                right=(("out", special), ("emptied", emptied)),
            ),
            BalanceCheck(
                name="scatter: token slots",
                left=(("tokens", tokens), ("special", special), ("padding", pad)),
                right=(("slots", slots),),
            ),
            BalanceCheck(
                name="shuffle is a permutation",
                left=(("before", "5d1c9e0f77ab3321"),),
                right=(("after", "5d1c9e0f77ab3321"),),
            ),
            BalanceCheck(
                name="export webdataset: records", left=(("gathered", contexts),), right=(("exported", contexts),)
            ),
        ),
    )


def export(name: str, pattern: str, index: str, *, files: int, contexts: int, context_tokens: int) -> ExportSummary:
    """`contexts` spread over `files`, every file full except the last, then an index file."""
    per_file = -(-contexts // files)
    counts = [min(per_file, max(0, contexts - number * per_file)) for number in range(files)]
    outputs = [
        OutputFile(
            path=f"{name}/{pattern.format(number)}",
            size_bytes=count * context_tokens * 4 + 10_240,
            records=count,
            tokens=count * context_tokens,
            sha256=hashlib.sha256(pattern.format(number).encode()).hexdigest(),
        )
        for number, count in enumerate(counts)
    ]
    outputs.append(
        OutputFile(path=f"{name}/{index}", size_bytes=files * 74, sha256=hashlib.sha256(index.encode()).hexdigest())
    )
    return ExportSummary(format=name, files=tuple(outputs))


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
    stage = base.stages[1].model_copy(update={"stage": name, "unit": name, "documents": flow, "tokens": flow})
    assert base.duplicates
    return base.model_copy(
        update={
            "dataset": name,
            "plan": name,
            "code_version": name,
            "configuration": name,
            "stages": (stage, stage),
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
