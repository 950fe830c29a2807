"""Context: a shard answers with digests of the text around its shared anchors, in one pass (dedup step 3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage, whole
from corpusmill.ledger import Outcome
from corpusmill.stages.reference import index_step, place_of, text_step

if TYPE_CHECKING:
    from corpusmill.dedup.exchange import TextFile
    from corpusmill.dedup.sections import Sections
    from corpusmill.engine.build import Build, StepView

PERIODS = "periods"  # for windows that equal one a period earlier, those earlier ones; only where windows are listed


def sections_of(build: Build, stage: str, unit: str) -> Sections:
    """A finished step's files of sections, checked as they are read."""
    from corpusmill.dedup.sections import Sections

    blocks = build.blocks(stage, unit)
    return Sections(blocks.folder, blocks.open)


def text_of(build: Build, shard: str) -> TextFile:
    """A shard's text for one sequential pass; every block is checked before it is read."""
    from corpusmill.dedup.exchange import TextFile
    from corpusmill.documents.text_shard import TEXT_FILE

    blocks = build.blocks(*text_step(build, shard))
    return TextFile(blocks.folder / TEXT_FILE, lambda first, last: blocks.open(TEXT_FILE, first, last))


def windows_settings(build: Build) -> dict[str, Any]:
    """The settings that decide whether windows are listed (DatasetConfig.wants_windows)."""
    keep = build.config.dedup.keep
    listed = build.config.wants_windows and keep == "first_window"
    return {"keep": keep, **({"windows": True} if listed else {})}


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    anchors = [index_step(build, shard)] if build.config.wants_windows else []
    return [text_step(build, shard), *anchors, *whole(build, "shared")]


def settings(build: Build, shard: str) -> dict[str, Any]:
    """Besides the requests: the shard's number among all shards, and the length of a window."""
    return {"minimum_bytes": build.config.dedup.minimum_bytes, "shard": place_of(build, shard)}


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    from corpusmill.dedup.exchange import answer_contexts
    from corpusmill.dedup.slices import slicing_of

    places = [sections_of(build, "shared", partition) for partition in build.units("shared")]
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    text = text_of(build, shard)
    counts = answer_contexts(text, places, build.settings["shard"], slicing_of(minimum_bytes), folder)
    if build.config.wants_windows:
        _write_periods(build, shard, minimum_bytes, folder)
    return Outcome(counts={**counts, "bytes_read": text.size_bytes()})


def _write_periods(build: Build, shard: str, minimum_bytes: int, folder: Path) -> None:
    from corpusmill.dedup.anchors import open_anchors
    from corpusmill.dedup.exchange import windows_before
    from corpusmill.dedup.ranges import write_ranges
    from corpusmill.documents.text_shard import open_text_shard

    repeats = open_anchors(build.folder(*index_step(build, shard))).repeats
    text = open_text_shard(build.folder(*text_step(build, shard))).text
    write_ranges(folder / PERIODS, windows_before(text, repeats, minimum_bytes))


def _recount(_build: Build, _shard: str, folder: Path) -> Recount:
    from corpusmill.dedup.exchange import DIGESTS, HASHES, WINDOW_DIGESTS
    from corpusmill.stages.recounting import section_rows

    rows = {"contexts": (DIGESTS, 16), "slices": (HASHES, 4), "windows": (WINDOW_DIGESTS, 24)}
    return Recount({count: section_rows(folder, *file) for count, file in rows.items()})


STAGE = Stage(
    "context",
    version=1,
    after=("shared",),
    per_shard=True,
    group="find_ranges",
    units_of="anchor",
    inputs=_inputs,
    settings=settings,
    run=_run,
    recount=_recount,
    reclaimed=("*",),
    read_until="settle",
)
