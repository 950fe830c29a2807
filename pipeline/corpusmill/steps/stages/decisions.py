"""Decisions: the list of `forget` and each configured source of decisions, read once and sorted by document."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.config import FORGOTTEN
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage
from corpusmill.engine.work import Identity, Inputs, Resources, Sources, Work
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.steps import conditions
    from corpusmill.steps import decisions as steps_decisions


if TYPE_CHECKING:
    from corpusmill.config import DecisionsConfig
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile


def decisions_called(build: Build, name: str) -> tuple[DecisionsConfig, list[SourceFile]]:
    """The configured decisions of a name, and their planned files."""
    configured = zip(build.config.all_decisions(), build.plan.decisions or (), strict=True)
    return next((decision, files) for decision, files in configured if decision.name == name)


def _units(build: Build) -> list[str]:
    return [decision.name for decision in build.config.all_decisions()]


class Settings(Identity, frozen=True, kw_only=True):
    """`files`: name, size and identity of each."""

    key: str | tuple[str, str]
    keep: str
    files: list[tuple[str, int, str]]


def _identity(build: Build, unit: str) -> Settings:
    wanted, files = decisions_called(build, unit)
    listed = [(file.name, file.size_bytes, file.identity) for file in files]
    return Settings(key=wanted.key, keep=wanted.keep, files=listed)


def decisions_sources(build: Build, unit: str) -> list[Sources]:
    """The files of decisions."""
    wanted, files = decisions_called(build, unit)
    return [Sources(files, wanted.endpoint_url)]


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    files = [file.stored() for file in inputs.source.files]
    columns = (settings.key,) if isinstance(settings.key, str) else settings.key
    runs = steps_decisions.read_decisions(
        files, inputs.source.endpoint_url, columns, conditions.read_condition(settings.keep), folder
    )
    counts = steps_decisions.write_sorted(runs, folder, [file.name for file in files], once=inputs.unit != FORGOTTEN)
    return Outcome(counts={**counts, "bytes_read": sum(file.size_bytes for file in files)})


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    decisions = steps_decisions.Sorted(folder)
    return Recount({"decisions": len(decisions), "decisions_keep": int(decisions.keep.sum())})


STAGE = Stage(
    "decisions",
    version=2,
    after=(),
    wanted=lambda config: bool(config.all_decisions()),
    units=_units,
    work=Work(Settings, _identity, lambda _build, _unit: {}, _run, decisions_sources),
    recount=_recount,
    schedule=Schedule(stores=True),
    shown=Shown(unit_word="source", on_trunk=False),
)
