"""Decisions: the list of `forget` and each configured source of decisions, read once and sorted by document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import FORGOTTEN
from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Outcome

if TYPE_CHECKING:
    from corpusmill.config import DecisionsConfig
    from corpusmill.engine.build import Build
    from corpusmill.sources.plan import SourceFile


def decisions_called(build: Build, name: str) -> tuple[DecisionsConfig, list[SourceFile]]:
    """The configured decisions of a name, and their planned files."""
    configured = zip(build.config.all_decisions(), build.plan.decisions or (), strict=True)
    return next((decision, files) for decision, files in configured if decision.name == name)


def _units(build: Build) -> list[str]:
    return [decision.name for decision in build.config.all_decisions()]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    wanted, files = decisions_called(build, unit)
    listed = [[file.name, file.size_bytes, file.identity] for file in files]
    return {"key": wanted.key, "keep": wanted.keep, "files": listed}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    from corpusmill.steps.conditions import read_condition
    from corpusmill.steps.decisions import Decided, read_decisions, write_sorted

    wanted, planned = decisions_called(build, unit)
    files = [file.stored() for file in planned]
    decided = Decided(wanted.columns, read_condition(wanted.keep))
    runs = read_decisions(files, wanted.endpoint_url, decided, folder)
    counts = write_sorted(runs, folder, [file.name for file in files], once=wanted.name != FORGOTTEN)
    return Outcome(counts={**counts, "bytes_read": sum(file.size_bytes for file in files)})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    from corpusmill.steps.decisions import Sorted

    decisions = Sorted(folder)
    return Recount({"decisions": len(decisions), "decisions_keep": int(decisions.keep.sum())})


STAGE = Stage(
    "decisions",
    version=2,
    after=("quarantine",),  # with all of these, stages stop at too many rejected lines
    unit_word="source",
    units=_units,
    inputs=lambda _build, _unit: [],
    settings=_settings,
    run=_run,
    recount=_recount,
    stores=True,
    on_trunk=False,
)
