"""Lost: measures text that left the dataset because late steps dropped the only kept copy after its repeats were
removed.

    left_out   uint64 LE: the ordinals of the documents that held such text, ascending, in the shard that dedup read

A window that occurs again but did not occur earlier is the copy that dedup keeps. Text of a dropped document in such
windows, if not removed itself, is lost: its repeats were removed elsewhere or later in the same document. No other
stage reads this output except the manifest, so a change in another shard's repeats reruns no tokenization.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.dedup.stages.context import AnswerSettings, answer_settings
from corpusmill.dedup.stages.union import CUT_RANGES, matched_rows
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, whole
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.sources.stages.index import text_stage
from corpusmill.steps.stages.applying import GONE_BYTES, dropped_by_reason
from corpusmill.steps.stages.join import LEFT_OUT
from corpusmill.steps.stages.refine import removed_bytes

with lazily:
    import numpy as np

    from corpusmill.dedup import ranges
    from corpusmill.documents import text_shard


if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "text": [(text_stage(build, shard), shard)],
        "cuts": [("union", shard)],
        "refined": [("refine", shard)],
        "matches": whole(build, "match"),
    }


def _run(inputs: Inputs, settings: AnswerSettings, folder: Path, _resources: Resources) -> Outcome:

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


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
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


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"documents_lost": (folder / LEFT_OUT).stat().st_size // 8})


STAGE = Stage(
    "lost",
    version=1,
    after=("refine",),
    per_shard=True,
    wanted=lambda config: bool(config.dedup.mode == "remove" and config.steps_before("writeback")),
    units_of="refine",
    work=Work(AnswerSettings, answer_settings, _inputs, _run),
    recount=_recount,
    checks=_checks,
    shown=Shown(on_trunk=False),
)
