"""Writeback: writes the deduplicated documents in their original files' format, a separate deliverable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from corpusmill.dedup.stages.annotating import (
    Settings,
    annotated_key,
    annotation_keys,
    expected_annotations,
    hits_column,
    hits_of,
    near_column,
    near_of,
    ranges_of,
)
from corpusmill.dedup.stages.union import cuts_stage
from corpusmill.engine.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.kernels import advance
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.copies import compression_of, count_traffic, libraries_of, open_lines, open_table
from corpusmill.sources.parts import indexed_source, lines_before, shard_sources
from corpusmill.sources.stages.download import local_copies
from corpusmill.sources.stages.index import final_stage, text_flow
from corpusmill.storage import Traffic

with lazily:
    import numpy as np

    from corpusmill.dedup import annotations as dedup_annotations
    from corpusmill.dedup import writeback, writeback_parquet
    from corpusmill.documents import compression, reading, text_shard
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.dedup.annotations import Annotation
    from corpusmill.dedup.stages.annotating import Hits
    from corpusmill.engine.build import Build

FOLDER = "documents"


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "downloaded": [("download", shard)],
        "text": [(final_stage(build, shard), shard)],
        "cuts": [(cuts_stage(build), shard)],
        "hits": [("decontaminate", shard)] if annotated_key(build.config.decontamination) else [],
        "near": [("near_duplicates", shard)] if annotated_key(build.config.near_duplicates) else [],
    }


def _identity(build: Build, shard: str) -> Settings:
    dedup = build.config.dedup
    assert dedup.mode != "none"
    annotating = dedup.mode == "annotate"
    hits_key, near_key = map(annotated_key, (build.config.decontamination, build.config.near_duplicates))
    libraries = libraries_of(file.name for file in build.plan.shards[int(shard)])
    return Settings(
        mode=dedup.mode,
        text_field=build.config.source.text_field,
        libraries=versions_of("zstandard", "zlib", "orjson", "msgspec", *libraries),
        annotate_key=dedup.annotate_key if annotating else UNSET,
        replace_existing=dedup.replace_existing if annotating else UNSET,
        drop_empty=UNSET if annotating else dedup.drop_empty,
        hits_key=hits_key,
        near_key=near_key,
        near_references=bool(build.units("reference_sign")) or UNSET if near_key else UNSET,
        lines_before=lines_before(build, shard) or UNSET if hits_key or near_key else UNSET,
        against=True if annotating and build.plan.references else UNSET,
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    options = writeback.WriteBackOptions(
        mode=settings.mode,
        text_field=settings.text_field,
        annotate_key=settings.annotate_key or "",
        replace_existing=bool(settings.replace_existing),
        drop_empty=bool(settings.drop_empty),
    )
    traffic = Traffic()
    text = text_shard.open_text_shard(inputs["text"].folder())
    ranges = ranges_of(inputs, settings, text)
    hits, near = hits_of(inputs, settings, text, ranges), near_of(inputs, settings)
    totals: Counter[str] = Counter()
    advance.begin(sum(file.size_bytes for file in inputs.source.files))
    content = {"text_content": NOTHING, "kept_content": NOTHING, "noted_content": NOTHING}
    copies = local_copies(inputs["downloaded"], inputs.source, traffic)
    for copy, source in zip(copies, text.sources, strict=True):
        path = folder / FOLDER / copy.name
        path.parent.mkdir(parents=True, exist_ok=True)
        indexed = indexed_source(inputs.source, text, source)
        first, last = np.searchsorted(ranges[:, 0], indexed.bounds[[0, -1]])
        edit: dict[str, Any] = {
            "indexed": indexed,
            "ranges": ranges[first:last],
            "options": options,
            "annotations": _annotations(settings, hits, near, indexed.first_document, table=copy.is_table),
            "unit": int(inputs.unit),
        }
        with path.open("xb") as file:
            if copy.is_table:
                with open_table(copy) as table:
                    counts = writeback_parquet.write_back_table(table, file, row_groups=copy.row_groups, **edit)
            else:
                with (
                    open_lines(copy) as lines,
                    compression.open_compressed(file, compression_of(copy)) as sink,
                ):
                    counts = writeback.write_back_file(lines, sink, **edit)
        for field in fields(counts):
            (content if field.name in content else totals)[field.name] += getattr(counts, field.name)
    if settings.mode != "annotate" and not ("hits" in inputs or "near" in inputs):
        del content["noted_content"]
    else:
        content["told_content"] = expected_annotations(inputs, settings, text)
    return Outcome(
        counts={**totals, "bytes_read": len(text.text)},
        details={name: str(part) for name, part in content.items()},
        traffic=count_traffic(traffic),
    )


def _annotations(settings: Settings, hits: Hits, near: Hits, first_document: int, *, table: bool) -> list[Annotation]:
    """The annotations, besides ranges, of a file's documents, the first of which is `first_document`."""

    def annotation(key: str, values: Hits, column: Callable[[], Any]) -> Annotation:
        def of_document(document: int) -> list[Any]:
            return values.get(first_document + document, [])

        return dedup_annotations.Annotation(key, of_document, column=column() if table else None)

    def of_near() -> Any:
        return near_column(references=bool(settings.near_references))

    found = [(settings.hits_key, hits, hits_column), (settings.near_key, near, of_near)]
    return [annotation(key, values, column) for key, values, column in found if key]


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    indexed = build.receipt(final_stage(build, shard), shard)
    counts, index = receipt.counts, indexed.counts
    dedup = build.config.dedup
    removed = build.receipt(cuts_stage(build), shard).counts["removed_bytes"] if dedup.mode == "remove" else 0
    as_indexed = (("written as indexed", counts["documents_intact"]), ("cut", counts["documents_changed"]))
    same = Check("lines", (("documents indexed", index["documents_out"]),), as_indexed)
    dropped = (("dropped, emptied", counts["documents_empty"]),) if dedup.drop_empty else ()
    return [
        Check(
            "text",
            (("indexed", ContentSum.parse(indexed.details["content"])),),
            (("read again", ContentSum.parse(receipt.details["text_content"])),),
        ),
        *([same] if dedup.mode == "remove" else []),
        *([_noted(receipt)] if annotation_keys(build.config) else []),
        Check("documents", (("indexed", index["documents_out"]),), (("written", counts["documents_out"]), *dropped)),
        Check(
            "text bytes",
            (("indexed", index["text_bytes_out"]),),
            (("written", counts["text_bytes_out"]), ("removed", removed)),
        ),
    ]


