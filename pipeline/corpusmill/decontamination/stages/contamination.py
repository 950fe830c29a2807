"""The hits of all shards, for the report."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from corpusmill.decontamination.stages.benchmarks import UNIT
from corpusmill.decontamination.stages.decontaminate import HITS
from corpusmill.engine.build import Build
from corpusmill.report.content import BenchmarkFound, ContaminationSummary, HitExample, ItemFound
from corpusmill.sources.stages.index import filtered_stage, text_total

MOST_MET, BORDERLINE = 20, 50
EXCERPT_BYTES = 1000


def contamination(build: Build) -> ContaminationSummary | None:
    """What decontamination found; None without it."""
    wanted = build.config.decontamination
    if wanted is None:
        return None
    hits: Counter[tuple[str, str]] = Counter()
    rows = _rows(build, hits)
    least = heapq.nsmallest(BORDERLINE, rows, key=lambda row: (row["share"], row["file"], row["line"], row["begin"]))
    benchmarks = [
        BenchmarkFound(
            **about,
            items_met=sum(benchmark == about["name"] for benchmark, _ in hits),
            hits=sum(count for (benchmark, _), count in hits.items() if benchmark == about["name"]),
        )
        for about in build.receipt("benchmarks", UNIT).details["benchmarks"]
    ]
    most = sorted(hits.items(), key=lambda hit: (-hit[1], hit[0]))[:MOST_MET]
    return ContaminationSummary(
        action=wanted.action,
        documents=text_total(build, "documents_out", filtered_stage),
        documents_hit=build.total("decontaminate", "documents_hit"),
        benchmarks=tuple(benchmarks),
        most_met=tuple(ItemFound(benchmark=of, item=item, hits=count) for (of, item), count in most),
        borderline=tuple(_example(row) for row in least),
    )


def _rows(build: Build, hits: Counter[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Every hit; counts them in `hits`."""
    for shard in build.units("decontaminate"):
        with build.opened("decontaminate", shard) as folder, (folder / HITS).open("rb") as lines:
            for row in map(orjson.loads, lines):
                hits[row["benchmark"], row["item"]] += 1
                yield row


def _example(row: dict[str, Any]) -> HitExample:
    passage = row["passage"].encode()
    pieces, at = [], 0
    for begin, end in (*row["covered"], (len(passage), len(passage))):
        stop = min(end, EXCERPT_BYTES)
        pieces += [(passage[at : min(begin, stop)], False), (passage[begin:stop], True)]
        at = stop
    shown = tuple((piece.decode(errors="ignore"), marked) for piece, marked in pieces if piece)
    return HitExample(
        benchmark=row["benchmark"],
        item=row["item"],
        source_file=row["file"],
        line=row["line"],
        id=row["id"],
        share=row["share"],
        pieces=shown,
    )
