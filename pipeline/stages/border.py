"""Border: a shard answers with the bytes that digests left open, in a second pass over its text (step 5 of dedup)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.engine.stage import Recount, Stage, whole
from corpusmill.ledger import Outcome
from corpusmill.stages.context import sections_of, settings, text_of
from corpusmill.stages.reference import text_step

if TYPE_CHECKING:
    from corpusmill.engine.build import Build, StepView


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    from corpusmill.dedup.exchange import answer_borders
    from corpusmill.dedup.slices import slicing_of

    borders = [sections_of(build, "settle", partition) for partition in build.units("settle")]
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    text = text_of(build, shard)
    counts = answer_borders(text, borders, build.settings["shard"], slicing_of(minimum_bytes), folder)
    return Outcome(counts={**counts, "bytes_read": text.size_bytes()})


def _recount(_build: Build, _shard: str, folder: Path) -> Recount:
    from corpusmill.dedup.exchange import DIGESTS, EDGES, WINDOW_DIGESTS
    from corpusmill.stages.recounting import section_rows

    rows = {"borders": (DIGESTS, 16), "edge_bytes": (EDGES, 1), "windows": (WINDOW_DIGESTS, 24)}
    return Recount({count: section_rows(folder, *file) for count, file in rows.items()})


STAGE = Stage(
    "border",
    version=1,
    after=("settle",),
    per_shard=True,
    group="find_ranges",
    units_of="anchor",
    inputs=lambda build, shard: [text_step(build, shard), *whole(build, "settle")],
    settings=settings,
    run=_run,
    recount=_recount,
    reclaimed=("*",),
    read_until="match",
)
