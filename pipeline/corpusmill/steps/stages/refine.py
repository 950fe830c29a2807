"""Refine, lost: runs the steps `before: writeback` on the deduplicated text, and drops emptied documents for formats
that would keep them; documents/ and tokens are made of the result. Then measures what that cost.

    tokenized, offset, ...   a text shard: documents that no step changed as dedup read them, duplicates and all
    cut_ranges               the duplicate ranges of these, as union writes them; the texts of the others have none
    left_out                 uint64 LE: the ordinals, in the input shard, of dropped documents, ascending

Later stages read this text and these ranges instead of union's, and lines that no step touched keep their bytes.
Documents that dedup emptied are not passed to steps. With `dedup.drop_empty` writeback drops them, and those of which
steps or decontamination left nothing; they are dropped here where token formats would keep them.

A document that a step drops here may have been the kept copy of text that was removed elsewhere: lost measures that.

    left_out   uint64 LE: the ordinals of the documents that held such text, ascending, in the shard that dedup read

A window that occurs again but did not occur earlier is the copy that dedup keeps. Text of a dropped document in such
windows, if not removed itself, is lost: its repeats were removed elsewhere or later in the same document. No other
stage reads this output of lost except the manifest, so a change in another shard's repeats reruns no tokenization.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import AnswerSettings, answer_settings
from corpusmill.dedup.stages.union import CUT_RANGES, matched_rows
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, whole
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.report.facts import Flow
from corpusmill.sources.parts import lines_before, places_in, shard_sources
from corpusmill.sources.stages.index import deduplicated_flow, require_few_rejected, text_stage, text_total
from corpusmill.steps.stages.applying import (
    EMPTIED,
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
from corpusmill.steps.stages.decisions import LEFT_OUT

with lazily:
    import numpy as np

    from corpusmill.dedup import ranges
    from corpusmill.dedup import ranges as dedup_ranges
    from corpusmill.documents import text_shard


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.dedup.ranges import Ranges
    from corpusmill.documents.text_shard import DocumentStrings, TextShard
    from corpusmill.engine.build import Build
    from corpusmill.steps import Batch


def _deduplicated(build: Build) -> bool:
    return build.config.dedup.mode != "none"


class Settings(StepsSettings, frozen=True, kw_only=True):
    """The steps, and whether they drop documents of which nothing is left."""

    mode: str
    drops_emptied: bool | UnsetType = UNSET


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    cuts = [("union", shard)] if _deduplicated(build) else []
    return {"text": [(text_stage(build, shard), shard)], "cuts": cuts}


def _identity(build: Build, shard: str) -> Settings:
    return Settings(
        **steps_before(build, "writeback"),
        mode=build.config.dedup.mode,
        drops_emptied=build.config.drops_emptied or UNSET,
        lines_before=lines_before(build, shard) or UNSET,
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:

    text = text_shard.open_text_shard(inputs["text"].folder())
    ranges = np.empty((0, 2), np.uint64)
    if "cuts" in inputs:
        ranges = dedup_ranges.read_ranges(inputs["cuts"].folder() / CUT_RANGES)
    removed = removed_bytes(text, ranges)
    bounds = text.bounds(0, text.documents)
    left = np.diff(bounds).astype(np.int64) - 1 - removed
    emptied = np.flatnonzero((removed > 0) & (left == 0)).tolist()
    place = places_in(inputs.source.files, text, settings.lines_before)
    chain = chain_of(settings, resources)
    if settings.drops_emptied:
        emptied = sorted({*emptied, *text.rewritten[left[text.rewritten] == 0].tolist()})
        applied = AppliedSteps(text, chain, place, gone=dict.fromkeys(emptied, EMPTIED), drops_emptied=True)
    else:
        applied = AppliedSteps(text, chain, place, passed=frozenset(emptied))

    def read(ids: DocumentStrings, first: int, last: int) -> Batch:
        kept, kept_bounds = dedup_ranges.remove_ranges_from(text.text, text.offsets, ranges, first, last)
        return batch_of(text, ids, first, kept, kept_bounds.astype(np.int64), place)

    applied.write(folder, read)
    counts, details = applied.account(inputs.unit, folder)
    gone, rewritten = np.array(applied.dropped, np.int64), np.array(applied.rewritten, np.int64)
    moved = _moved(text, text_shard.open_text_shard(folder), ranges, gone, rewritten)
    dedup_ranges.write_ranges(folder / CUT_RANGES, moved)
    (folder / LEFT_OUT).write_bytes(gone.astype("<u8").tobytes())
    own = {
        "removed_bytes": int((moved[:, 1] - moved[:, 0]).sum()),
        "removed_bytes_dropped": int(removed[gone].sum()),
        "removed_bytes_rewritten": int(removed[rewritten].sum()),
        "bytes_read": len(text.text),
    }
    return Outcome(counts={**counts, **own}, details=details)


def removed_bytes(text: TextShard, ranges: Ranges) -> NDArray[np.int64]:
    """int64 (documents,): how much of each document's text its ranges cover."""
    documents = np.searchsorted(text.offsets, ranges[:, 0], side="right") - 1
    covered = np.zeros(text.documents, np.int64)
    np.add.at(covered, documents, (ranges[:, 1] - ranges[:, 0]).astype(np.int64))
    return covered


