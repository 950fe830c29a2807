"""Context and border: a shard answers what partitions ask about its text, in one pass each (dedup steps 3 and 5).

Context answers with digests of the text around shared anchors, border with the bytes that these digests left open.
A reference's shards answer as the dataset's own do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.reference import index_step, place_of, text_step
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Stage, StepName, whole
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.kernels import advance
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.dedup import anchors, exchange, ranges
    from corpusmill.documents import text_shard
    from corpusmill.engine import recounting, sections


if TYPE_CHECKING:
    from corpusmill.dedup.exchange import TextFile
    from corpusmill.engine.build import Build
    from corpusmill.engine.ledger import Blocks
    from corpusmill.engine.sections import Sections

PERIODS = "periods"  # for windows that equal one a period earlier, those earlier ones; only where windows are listed


def sections_in(blocks: Blocks) -> Sections:
    """A finished step's files of sections, checked as they are read."""
    return sections.Sections(blocks.folder, blocks.open)


def text_in(blocks: Blocks) -> TextFile:
    """A shard's text for one sequential pass; every block is checked before it is read."""
    return exchange.TextFile(
        blocks.folder / text_shard.TEXT_FILE, lambda first, last: blocks.open(text_shard.TEXT_FILE, first, last)
    )


class WindowSettings(Identity, frozen=True, kw_only=True):
    """What decides whether windows are listed (DatasetConfig.wants_windows)."""

    minimum_bytes: int
    keep: str
    windows: bool | UnsetType = UNSET

    @property
    def wants_windows(self) -> bool:
        """Whether windows are listed."""
        return self.keep == "every_string" or bool(self.windows)


def windows_listed(build: Build) -> bool | UnsetType:
    """`WindowSettings.windows`: said where `keep` does not say it."""
    return True if build.config.wants_windows and build.config.dedup.keep == "first_window" else UNSET


class AnswerSettings(Identity, frozen=True, kw_only=True):
    """Besides the requests: the shard's number among all shards, and the length of a window."""

    minimum_bytes: int
    shard: int


def answer_settings(build: Build, shard: str) -> AnswerSettings:
    """The settings of a shard that answers."""
    return AnswerSettings(minimum_bytes=build.config.dedup.window_bytes, shard=place_of(build, shard))


def _context_inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "text": [text_step(build, shard)],
        "anchors": [index_step(shard)] if build.config.wants_windows else [],
        "requests": whole(build, "shared"),
    }


def _border_inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {"text": [text_step(build, shard)], "requests": whole(build, "settle")}


def _run_context(inputs: Inputs, settings: AnswerSettings, folder: Path, _resources: Resources) -> Outcome:
    outcome = _answer(exchange.answer_contexts, inputs, settings, folder)
    if "anchors" in inputs:
        repeats = anchors.open_anchors(inputs["anchors"].folder()).repeats
        text = text_shard.open_text_shard(inputs["text"].folder()).text
        ranges.write_ranges(folder / PERIODS, exchange.windows_before(text, repeats, settings.minimum_bytes))
    return outcome


def _run_border(inputs: Inputs, settings: AnswerSettings, folder: Path, _resources: Resources) -> Outcome:
    return _answer(exchange.answer_borders, inputs, settings, folder)


def _answer(answer: Callable[..., dict[str, int]], inputs: Inputs, settings: AnswerSettings, folder: Path) -> Outcome:
    requests = [sections_in(step.blocks) for step in inputs.every("requests")]
    text = text_in(inputs["text"].blocks)
    advance.begin(text.size_bytes())
    counts = answer(text, requests, settings.shard, anchors.slicing_of(settings.minimum_bytes), folder)
    return Outcome(counts={**counts, "bytes_read": text.size_bytes()})


def _recount_context(_build: Build, _shard: str, folder: Path) -> Recount:
    return _recount(folder, contexts=(exchange.DIGESTS, 16), slices=(exchange.HASHES, 4))


def _recount_border(_build: Build, _shard: str, folder: Path) -> Recount:
    return _recount(folder, borders=(exchange.DIGESTS, 16), edge_bytes=(exchange.EDGES, 1))


def _recount(folder: Path, **rows: tuple[str, int]) -> Recount:
    """Rows of files of sections, each file with the bytes of its rows."""
    rows["windows"] = exchange.WINDOW_DIGESTS, 24
    return Recount({count: recounting.section_rows(folder, *file) for count, file in rows.items()})


CONTEXT = Stage(
    "context",
    version=1,
    after=("shared",),
    per_shard=True,
    units_of="anchor",
    work=Work(AnswerSettings, answer_settings, _context_inputs, _run_context),
    recount=_recount_context,
    reclaimed=("*",),
    read_until="settle",
)
BORDER = replace(
    CONTEXT,
    name="border",
    after=("settle",),
    work=Work(AnswerSettings, answer_settings, _border_inputs, _run_border),
    recount=_recount_border,
    read_until="match",
)
REFERENCE_CONTEXT = replace(CONTEXT, name="reference_context", per_shard=False, units_of="reference_index")
REFERENCE_BORDER = replace(BORDER, name="reference_border", per_shard=False, units_of="reference_context")
