"""Suffix array: writes a shard as an infini-gram index (`index.method: suffix_array`), also used to find duplicates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.stages import download
from corpusmill.stages.index import require_few_rejected, text_stage
from corpusmill.stages.parts import lines_before_settings

if TYPE_CHECKING:
    from corpusmill.engine.build import Build, StepView


def _units(build: Build) -> list[str]:
    return build.units("index") if build.config.index.method == "suffix_array" else []


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    return [("download", shard), (text_stage(build, shard), shard)]


def _settings(build: Build, shard: str) -> dict[str, Any]:
    # A text has one suffix array whichever library made it; only msgspec, which reads the lines, matters.
    source = build.config.source  # the metadata of a parquet row is JSON of its text and its id
    fields = {"text_field": source.text_field, "id_field": source.id_field}
    own = {"unigram": build.config.index.unigram, "libraries": versions_of("msgspec")}
    return {**fields, **own, **lines_before_settings(build, shard)}


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    from corpusmill.dedup.infini_gram import METADATA, METADATA_OFFSETS, append_metadata, link_text
    from corpusmill.dedup.suffix_array import write_suffix_array
    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.sources.copies import open_as_lines

    text = open_text_shard(build.folder(text_stage(build, shard), shard))
    link_text(build.folder(text_stage(build, shard), shard), folder)
    counts = write_suffix_array(text.text, folder, unigram=build.config.index.unigram)
    metadata_bytes, lines_before = 0, build.settings.get("lines_before", {})
    with (folder / METADATA).open("wb") as metadata, (folder / METADATA_OFFSETS).open("wb") as offsets:
        for copy, source in zip(download.local_copies(build, shard), text.sources, strict=True):
            with open_as_lines(copy, build.config.source) as lines:
                metadata_bytes += append_metadata(
                    lines,
                    metadata,
                    offsets,
                    indexed=text.indexed(source),
                    text_field=build.config.source.text_field,
                    path=copy.file.part.of if copy.file.part else source.path,
                    lines_before=lines_before.get(source.path, 0),
                )
    documents = (folder / METADATA_OFFSETS).stat().st_size // 8
    return Outcome(
        counts={**counts, "documents": documents, "metadata_bytes": metadata_bytes, "bytes_read": len(text.text)}
    )


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    index = build.receipt(text_stage(build, shard), shard).counts
    return [Check("documents", (("indexed", index["documents_out"]),), (("described", receipt.counts["documents"]),))]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    """Besides counts: the separators' suffixes come last, and are those of `offset`."""
    import numpy as np

    from corpusmill.dedup.infini_gram import METADATA, METADATA_OFFSETS
    from corpusmill.dedup.suffix_array import open_suffix_array
    from corpusmill.documents.text_shard import OFFSET_FILE, TEXT_FILE
    from corpusmill.stages.recounting import contradiction

    text_bytes = (folder / TEXT_FILE).stat().st_size
    suffixes = open_suffix_array(folder, text_bytes)
    offsets = np.fromfile(folder / OFFSET_FILE, "<u8")
    last = np.sort(suffixes.starts(text_bytes - len(offsets), text_bytes))
    if not np.array_equal(last, offsets.astype(np.int64)):
        raise contradiction(folder / "table", "the separators' suffixes last", last[:5].tolist())
    starts = np.fromfile(folder / METADATA_OFFSETS, "<u8")
    counts = {"suffixes": text_bytes, "pointer_bytes": suffixes.pointer_bytes, "documents": len(starts)}
    return Recount({**counts, "metadata_bytes": (folder / METADATA).stat().st_size})


STAGE = Stage(
    "suffix_array",
    version=1,
    after=("decontaminate",),
    per_shard=True,
    group="find_ranges",
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    stores=True,
    recount=_recount,
    memory=lambda config: (
        "source.shard_bytes",
        10 * int(config.source.shard_bytes),
    ),  # libdivsufsort: 8 bytes an entry, the text, its decompression
    checks=_checks,
    gate=require_few_rejected,
    delivers=True,
)