def _moved(
    text: TextShard, kept: TextShard, ranges: Ranges, gone: NDArray[np.int64], rewritten: NDArray[np.int64]
) -> Ranges:
    """The ranges of unchanged documents, at their new positions."""
    documents = np.searchsorted(text.offsets, ranges[:, 0], side="right") - 1
    same = ~np.isin(documents, np.concatenate([gone, rewritten]))
    now = np.zeros(text.documents, np.uint64)
    now[np.delete(np.arange(text.documents), gone)] = kept.offsets
    back = (text.offsets - now)[documents[same]]  # uint64: what has moved to the front has a lower offset, or wraps
    moved: Ranges = ranges[same] - back[:, None]
    return moved


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    before, counts = build.receipt(text_stage(build, shard), shard), receipt.counts
    removed = build.receipt("union", shard).counts["removed_bytes"] if _deduplicated(build) else 0
    stages = (("as they were", ""), ("of dropped", "_dropped"), ("of rewritten", "_rewritten"))
    texts, documents, text_bytes = account_checks("refined text", before, receipt, duplicates=removed)
    return [
        texts,
        documents,
        Check(
            "duplicate bytes",
            (("removed", removed),),
            tuple((f"documents {which}", counts[f"removed_bytes{name}"]) for which, name in stages),
        ),
        text_bytes,
    ]


def _flows(build: Build) -> dict[str, Flow]:
    totals = build.rollup("refine").totals
    cut, added = rewritten_bytes(totals)
    removed = build.total("union", "removed_bytes") if _deduplicated(build) else 0
    deduplicated = deduplicated_flow(build, text_total(build, "text_bytes_out") - removed)
    return {
        "documents": Flow(
            into=text_total(build, "documents_out"), out=totals["documents_out"], lost=dropped_by_reason(totals)
        ),
        "text_bytes": Flow(
            into=deduplicated.into,
            out=totals["text_bytes_out"] - totals["removed_bytes"],
            lost={**deduplicated.lost, **dropped_by_reason(totals, GONE_BYTES), **cut},
            gained=added,
        ),
    }


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    ranges, recount = dedup_ranges.read_ranges(folder / CUT_RANGES), recount_applied(unit, folder)
    return Recount({**recount.counts, "removed_bytes": int((ranges[:, 1] - ranges[:, 0]).sum())}, recount.details)


STAGE = Stage(
    "refine",
    version=2,
    after=("union",),
    per_shard=True,
    wanted=lambda config: bool(config.steps_before("writeback") or config.drops_emptied),
    units_of="index",
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    gate=require_few_rejected,
    shown=Shown(flows=_flows),
)


def _inputs_lost(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "text": [(text_stage(build, shard), shard)],
        "cuts": [("union", shard)],
        "refined": [("refine", shard)],
        "matches": whole(build, "match"),
    }


def _run_lost(inputs: Inputs, settings: AnswerSettings, folder: Path, _resources: Resources) -> Outcome:

    text = text_shard.open_text_shard(inputs["text"].folder())
    dropped = np.fromfile(inputs["refined"].folder() / LEFT_OUT, "<u8").astype(np.int64)
    matches = inputs.every("matches")
    later, earlier = (
        ranges.union_ranges(matched_rows(matches, settings.shard, name))
        for name in (ranges.LATER_WINDOWS, ranges.EARLIER_WINDOWS)
    )
    widen = np.array([0, settings.minimum_bytes - 1], np.uint64)
    kept_copies = ranges.union_ranges(ranges.subtract_ranges(earlier, later) + widen)
    cut = ranges.read_ranges(inputs["cuts"].folder() / CUT_RANGES)
    lost = removed_bytes(text, ranges.subtract_ranges(kept_copies, cut))[dropped]
    holding = dropped[lost > 0]
    (folder / LEFT_OUT).write_bytes(holding.astype("<u8").tobytes())
    counts = {"documents_lost": len(holding), "text_bytes_lost": int(lost.sum())}
    whole = {"documents_elsewhere_kept": len(dropped) - len(holding)}
    return Outcome(counts={**counts, **whole, "bytes_read": 0})


def _checks_lost(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    """Balance of the documents that late steps dropped, and of their text."""
    counts, refined = receipt.counts, build.receipt("refine", shard).counts
    documents, text_bytes = (sum(dropped_by_reason(refined, of).values()) for of in ("dropped_", GONE_BYTES))
    last = "the only copy left of repeated text"
    return [
        Check(
            "dropped documents",
            (("dropped", documents),),
            ((f"with {last}", counts["documents_lost"]), ("without", counts["documents_elsewhere_kept"])),
        ),
        Check(
            "dropped text bytes",
            (("dropped", text_bytes),),
            ((last, counts["text_bytes_lost"]), ("text that occurred once", text_bytes - counts["text_bytes_lost"])),
        ),
    ]


def _recount_lost(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"documents_lost": (folder / LEFT_OUT).stat().st_size // 8})


LOST = Stage(
    "lost",
    version=1,
    after=("refine",),
    per_shard=True,
    wanted=lambda config: bool(config.dedup.mode == "remove" and config.steps_before("writeback")),
    units_of="refine",
    work=Work(AnswerSettings, answer_settings, _inputs_lost, _run_lost),
    recount=_recount_lost,
    checks=_checks_lost,
    shown=Shown(on_trunk=False),
)
