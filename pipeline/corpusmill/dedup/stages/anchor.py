"""Anchor: sample each document's k-grams, so that equal stretches of text share an anchor (dedup step 1).

Reference index: the same of a reference's shard; every dataset that names it reads them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.dedup.stages.reference import file_of_reference, source_of, text_step, units_of
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Shown, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import RejectedDocumentsError, SourceError
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.sources.stages.index import ALLOW_MORE, rejected_reasons, require_few_rejected

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


def require_readable(build: Build) -> None:
    """SourceError for a reference without a document, RejectedDocumentsError for one with too many malformed lines.

    Nothing would be found in it, and all text would count as new.
    """
    for wanted, reference in zip(build.config.dedup.against or (), build.plan.references or (), strict=True):
        receipts = [build.receipt("reference", unit) for unit in units_of(reference)]
        lines = sum(receipt.counts["lines"] for receipt in receipts)
        rejected = sum(sum(rejected_reasons(receipt.counts).values()) for receipt in receipts)
        allowed = build.config.source.max_rejected_share
        if rejected / max(lines, 1) > allowed:
            rejects = ((receipt.unit, example) for receipt in receipts for example in receipt.details["examples"])
            examples = [
                (*file_of_reference(build, unit, example["source"]), example) for unit, example in islice(rejects, 5)
            ]
            raise RejectedDocumentsError(
                f"reference.too_many_malformed: {rejected:,} of {lines:,} lines of a reference are malformed",
                where="\n".join(
                    f"{file} line {before + example['line']}: {example['reason']}" for file, before, example in examples
                ),
                expected=f"at most {allowed:.4%} (source.max_rejected_share), with their text under the key"
                f" {source_of(build.config.source, wanted).text_field}",
                got=f"{rejected / lines:.4%} of {reference.path}",
                next_step="name the key that holds its text: dedup.against: [{path: ..., text_field: ...}];"
                f" or {ALLOW_MORE}",
            )
        if rejected == lines or not any(receipt.counts["text_bytes_out"] for receipt in receipts):
            raise SourceError(
                "reference.no_text: a reference has no text, so everything would be new",
                where=f"dedup.against: {reference.path}",
                expected="documents with text",
                got=f"{lines:,} lines, none of which has any",
                next_step="name the files that hold it, or leave the reference out",
            )


STAGE = Stage(
    "anchor",
    version=3,
    after=("near_duplicates",),
    per_shard=True,
    wanted=lambda config: config.dedup.mode != "none",
    units_of="index",
    work=Work(Settings, _identity, lambda build, shard: {"text": [text_step(build, shard)]}, _run),
    recount=_recount,
    gate=require_few_rejected,
)
REFERENCE_STAGE = replace(
    STAGE,
    name="reference_index",
    version=1,
    after=("reference",),
    per_shard=False,
    units_of="reference",
    common=True,
    gate=require_readable,
    shown=Shown(on_trunk=False),
)
