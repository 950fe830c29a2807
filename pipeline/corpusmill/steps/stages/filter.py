"""Filter: drops forgotten documents and those that external decisions drop, then runs the steps `before: index`.

Without such steps only shards that lose documents are rewritten; the others keep the text of index. Because dropped
documents take no part in deduplication, the copy that dedup keeps is never dropped after its repeats were removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.parts import lines_before, places_in, shard_sources
from corpusmill.sources.stages.index import filtered_stage, require_few_rejected, text_total
from corpusmill.steps.stages.applying import (
    GONE_BYTES,
    AppliedSteps,
    StepsSettings,
    account_checks,
    batch_of,
    chain_of,
    dropped_by_reason,
    recount_applied,
    rewritten_bytes,
    steps_before,
)
from corpusmill.steps.stages.copies import copies_of
from corpusmill.steps.stages.join import left_out_of

with lazily:
    import numpy as np

    from corpusmill.documents import batch, text_shard


if TYPE_CHECKING:
    from corpusmill.documents.text_shard import DocumentIds
    from corpusmill.engine.build import Build
    from corpusmill.steps import Batch

READERS = {"join": left_out_of, "copies": copies_of}


def _has_unit(build: Build, shard: str) -> bool:
    return bool(build.config.steps_before("index") or _lists(build, shard))


def _stages_of_lists(build: Build) -> list[str]:
    return [stage for stage in READERS if build.units(stage)]


def _lists(build: Build, shard: str) -> list[str]:
    """The stages that drop documents of a shard before any step is asked; the first of them gives the reason."""
    return [stage for stage in _stages_of_lists(build) if build.receipt(stage, shard).counts["left_out"]]


class Settings(StepsSettings, frozen=True, kw_only=True):
    """`lists`: see `_lists`."""

    lists: list[str] | UnsetType = UNSET


def _identity(build: Build, shard: str) -> Settings:
    return Settings(
        **steps_before(build, "index"),
        lines_before=lines_before(build, shard) or UNSET,
        lists=_lists(build, shard) or UNSET,
    )


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [("index", shard)], **{stage: [(stage, shard)] for stage in _lists(build, shard)}}


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:

    text = text_shard.open_text_shard(inputs["text"].folder())
    listed = {stage: READERS[stage](inputs[stage]) for stage in settings.lists or ()}
    place = places_in(inputs.source.files, text, settings.lines_before)
    gone = listed.get("copies", {}) | listed.get("join", {})
    applied = AppliedSteps(text, chain_of(settings, resources), place, gone=gone)

    def read(ids: DocumentIds, first: int, last: int) -> Batch:
        bounds = text.bounds(first, last - first).astype(np.int64)
        data = text.text[bounds[0] : bounds[-1]]
        return batch_of(ids, first, data, bounds - bounds[0], place, between=len(batch.SEPARATOR))

    applied.write(folder, read)
    counts, details = applied.account(inputs.unit, folder)
    return Outcome(counts={**counts, "bytes_read": len(text.text)}, details=details)


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    return account_checks("filtered text", build.receipt("index", shard), receipt)


def _flows(build: Build) -> dict[str, Flow]:
    totals = build.rollup("filter").totals
    documents, texts = (build.total("index", name) for name in ("documents_out", "text_bytes_out"))
    documents_out, texts_out = (
        text_total(build, f"{name}_out", filtered_stage) for name in ("documents", "text_bytes")
    )
    cut, added = rewritten_bytes(totals)
    lost = {**dropped_by_reason(totals, GONE_BYTES), **cut}
    return {
        "documents": Flow(into=documents, out=documents_out, lost=dropped_by_reason(totals)),
        "text_bytes": Flow(into=texts, out=texts_out, lost=lost, gained=added),
    }


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    recount = recount_applied(unit, folder)
    rewritten = len(text_shard.open_text_shard(folder).rewritten)  # no earlier stage rewrites texts
    return Recount({**recount.counts, "documents_rewritten": rewritten}, recount.details)


STAGE = Stage(
    "filter",
    version=2,
    after=("decided", "copies"),
    per_shard=True,
    wanted=lambda config: bool(config.steps_before("index") or config.all_decisions()),
    units_of="index",
    has_unit=_has_unit,
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    gate=require_few_rejected,
    shown=Shown(flows=_flows),
)
