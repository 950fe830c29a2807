"""Border: a shard answers with the bytes that digests left open, in a second pass over its text (step 5 of dedup)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.dedup.stages.context import AnswerSettings, answer_settings, sections_in, text_in
from corpusmill.dedup.stages.reference import text_step
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Stage, StepName, whole
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.kernels import advance
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.dedup import exchange, slices
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [text_step(build, shard)], "requests": whole(build, "settle")}


def _run(inputs: Inputs, settings: AnswerSettings, folder: Path, _resources: Resources) -> Outcome:
    requests = [sections_in(step.blocks) for step in inputs.every("requests")]
    text = text_in(inputs["text"].blocks)
    advance.begin(text.size_bytes())
    counts = exchange.answer_borders(text, requests, settings.shard, slices.slicing_of(settings.minimum_bytes), folder)
    return Outcome(counts={**counts, "bytes_read": text.size_bytes()})


def _recount(_build: Build, _shard: str, folder: Path) -> Recount:
    rows = {
        "borders": (exchange.DIGESTS, 16),
        "edge_bytes": (exchange.EDGES, 1),
        "windows": (exchange.WINDOW_DIGESTS, 24),
    }
    return Recount({count: recounting.section_rows(folder, *file) for count, file in rows.items()})


STAGE = Stage(
    "border",
    version=1,
    after=("settle",),
    per_shard=True,
    units_of="anchor",
    work=Work(AnswerSettings, answer_settings, _inputs, _run),
    recount=_recount,
    reclaimed=("*",),
    read_until="match",
)
