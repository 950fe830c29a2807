"""A usual finished build: 1.2 M documents, 4.6 GB of text, 19 shards, every account balanced."""

from __future__ import annotations

import hashlib

from corpusmill.builds.chain import STEP_OF, STEPS
from corpusmill.report.content import (
    DocumentExcerpt,
    DuplicateSummary,
    LengthSummary,
    MixingTable,
    NearDuplicatePair,
    NearDuplicateSummary,
    PackingSummary,
    QualityMeasure,
    RepeatedString,
    ShuffleSummary,
    SourceFileDuplicates,
    SourceLeftOut,
)
from corpusmill.report.facts import Flow, PowerBin, PowerHistogram, StageSummary
from corpusmill.report.summary import (
    BalanceCheck,
    BuildSummary,
    DecodedSummary,
    DestinationSummary,
    EncodedSummary,
    ExportSummary,
    OutputFile,
    QuarantineExample,
    QuarantineFile,
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


def powers(first: int, counts: str) -> dict[int, int]:
    """{power: count} of consecutive powers from `first`."""
    return {first + place: int(count) for place, count in enumerate(counts.split())}


def mixture(stretches: int, files: int) -> tuple[tuple[int, ...], ...]:
    """Counts around 200 with a spread like chance's, and one place that is far off."""
    rows = [[200 + (row * 7919 + file * 104_729) % 43 - 21 for file in range(files)] for row in range(stretches)]
    rows[3][5] = 320
    return tuple(tuple(row) for row in rows)


# name, units of a kind, seconds of work and on the clock, largest memory, units reused
STAGES = (
    ("download", 19, "shard", 21.2, 11.1, 61_000_000, 17),
    ("index", 19, "shard", 38.77, 20.4, 412_000_000, 17),
    ("match", 16, "partition", 49.4, 25.8, 1_190_000_000, 0),
    ("find_ranges", 19, "shard", 6.1, 3.3, 210_000_000, 0),
    ("writeback", 19, "shard", 31.0, 16.2, 380_000_000, 0),
    ("tokenize", 19, "shard", 38.2, 20.1, 690_000_000, 0),
    ("scatter", 19, "shard", 7.7, 4.1, 300_000_000, 0),
    ("gather", 16, "cell", 6.9, 3.7, 280_000_000, 0),
    ("export", 62, "part", 9.3, 5.0, 150_000_000, 0),
    ("upload", 62, "part", 12.5, 7.7, 90_000_000, 0),
)


def finished_stages(timed_bytes: dict[str, int], flows: dict[str, dict[str, Flow]]) -> tuple[StageSummary, ...]:
    """All of STAGES, with the bytes processed and what flows through each."""
    return tuple(
        StageSummary(
            stage=name,
            step=STEP_OF.get(name, name),
            unit=unit,
            units_total=units,
            units_done=units,
            units_reused=reused,
            **flows.get(name, {}),
            seconds=seconds,
            wall_seconds=wall_seconds,
            timed_bytes=timed_bytes[name],
            peak_rss_bytes=peak_rss_bytes,
            on_trunk=name not in {"match", "writeback"},
        )
        for name, units, unit, seconds, wall_seconds, peak_rss_bytes, reused in STAGES
    )


def near_duplicates(documents: int) -> NearDuplicateSummary:
    """One in eight, most of them equal or nearly so."""
    changed = ("Spend at least", "EUR 40", "in one order and we ship your parcel for free.\n\nQuestions? Write to us.")
    left_out = DocumentExcerpt(
        source_file="data/web/part-00003.jsonl.zst",
        line=1201,
        id="shop/1201",
        pieces=((f"\u2026 {changed[0]} ", False), (changed[1], True), (f" {changed[2]} " * 9, False)),
    )
    kept = DocumentExcerpt(
        source_file="data/web/part-00001.jsonl.zst",
        line=17,
        id="",
        pieces=((f"\u2026 {changed[0]} ", False), ("USD 55, before taxes", True), (f" {changed[2]} " * 9, False)),
    )
    return NearDuplicateSummary(
        action="report",
        similarity=0.8,
        words=5,
        within="dataset",
        recall=0.996,
        documents=documents,
        left_out=documents // 8,
        text_bytes=4_564_233_674,
        text_bytes_left_out=402_118_220,
        by_source=(
            SourceLeftOut(path="data/web/*.jsonl.zst", documents=documents - 40_000, left_out=documents // 8 - 12),
            SourceLeftOut(path="hf://datasets/example/books", documents=40_000, left_out=12),
        ),
        groups=histogram({1: 60_100, 2: 9_800, 3: 1_204, 4: 300, 7: 12, 12: 1}),
        by_similarity={80 + at: 900 + 37 * at * at for at in range(20)} | {100: 61_020},
        pairs=tuple(
            NearDuplicatePair(similarity=share, left_out=left_out, kept=kept)
            for share in (0.8, 0.8125, 0.84, 0.86, 0.883, 0.9, 0.92, 0.94, 0.97, 1.0)
        ),
    )


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
    indexed = text - 48_112_004
    kept = Flow(into=indexed - removed, out=indexed - removed)
    rejected = {"empty": empty, "too long": too_long, "not UTF-8": not_utf8}
    flows = {
        "index": {
            "documents": Flow(into=documents, out=kept_documents, lost=rejected),
            "text_bytes": Flow(into=text, out=indexed, lost={"rejected": text - indexed}),
        },
        "find_ranges": {"text_bytes": Flow(into=indexed, out=indexed - removed, lost={"duplicates": removed})},
        "writeback": {"documents": Flow(into=kept_documents, out=kept_documents), "text_bytes": kept},
        "tokenize": {
            "documents": Flow(into=kept_documents, out=special, lost={"emptied by deduplication": emptied}),
            "text_bytes": kept,
            "tokens": Flow(into=tokens, out=tokens),
        },
        "scatter": {"tokens": Flow(into=tokens, out=slots, gained={"end of text": special, "padding": pad})},
        "gather": {"tokens": Flow(into=slots, out=slots)},
        "export": {"tokens": Flow(into=slots, out=slots)},
    }
    timed_bytes = {"download": 1_402_118_220, **dict.fromkeys(("index", "match", "find_ranges", "writeback"), text)}
    timed_bytes |= {"tokenize": text - removed, **dict.fromkeys(("scatter", "gather", "export"), 4 * slots)}
    timed_bytes["upload"] = 8 * slots
    return BuildSummary(
        dataset="web-en",
        plan=PLAN,
        code_version="0.1.0",
        configuration=CONFIGURATION,
        source_files=48,
        source_bytes=1_402_118_220,
        titles={name: step.title for name, step in STEPS.items()},
        stages=finished_stages(timed_bytes, flows),
        near_duplicates=near_duplicates(kept_documents),
        duplicates=DuplicateSummary(
            mode="remove",
            minimum_bytes=500,
            ranges=ranges,
            text_bytes=indexed,
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
                {-1: 0}
                | powers(4, "900 3300 9800 26400 71000 164000 274000 301000 218000 108000 41200 12100 3200 700 64")
            ),
            text_bytes_after=histogram(
                {-1: emptied}
                | powers(4, "1400 4100 12000 31000 80000 174000 276000 291000 204000 99000 37500 10800 2900 610 50")
            ),
            tokens=histogram(
                powers(1, "700 2600 8000 22800 62000 144000 250000 292000 224000 118000 46000 14000 3900 900 110 4")
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
        decoded=DecodedSummary(exactly=1_229_000, normalized=940, unproven=13),
        encoded=EncodedSummary(engines=("gigatoken",), documents=1_229_953, by_reference=41, special=7),
        checks=(
            *(
                BalanceCheck(name=name, left=((left, content),), right=((right, content),))
                for name, left, right, content in (
                    ("writeback: text", "indexed", "read again", "3dd45f29186bf6d4f691a10679b60faf"),
                    ("manifest: kept text", "written back", "encoded", "90c1f5a2be0177d3f15e5d0c9b3a44e8"),
                    ("scatter: content", "tokenized + repeated", "in contexts", "63b5802dd7918336b079036015b22c4a"),
                    ("manifest: contexts content", "scattered", "gathered", "5d1c9e0f77ab332100f1a2b3c4d5e6f7"),
                    ("manifest: webdataset content", "gathered", "exported", "b1946ac92492d2347c6235b4d2611184"),
                )
            ),
            BalanceCheck(
                name="index: documents",
                left=(("in", documents),),
                right=(("out", kept_documents), ("empty", empty), ("too long", too_long), ("not UTF-8", not_utf8)),
            ),
            BalanceCheck(
                name="find_ranges: text bytes",
                left=(("in", indexed),),
                right=(("out", indexed - removed), ("removed", removed)),
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
