"""Settle: decides in a partition what digests can decide, and requests bytes for the rest (dedup step 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import PERIODS, WindowSettings, sections_in, windows_listed
from corpusmill.dedup.stages.reference import whole_answer, whole_index
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.dedup import anchors as dedup_anchors
    from corpusmill.dedup import exchange, ranges, settle
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.engine.build import Build


class Settings(WindowSettings, frozen=True, kw_only=True):
    """Which partition it is, and how many shards of references come first, if there are references."""

    partition: int
    against: int | UnsetType = UNSET


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    """The first partition adds what repeats within the windows of one anchor."""
    first = unit == build.units("settle")[0]
    return {
        "shared": [("shared", unit)],
        "anchors": whole_index(build) if first else [],
        "answers": whole_answer(build, "context"),
    }


def _identity(build: Build, unit: str) -> Settings:
    return Settings(
        minimum_bytes=build.config.dedup.window_bytes,
        keep=build.config.dedup.keep,
        windows=windows_listed(build),
        partition=build.units("settle").index(unit),
        against=len(build.units("reference")) if build.plan.references else UNSET,
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    repeats, periods, answers = [], [], inputs.every("answers")
    if "anchors" in inputs:
        for anchors, answer in zip(inputs.every("anchors"), answers, strict=True):
            repeats.append(dedup_anchors.open_repeats(anchors.folder(*dedup_anchors.SMALL_FILES)))
            if settings.wants_windows:
                with answer.opened(PERIODS) as answered:
                    periods.append(ranges.read_ranges(answered / PERIODS))
    matches, counts = settle.settle(
        sections_in(inputs["shared"].blocks),
        [sections_in(answer.blocks) for answer in answers],
        settings.partition,
        dedup_anchors.slicing_of(settings.minimum_bytes),
        folder,
        repeats=repeats,
        periods=periods,
        want_windows=settings.wants_windows,
        want_firsts=settings.against is not UNSET,
    )
    matches.without(settings.against or 0).write(folder, with_windows=settings.wants_windows)
    return Outcome(
        counts={**counts, "windows": matches.windows, "bytes_read": 24 * (counts["settled"] + counts["open"])}
    )


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"borders": recounting.section_rows(folder, exchange.BORDERS, 8)})


STAGE = Stage(
    "settle",
    version=1,
    after=("context", "reference_context"),
    units_of="shared",
    work=Work(Settings, _identity, _inputs, _run),
    recount=_recount,
    reclaimed=("*",),
    read_until="match",
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory))),
    shown=Shown(unit_word="partition"),
)
