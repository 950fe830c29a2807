"""Anchor: sample each document's k-grams, so that equal stretches of text share an anchor (dedup step 1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.dedup.stages.reference import text_step
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.sources.stages.index import require_few_rejected

with lazily:
    import numpy as np

    from corpusmill.dedup import anchors as dedup_anchors
    from corpusmill.documents import text_shard
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.engine.build import Build


WINDOWS_MASK = 1023  # the low bits of an anchor's row: windows - 1 (dedup/__init__.py)


class Settings(Identity, frozen=True, kw_only=True):
    """The length of a window."""

    minimum_bytes: int


def _identity(build: Build, _shard: str) -> Settings:
    return Settings(minimum_bytes=build.config.dedup.window_bytes)


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    text = text_shard.open_text_shard(inputs["text"].folder())
    advance.begin(len(text.text))
    counts = dedup_anchors.write_anchors(text.text, text.offsets, settings.minimum_bytes, folder)
    return Outcome(counts={"bytes_read": len(text.text), **counts})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:

    anchors = dedup_anchors.open_anchors(folder)
    repeated = int((anchors.repeats[:, 1] - anchors.repeats[:, 0]).sum())
    owned = 0
    for at in range(0, len(anchors.rows), recounting.BLOCK):
        rows = anchors.rows[at : at + recounting.BLOCK, 1]
        owned += int((rows & np.uint32(WINDOWS_MASK)).sum()) + len(rows)
    counts = {"anchors": len(anchors.rows), "repeats": len(anchors.repeats), "repeated_windows": repeated}
    return Recount({**counts, "windows": owned + repeated})


STAGE = Stage(
    "anchor",
    version=3,
    after=("decontaminate",),
    per_shard=True,
    wanted=lambda config: config.dedup.mode != "none",
    units_of="index",
    work=Work(Settings, _identity, lambda build, shard: {"text": [text_step(build, shard)]}, _run),
    recount=_recount,
    gate=require_few_rejected,
)
