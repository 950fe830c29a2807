"""Anchor: sample each document's k-grams, so that equal stretches of text share an anchor (dedup step 1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.engine.stage import Stage
from pipeline.ledger import Outcome
from pipeline.stages.index import require_few_rejected

if TYPE_CHECKING:
    from pipeline.engine.build import Build


def _units(build: Build) -> list[str]:
    wanted = build.config.dedup.mode != "none" and build.config.index.method == "anchors"
    return build.units("index") if wanted else []


def _settings(build: Build, _shard: str) -> dict[str, Any]:
    return {"minimum_bytes": build.config.dedup.minimum_bytes}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    from pipeline.dedup.anchors import write_anchors
    from pipeline.documents.text_shard import open_text_shard

    text = open_text_shard(build.folder("index", shard))
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    counts = write_anchors(text.text, text.offsets, minimum_bytes, folder)
    return Outcome(counts={"bytes_read": len(text.text), **counts})


STAGE = Stage(
    "anchor",
    version=2,
    after=("index",),
    per_shard=True,
    group="find_ranges",
    units=_units,
    inputs=lambda _build, shard: [("index", shard)],
    settings=_settings,
    run=_run,
    gate=require_few_rejected,
)
