"""Settle: decides in a partition what digests can decide, and requests bytes for the rest (dedup step 4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Outcome
from corpusmill.stages.context import PERIODS, sections_of, windows_settings
from corpusmill.stages.reference import every_answer, every_index, whole_answer, whole_index

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def _inputs(build: Build, unit: str) -> list[tuple[str, str]]:
    anchors = whole_index(build) if _adds_repeats(build, unit) else []
    return [("shared", unit), *anchors, *whole_answer(build, "context")]


def _adds_repeats(build: Build, unit: str) -> bool:
    return unit == build.units("settle")[0]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    partition = build.units("settle").index(unit)
    settings = {"minimum_bytes": build.config.dedup.minimum_bytes, **windows_settings(build), "partition": partition}
    return {**settings, "against": len(build.units("reference"))} if build.plan.references else settings


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.dedup.anchors import SMALL_FILES, open_repeats
    from corpusmill.dedup.ranges import read_ranges
    from corpusmill.dedup.settle import settle
    from corpusmill.dedup.slices import slicing_of

    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    whole = build.config.wants_windows
    repeats, periods = [], []
    if _adds_repeats(build, unit):
        for anchors, answer in zip(every_index(build), every_answer(build, "context"), strict=True):
            repeats.append(open_repeats(build.folder(*anchors, *SMALL_FILES)))
            if whole:
                with build.opened(*answer, PERIODS) as answered:
                    periods.append(read_ranges(answered / PERIODS))
    partition = build.units("settle").index(unit)
    matches, counts = settle(
        sections_of(build, "shared", unit),
        [sections_of(build, *answer) for answer in every_answer(build, "context")],
        partition,
        slicing_of(minimum_bytes),
        folder,
        repeats=repeats,
        periods=periods,
        want_windows=whole,
        want_firsts=bool(build.plan.references),
    )
    matches.without(len(build.units("reference"))).write(folder, with_windows=whole)
    return Outcome(
        counts={**counts, "windows": matches.windows, "bytes_read": 24 * (counts["settled"] + counts["open"])}
    )


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    from corpusmill.dedup.exchange import BORDERS
    from corpusmill.stages.recounting import section_rows

    return Recount({"borders": section_rows(folder, BORDERS, 8)})


STAGE = Stage(
    "settle",
    version=1,
    after=("context", "reference_context"),
    group="find_ranges",
    unit_word="partition",
    units_of="shared",
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    reclaimed=("*",),
    read_until="match",
    memory=lambda config: ("dedup.memory", int(config.dedup.memory)),
)
