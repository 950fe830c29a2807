"""Lost: measures text that left the dataset because late steps dropped the only kept copy after its repeats were
removed.

    left_out   uint64 LE: the ordinals of the documents that held such text, ascending, in the shard that dedup read

A window that occurs again but did not occur earlier is the copy that dedup keeps. Text of a dropped document in such
windows, if not removed itself, is lost: its repeats were removed elsewhere or later in the same document. No other
stage reads this output except the manifest, so a change in another shard's repeats reruns no tokenization.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage, whole
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.answered import GONE_BYTES, dropped_by_reason
from corpusmill.stages.index import text_stage
from corpusmill.stages.joined import LEFT_OUT
from corpusmill.stages.reference import place_of
from corpusmill.stages.union import CUT_RANGES, matched_rows

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def _units(build: Build) -> list[str]:
    late = build.config.dedup.mode == "remove" and build.config.steps_before("writeback")
    return build.units("refine") if late else []


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    return [(text_stage(build, shard), shard), ("union", shard), ("refine", shard), *whole(build, "match")]


def _settings(build: Build, shard: str) -> dict[str, Any]:
    return {"shard": place_of(build, shard), "minimum_bytes": build.config.dedup.minimum_bytes}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.dedup.matches import EARLIER_WINDOWS, LATER_WINDOWS
    from corpusmill.dedup.ranges import read_ranges, subtract_ranges, union_ranges
    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.stages.refine import removed_bytes

    assert build.config.dedup.minimum_bytes is not None
    text = open_text_shard(build.folder(text_stage(build, shard), shard))
    dropped = np.fromfile(build.folder("refine", shard) / LEFT_OUT, "<u8").astype(np.int64)
    later, earlier = (union_ranges(matched_rows(build, shard, name)) for name in (LATER_WINDOWS, EARLIER_WINDOWS))
    widen = np.array([0, build.config.dedup.minimum_bytes - 1], np.uint64)
    kept_copies = union_ranges(subtract_ranges(earlier, later) + widen)
    cut = read_ranges(build.folder("union", shard) / CUT_RANGES)
    lost = removed_bytes(text, subtract_ranges(kept_copies, cut))[dropped]
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
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    checks=_checks,
    on_trunk=False,
)