def _noted(receipt: Receipt) -> Check:
    told, noted = (ContentSum.parse(receipt.details[f"{name}_content"]) for name in ("told", "noted"))
    return Check("annotations", (("ranges and hits", told),), (("read again", noted),))


def _flows(build: Build) -> dict[str, Flow]:
    documents, out = build.total("writeback", "documents_in"), build.total("writeback", "documents_out")
    lost = {"emptied": documents - out} if documents > out else {}
    text = text_flow(build, build.total("writeback", "text_bytes_out"))
    return {"documents": Flow(into=documents, out=out, lost=lost), "text_bytes": text}


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    names = [file.name for file in build.plan.shards[int(unit)]]
    return Recount({"documents_out": sum(_number_of_lines(folder / FOLDER / name) for name in names)})


def _number_of_lines(path: Path) -> int:
    """Lines of a file, decompressed; the last one needs no newline."""
    if compression.is_table(path.name):
        with path.open("rb") as table:
            return reading.count_rows(table, str(path))
    lines, last = 0, b"\n"
    with path.open("rb") as raw, compression.open_decompressed(raw, str(path)) as stream:
        while block := stream.read(recounting.BLOCK):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


STAGE = Stage(
    "writeback",
    version=6,
    after=("refine",),
    per_shard=True,
    wanted=lambda config: bool(config.dedup.writeback),
    units_of="union",
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    delivers=True,
    schedule=Schedule(stores=True),
    shown=Shown(on_trunk=False, flows=_flows),
)
