"""Anchor: sample each document's k-grams, so that equal stretches of text share an anchor (dedup step 1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Outcome
from corpusmill.stages.index import require_few_rejected, text_stage

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


WINDOWS_MASK = 1023  # the low bits of an anchor's row: windows - 1 (dedup/__init__.py)


def _units(build: Build) -> list[str]:
    wanted = build.config.dedup.mode != "none" and build.config.index.method == "anchors"
    return build.units("index") if wanted else []


def _settings(build: Build, _shard: str) -> dict[str, Any]:
    return {"minimum_bytes": build.config.dedup.minimum_bytes}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    from corpusmill.dedup.anchors import write_anchors
    from corpusmill.documents.text_shard import open_text_shard

    text = open_text_shard(build.folder(text_stage(build, shard), shard))
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    counts = write_anchors(text.text, text.offsets, minimum_bytes, folder)
    return Outcome(counts={"bytes_read": len(text.text), **counts})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    import numpy as np

    from corpusmill.dedup.anchors import open_anchors
    from corpusmill.stages.recounting import BLOCK

    anchors = open_anchors(folder)
    repeated = int((anchors.repeats[:, 1] - anchors.repeats[:, 0]).sum())
    owned = 0
    for at in range(0, len(anchors.rows), BLOCK):
        rows = anchors.rows[at : at + BLOCK, 1]
        owned += int((rows & np.uint32(WINDOWS_MASK)).sum()) + len(rows)
    counts = {"anchors": len(anchors.rows), "repeats": len(anchors.repeats), "repeated_windows": repeated}
    return Recount({**counts, "windows": owned + repeated})


STAGE = Stage(
    "anchor",
    version=3,
    after=("decontaminate",),
    per_shard=True,
    group="find_ranges",
    units=_units,
    inputs=lambda build, shard: [(text_stage(build, shard), shard)],
    settings=_settings,
    run=_run,
    recount=_recount,
    gate=require_few_rejected,
)
