"""Filter: drops forgotten documents and those that external decisions drop, then runs the steps `before: index`.

Without such steps only shards that lose documents are rewritten; the others keep the text of index. Because dropped
documents take no part in deduplication, the copy that dedup keeps is never dropped after its repeats were removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.answered import (
    GONE_BYTES,
    account_checks,
    dropped_by_reason,
    recount_answered,
    step_settings,
    steps_before,
)
from corpusmill.stages.copies import copies_of
from corpusmill.stages.index import filtered_stage, require_few_rejected, text_total
from corpusmill.stages.joined import left_out_of
from corpusmill.stages.parts import lines_before_settings, places_of

if TYPE_CHECKING:
    from corpusmill.documents.text_shard import DocumentIds
    from corpusmill.engine.build import Build, StepView
    from corpusmill.report.facts import Flow
    from corpusmill.steps import Batch

READERS = {"join": left_out_of, "copies": copies_of}


def _units(build: Build) -> list[str]:
    if build.config.steps_before("index"):
        return build.units("index")
    return [shard for shard in build.units("index") if _lists(build, shard)] if _stages_of_lists(build) else []


def _stages_of_lists(build: Build) -> list[str]:
    return [stage for stage in READERS if build.units(stage)]


def _lists(build: Build, shard: str) -> list[str]:
    """The stages that drop documents of a shard before any step is asked; the first of them gives the reason."""
    return [stage for stage in _stages_of_lists(build) if build.receipt(stage, shard).counts["left_out"]]


def _settings(build: Build, shard: str) -> dict[str, Any]:
    lists = _lists(build, shard)
    before = lines_before_settings(build, shard)
    return {**step_settings(build, "index"), **before, **({"lists": lists} if lists else {})}


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    return [("index", shard), *((stage, shard) for stage in _lists(build, shard))]


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.documents.batch import SEPARATOR
    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.stages.answered import Answered, batch_of
    from corpusmill.steps.chain import Chain

    text = open_text_shard(build.folder("index", shard))
    listed = {stage: READERS[stage](build, shard) for stage in build.settings.get("lists", ())}
    place = places_of(build, shard, text, build.settings.get("lines_before", {}))
    answered = Answered(
        text, Chain(*steps_before(build, "index")), place, gone=listed.get("copies", {}) | listed.get("join", {})
    )

    def read(ids: DocumentIds, first: int, last: int) -> Batch:
        bounds = text.bounds(first, last - first).astype(np.int64)
        data = text.text[bounds[0] : bounds[-1]]
        return batch_of(ids, first, data, bounds - bounds[0], place, between=len(SEPARATOR))

    answered.write(folder, read)
    counts, details = answered.account(shard, folder)
    return Outcome(counts={**counts, "bytes_read": len(text.text)}, details=details)


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    indexed, counts = build.receipt("index", shard), receipt.counts
    return [
        *account_checks("filtered text", indexed, receipt),
        Check(
            "text bytes",
            (("indexed", indexed.counts["text_bytes_out"]), ("added", counts["text_bytes_added"])),
            (
                ("kept", counts["text_bytes_out"]),
                ("cut", counts["text_bytes_cut"]),
                *dropped_by_reason(counts, GONE_BYTES).items(),
            ),
        ),
    ]


def _flows(build: Build) -> dict[str, Flow]:
    from corpusmill.report.facts import Flow

    totals = build.rollup("filter").totals
    documents, texts = (build.total("index", name) for name in ("documents_out", "text_bytes_out"))
    documents_out, texts_out = (
        text_total(build, f"{name}_out", filtered_stage) for name in ("documents", "text_bytes")
    )
    cut, added = (
        {"rewritten": count} if (count := totals.get(f"text_bytes_{what}")) else {} for what in ("cut", "added")
    )
    lost = {**dropped_by_reason(totals, GONE_BYTES), **cut}
    return {
        "documents": Flow(into=documents, out=documents_out, lost=dropped_by_reason(totals)),
        "text_bytes": Flow(into=texts, out=texts_out, lost=lost, gained=added),
    }


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    from corpusmill.documents.text_shard import open_text_shard

    recount = recount_answered(unit, folder)
    rewritten = len(open_text_shard(folder).rewritten)  # no earlier stage rewrites texts
    return Recount({**recount.counts, "documents_rewritten": rewritten}, recount.details)


STAGE = Stage(
    "filter",
    version=2,
    after=("decided", "copies"),
    units_after=("join", "copies"),
    per_shard=True,
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    flows=_flows,
    checks=_checks,
    gate=require_few_rejected,
)
