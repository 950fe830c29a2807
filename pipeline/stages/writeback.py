"""Writeback: writes the deduplicated documents in their original files' format, a separate deliverable."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.content import NOTHING, ContentSum
from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.sources.copies import PARQUET, count_traffic, open_lines, open_table
from corpusmill.stages import download
from corpusmill.stages.annotating import annotates_hits, expected_annotations, hits_column, hits_of, ranges_of
from corpusmill.stages.index import final_stage, text_flow
from corpusmill.stages.parts import lines_before_settings
from corpusmill.stages.union import cuts_stage
from corpusmill.storage import Traffic

if TYPE_CHECKING:
    from corpusmill.dedup.annotations import Annotation
    from corpusmill.dedup.writeback import WriteBackOptions
    from corpusmill.engine.build import Build, StepView
    from corpusmill.report.facts import Flow
    from corpusmill.stages.annotating import Hits

FOLDER = "documents"


def _units(build: Build) -> list[str]:
    return build.units("union") if build.config.dedup.writeback else []


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    hits = ["decontaminate"] if annotates_hits(build) else []
    return [
        (stage, shard) for stage in dict.fromkeys(["download", final_stage(build, shard), cuts_stage(build), *hits])
    ]


def _settings(build: Build, shard: str) -> dict[str, Any]:
    dedup = build.config.dedup
    annotating = {"annotate_key": dedup.annotate_key, "replace_existing": dedup.replace_existing}
    own: dict[str, Any] = annotating if dedup.mode == "annotate" else {"drop_empty": dedup.drop_empty}
    if annotates_hits(build):
        assert build.config.decontamination is not None
        own |= {"hits_key": build.config.decontamination.annotate_key, **lines_before_settings(build, shard)}
    if dedup.mode == "annotate" and build.plan.references:
        own["against"] = True
    tables = any(file.name.endswith(PARQUET) for file in build.plan.shards[int(shard)])
    libraries = versions_of("zstandard", "zlib", "orjson", "msgspec", *(["pyarrow"] if tables else []))
    return {"mode": dedup.mode, "text_field": build.config.source.text_field, "libraries": libraries, **own}


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.dedup.writeback import write_back_file
    from corpusmill.documents.compression import compression_of, open_compressed
    from corpusmill.documents.text_shard import open_text_shard

    options = _options(build)
    traffic = Traffic()
    text = open_text_shard(build.folder(final_stage(build, shard), shard))
    ranges = ranges_of(build, shard, text)
    hits = hits_of(build, shard, text, ranges)
    totals: Counter[str] = Counter()
    content = {"text_content": NOTHING, "kept_content": NOTHING, "noted_content": NOTHING}
    for copy, source in zip(download.local_copies(build, shard, traffic), text.sources, strict=True):
        path = folder / FOLDER / copy.name
        path.parent.mkdir(parents=True, exist_ok=True)
        indexed = text.indexed(source)
        first, last = np.searchsorted(ranges[:, 0], indexed.bounds[[0, -1]])
        edit: dict[str, Any] = {
            "indexed": indexed,
            "ranges": ranges[first:last],
            "options": options,
            "annotations": _annotations(build, hits, indexed.first_document, table=copy.is_parquet),
            "unit": int(shard),
        }
        with path.open("xb") as file:
            if copy.is_parquet:
                from corpusmill.dedup.writeback_parquet import write_back_table  # loads pyarrow

                row_groups = copy.file.part.row_groups if copy.file.part else None
                with open_table(copy) as table:
                    counts = write_back_table(table, file, row_groups=row_groups, **edit)
            else:
                with open_lines(copy) as lines, open_compressed(file, compression_of(copy.name)) as sink:
                    counts = write_back_file(lines, sink, **edit)
        for field in fields(counts):
            (content if field.name in content else totals)[field.name] += getattr(counts, field.name)
    if not _annotating(build):
        del content["noted_content"]
    else:
        content["told_content"] = expected_annotations(build, shard, text)
    return Outcome(
        counts={**totals, "bytes_read": len(text.text)},
        details={name: str(part) for name, part in content.items()},
        traffic=count_traffic(traffic),
    )


def _annotating(build: Build) -> bool:
    return build.config.dedup.mode == "annotate" or annotates_hits(build)


def _annotations(build: Build, hits: Hits, first_document: int, *, table: bool) -> list[Annotation]:
    """The annotations, besides ranges, of a file's documents, the first of which is `first_document`."""
    from corpusmill.dedup.annotations import Annotation

    if not annotates_hits(build):
        return []
    assert build.config.decontamination is not None
    key, column = build.config.decontamination.annotate_key, hits_column() if table else None
    return [Annotation(key, lambda document: hits.get(first_document + document, []), column=column)]


def _options(build: Build) -> WriteBackOptions:
    from corpusmill.dedup.writeback import WriteBackOptions

    dedup = build.config.dedup
    assert dedup.mode != "none"
    return WriteBackOptions(
        mode=dedup.mode,
        text_field=build.config.source.text_field,
        annotate_key=dedup.annotate_key,
        replace_existing=dedup.replace_existing,
        drop_empty=dedup.drop_empty,
    )


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
        *([_noted(receipt)] if _annotating(build) else []),
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
    from corpusmill.report.facts import Flow

    documents, out = build.total("writeback", "documents_in"), build.total("writeback", "documents_out")
    lost = {"emptied": documents - out} if documents > out else {}
    text = text_flow(build, build.total("writeback", "text_bytes_out"))
    return {"documents": Flow(into=documents, out=out, lost=lost), "text_bytes": text}


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    names = [file.name for file in build.plan.shards[int(unit)]]
    return Recount({"documents_out": sum(_number_of_lines(folder / FOLDER / name) for name in names)})


def _number_of_lines(path: Path) -> int:
    """Lines of a file, decompressed; the last one needs no newline."""
    from corpusmill.documents.compression import open_decompressed
    from corpusmill.documents.parquet import open_parquet
    from corpusmill.stages.recounting import BLOCK

    if path.name.endswith(PARQUET):
        with path.open("rb") as table:
            return int(open_parquet(table, str(path)).metadata.num_rows)
    lines, last = 0, b"\n"
    with path.open("rb") as raw, open_decompressed(raw, str(path)) as stream:
        while block := stream.read(BLOCK):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


STAGE = Stage(
    "writeback",
    version=6,
    after=("refine",),
    per_shard=True,
    on_trunk=False,
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    stores=True,
    recount=_recount,
    flows=_flows,
    checks=_checks,
    delivers=True,
)
