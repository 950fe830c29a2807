"""Decontaminate: search a shard's documents for benchmark items, and remove them before the search for repeats.

Because dropped documents take no part in deduplication, the copy that dedup keeps is never dropped after its repeats
were removed. `action: cut` removes only the passages. `annotate` and `report` leave the text unchanged; with
`annotate`, writeback lists the items in each document (annotating.py).

    hits.jsonl      a line for each item of each place, in order of documents
    hit_documents   u64 each: the ordinal of each line's document; with `annotate` alone
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from corpusmill.decontamination.stages.benchmarks import UNIT
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.parts import FilePlace, PlacedSettings, lines_before, places_in, shard_sources
from corpusmill.sources.stages.index import filtered_stage, require_few_rejected, text_total
from corpusmill.sources.stages.subset import account_of_subset, checks_of_subset, flows_of_subset, recount_subset

with lazily:
    import numpy as np
    import orjson

    from corpusmill.decontamination import decide, search, seeds
    from corpusmill.documents import text_shard, text_shard_subset
    from corpusmill.kernels import mapping, slices
    from corpusmill.report import content


if TYPE_CHECKING:
    from corpusmill.decontamination.search import Hit, Searcher
    from corpusmill.documents.text_shard import DocumentStrings, TextShard
    from corpusmill.engine.build import Build
    from corpusmill.report.content import ContaminationSummary, HitExample


HITS, HIT_DOCUMENTS = "hits.jsonl", "hit_documents"
SEARCHED_BYTES = 32 << 20
MOST_MET, BORDERLINE = 20, 50
EXCERPT_BYTES = 1000
CONTAMINATED = "contaminated"  # why a line of a source file is not a document


def _changing(build: Build) -> bool:
    return build.config.decontamination is not None and build.config.decontamination.changes_text()


class Settings(PlacedSettings, frozen=True, kw_only=True):
    """When a document holds an item, and what happens to it."""

    threshold: str
    action: Literal["remove", "cut", "annotate", "report"]


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [(filtered_stage(build, shard), shard)], "benchmarks": [("benchmarks", UNIT)]}


def _identity(build: Build, shard: str) -> Settings:
    wanted = build.config.decontamination
    assert wanted is not None
    before = lines_before(build, shard) or UNSET
    return Settings(threshold=wanted.threshold, action=wanted.action, lines_before=before)


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    text = text_shard.open_text_shard(inputs["text"].folder())
    benchmarks = inputs["benchmarks"].folder()
    searcher = search.Searcher(seeds.open_seeds(benchmarks), decide.threshold_of(settings.threshold))
    entries = search.entries_by_sequence(seeds.read_entries(benchmarks))
    ids = text.document_ids()
    place = places_in(inputs.source.files, text, settings.lines_before)
    passages: dict[int, list[tuple[int, int]]] = {}
    by_benchmark: Counter[str] = Counter()
    documents: list[int] = []
    searched = marked = 0
    with (folder / HITS).open("wb") as rows:
        for in_batch, hits in _hits(text, searcher):
            searched += in_batch
            for hit in hits:
                passages.setdefault(hit.text, []).append((hit.begin, hit.end))
                about = _about(text, ids, hit, searcher, place)
                covered, size = about["covered"], len(about["passage"].encode())
                marked += bool(covered) and covered[0][0] == 0 and covered[-1][1] == size  # it begins and ends with it
                for entry in entries[hit.sequence]:
                    by_benchmark[entry.benchmark] += 1
                    documents.append(hit.text)
                    row = {"benchmark": entry.benchmark, "item": entry.item, "part": entry.part, **about}
                    rows.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    if settings.action == "annotate":
        (folder / HIT_DOCUMENTS).write_bytes(np.array(documents, "<u8").data)
    counts: dict[str, int] = {}
    details: dict[str, Any] = {}
    if settings.action in {"remove", "cut"}:
        counts, details = _write_changed(text, inputs.unit, passages, folder, cut=settings.action == "cut")
    counts |= {
        "documents_searched": searched,
        "documents_hit": len(passages),
        "hits": by_benchmark.total(),
        "passages": sum(map(len, passages.values())),
        "passages_whole": marked,
        "bytes_read": len(text.text),
    }
    return Outcome(counts=counts, details={"hits": dict(sorted(by_benchmark.items())), **details})


def _hits(text: TextShard, searcher: Searcher) -> Iterator[tuple[int, list[Hit]]]:
    """(documents searched, their hits), in batches whose memory does not grow with the shard."""
    bounds = text.bounds(0, text.documents)
    advance.begin(len(text.text))
    for first, last in slices.runs(bounds[1:], SEARCHED_BYTES):
        hits = searcher.search(text.text, bounds[first:last] + np.uint64(1), bounds[first + 1 : last + 1])
        yield last - first, [replace(hit, text=first + hit.text) for hit in hits]
        mapping.release_pages(text.text)
        advance.note(int(bounds[last] - bounds[first]))


def _about(
    text: TextShard, ids: DocumentStrings, hit: Hit, searcher: Searcher, place: Callable[[int], FilePlace]
) -> dict[str, Any]:
    """The row of a hit in HITS; `covered`: the bytes of its passage that the item shares."""
    source, line = place(hit.text)
    passage = text.document_bytes(hit.text)[hit.begin : hit.end]
    return {
        "file": source,
        "line": line + 1,
        "id": ids[hit.text],
        "begin": hit.begin,
        "end": hit.end,
        "share": hit.share,
        "passage": passage.decode(),
        "covered": searcher.covered(hit, passage),
    }


def _write_changed(
    text: TextShard, shard: str, passages: dict[int, list[tuple[int, int]]], folder: Path, *, cut: bool
) -> tuple[dict[str, int], dict[str, Any]]:
    """Write the text without the documents that have passages, or without the passages.

    Returns counts, and content sums of documents before and after, weighted by their places in the shard before.
    """

    hit = np.array(sorted(passages), np.int64)
    with text_shard_subset.SubsetWriter(folder, text) as subset:
        for first, last in slices.runs(text.bounds(0, text.documents)[1:], SEARCHED_BYTES):
            own = hit[np.searchsorted(hit, first) : np.searchsorted(hit, last)].tolist()
            if cut:
                texts = {ordinal: _without(text.document_bytes(ordinal), passages[ordinal]) for ordinal in own}
                subset.append(first, last, {}, texts)
            else:
                subset.append(first, last, dict.fromkeys(own, CONTAMINATED), {})
    removed = {
        "documents_removed": 0 if cut else len(hit),
        "text_bytes_removed": sum(
            _covered(passages[ordinal]) if cut else len(text.document_bytes(ordinal)) for ordinal in passages
        ),
    }
    counts, details = account_of_subset(text, shard, folder, hit[:0] if cut else hit, {"contaminated": hit})
    return {**removed, **counts}, details


def _without(text: bytes, passages: list[tuple[int, int]]) -> bytes:
    """A text without its [begin, end) passages, which may overlap."""
    rest, at = [], 0
    for begin, end in sorted(passages):
        rest.append(text[at:begin])  # empty where they overlap
        at = max(at, end)
    return b"".join([*rest, text[at:]])


def _covered(passages: list[tuple[int, int]]) -> int:
    """Bytes of [begin, end) passages, which may overlap."""
    covered = at = 0
    for begin, end in sorted(passages):
        covered += max(end - max(begin, at), 0)
        at = max(at, end)
    return covered


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    indexed = build.receipt(filtered_stage(build, shard), shard)
    counts, documents = receipt.counts, indexed.counts["documents_out"]
    searched = [
        Check("searched", (("indexed", documents),), (("documents", counts["documents_searched"]),)),
        Check("passages", (("met", counts["passages"]),), (("begin and end with the item", counts["passages_whole"]),)),
    ]
    if not _changing(build):
        return searched
    texts = checks_of_subset("decontaminated text", "indexed", indexed, receipt, "contaminated", "removed")
    return [*searched, *texts]


def _flows(build: Build) -> dict[str, Flow]:
    return flows_of_subset(build, "decontaminate", filtered_stage, CONTAMINATED) if _changing(build) else {}


def removal_in_words(build: Build) -> str:
    """Markdown: how many documents hold items of which benchmarks and would be removed or cut; "" if none would."""
    if not _changing(build):
        return ""
    hits: Counter[str] = Counter()
    for receipt in build.receipts("decontaminate"):
        hits.update(receipt.details["hits"])
    documents = text_total(build, "documents_out", filtered_stage)
    hit, removed = (build.total("decontaminate", name) for name in ("documents_hit", "documents_removed"))
    fate = "be removed" if removed else f"lose {build.total('decontaminate', 'text_bytes_removed'):,} bytes of text"
    rows = [
        f"**{hit:,} of {documents:,} documents contain benchmark items and would {fate}.**",
        "",
        "| benchmark | hits |",
        "|---|--:|",
        *(f"| {name} | {count:,} |" for name, count in sorted(hits.items())),
    ]
    return "\n".join(rows)


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    with (folder / HITS).open("rb") as rows:
        counts = {"hits": sum(1 for _ in rows)}
    return recount_subset(unit, folder, counts) if _changing(build) else Recount(counts)


def contamination(build: Build) -> ContaminationSummary | None:
    """What decontamination found in all shards, for the report; None without it."""
    wanted = build.config.decontamination
    if wanted is None:
        return None
    hits: Counter[tuple[str, str]] = Counter()
    rows = _rows(build, hits)
    least = heapq.nsmallest(BORDERLINE, rows, key=lambda row: (row["share"], row["file"], row["line"], row["begin"]))
    benchmarks = [
        content.BenchmarkFound(
            **about,
            items_met=sum(benchmark == about["name"] for benchmark, _ in hits),
            hits=sum(count for (benchmark, _), count in hits.items() if benchmark == about["name"]),
        )
        for about in build.receipt("benchmarks", UNIT).details["benchmarks"]
    ]
    most = sorted(hits.items(), key=lambda hit: (-hit[1], hit[0]))[:MOST_MET]
    return content.ContaminationSummary(
        action=wanted.action,
        documents=text_total(build, "documents_out", filtered_stage),
        documents_hit=build.total("decontaminate", "documents_hit"),
        benchmarks=tuple(benchmarks),
        most_met=tuple(content.ItemFound(benchmark=of, item=item, hits=count) for (of, item), count in most),
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
    return content.HitExample(
        benchmark=row["benchmark"],
        item=row["item"],
        source_file=row["file"],
        line=row["line"],
        id=row["id"],
        share=row["share"],
        pieces=shown,
    )


STAGE = Stage(
    "decontaminate",
    version=4,
    after=("filter", "decided", "benchmarks"),
    per_shard=True,
    wanted=lambda config: config.decontamination is not None,
    units_of="index",
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    gate=require_few_rejected,
    schedule=Schedule(approval=removal_in_words),
    shown=Shown(flows=_flows),
)
