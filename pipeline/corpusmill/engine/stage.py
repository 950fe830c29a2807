"""What stages of a build are: one stage, and the graph of all, which derives order and dependence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.ledger import Check, Receipt
from corpusmill.errors import ConfigError, PermanentError

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.build import Build
    from corpusmill.engine.work import EveryTime, Work
    from corpusmill.report.facts import Flow


EVERY_OTHER = ("*",)  # Stage.after of the stage that comes last
MANY = "*"  # the end of an input's unit that names all units of its stage that begin so

StepName = tuple[str, str]
"""(stage, unit)"""


def kind_of(unit: str) -> str:
    """The kind in a unit's name: `documents` of `documents-00003` and of `documents-*`; "" of `00003`."""
    return unit.rpartition("-")[0]


class StepMissingError(PermanentError):
    """A step needs one that has not finished: `stage` and `unit` name the unfinished one."""

    stage = ""
    unit = ""


@dataclass(frozen=True)
class Recount:
    """Counts and details recomputed from a step's files; `complete` if the receipt must have no others."""

    counts: dict[str, int]
    details: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


@dataclass(frozen=True)
class Schedule:
    """How a scheduler runs a stage.

    `stores`    its work may access stores, so the scheduler passes it credentials
    `task`      the name that decides a unit's task: units of one name, such as those of one shard, share a task
    `memory`    (the key that decides, bytes) that one task takes by its settings, if that is much
    `approval`  Markdown that a person may have to approve before the build continues, "" if there is nothing to ask
    """

    stores: bool = False
    task: Callable[[str], str] = lambda unit: unit
    memory: Callable[[DatasetConfig], tuple[str, int] | None] = lambda _config: None
    approval: Callable[[Build], str] | None = None


@dataclass(frozen=True)
class Shown:
    """How people see a stage.

    `unit_word` the word for one unit
    `flows`     {"documents", "text_bytes" or "tokens": how many come in, go out and are lost}
    `on_trunk`  false: later stages do not read its output
    """

    unit_word: str = "shard"
    flows: Callable[[Build], dict[str, Flow]] = lambda _build: {}
    on_trunk: bool = True


@dataclass(frozen=True)
class Stage:
    """One stage.

    What it is:

    `version`       raise it whenever the stage's bytes change for the same inputs and settings: every dataset then
                    redoes the stage and what depends on it
    `after`         the stages that must finish before its units run
    `wanted`        whether a configuration needs it; otherwise it has no units
    `units`         the names of its units; or `units_of` names a stage that has the same ones, or, with `has_unit`,
                    of which it has those for which that is true
    `per_shard`     its units are shards, or end in `-<shard>`: a single shard can be reprocessed

    What it does:

    `work`          its settings, its inputs and what writes its files; or EveryTime (engine/work.py)
    `checks`        the accounts that must balance once it has run
    `gate`          runs before every step, reused or not, and raises when the build must stop
    `common`        all datasets of a work folder share its steps, whose identity names no dataset
    `outside`       whether a unit's receipt covers bytes outside the work folder, so that verifying runs it again
    `reclaimed`     patterns of the files that `reclaim: eager` deletes once every step that reads them has finished
    `read_until`    the last stage that reads these files; later stages read receipts and other files only
    `rolled_up`     what later tasks need of all its receipts besides digests and totals (engine/rollup.py), as JSON
    `delivers`      its outputs are delivered, so receipts state their sha256
    `recount`       what a step's files hold, counted again from the files alone, independent of the counters of `run`;
                    what only the work itself could give (seconds, candidates) is left to the receipts' digests

    How it is scheduled and shown, with defaults: `schedule`, `shown`.
    """

    name: str
    version: int
    after: tuple[str, ...]
    work: Work[Any] | EveryTime
    units: Callable[[Build], list[str]] = lambda _build: []
    units_of: str = ""
    has_unit: Callable[[Build, str], bool] | None = None
    wanted: Callable[[DatasetConfig], bool] = lambda _config: True
    per_shard: bool = False
    checks: Callable[[Build, str, Receipt], list[Check]] = lambda _build, _unit, _receipt: []
    gate: Callable[[Build], None] = lambda _build: None
    common: bool = False
    outside: Callable[[Build, str], bool] = lambda _build, _unit: False
    reclaimed: tuple[str, ...] = ()
    read_until: str = ""
    rolled_up: Callable[[Iterator[Receipt]], dict[str, Any]] = lambda _receipts: {}
    delivers: bool = False
    recount: Callable[[Build, str, Path], Recount] = lambda _build, _unit, _folder: Recount({})
    schedule: Schedule = Schedule()
    shown: Shown = Shown()

    @property
    def reuse(self) -> bool:
        """Whether a step is reused: not if the stage runs every time."""
        return self.work.reused

    def inputs(self, build: Build, unit: str) -> list[StepName]:
        """The steps whose outputs a unit reads; all those of a stage are one input (`whole`)."""
        return self.work.inputs_in_order(build, unit)

    def settings(self, build: Build, unit: str) -> dict[str, object]:
        """Everything else that can change a unit's bytes."""
        return self.work.dumped(build, unit)


def every(build: Build, stage: str) -> list[StepName]:
    """All steps of a stage."""
    return [(stage, unit) for unit in build.units(stage)]


def whole(build: Build, *stages: str, kind: str = "") -> list[StepName]:
    """All steps of these stages whose units begin with `kind`, as inputs: one for each stage that has any.

    Its digest is that of all their receipts' digests, so that a step with 50,000 inputs takes no longer to open.
    """
    return [(stage, f"{kind}{MANY}") for stage in stages if build.named(stage, f"{kind}{MANY}")]


PLAN, PLAN_VERSION = "plan", 1  # not a stage: its receipt opens a build
NAME = re.compile(r"[a-z][a-z0-9_]*")  # a stage's folder has its name, and so have its tasks under Airflow


class Graph:
    """Stages by name, each after those that it waits for; iterating gives the stages in order.

    Raises ConfigError for a name that is not NAME or not unique, a stage that waits for an unknown one, and a cycle.
    """

    def __init__(self, stages: Iterable[Stage]) -> None:
        self._stages: dict[str, Stage] = {}
        for stage in stages:
            if not NAME.fullmatch(stage.name):
                raise _wrong(
                    "stage.name_not_plain: a stage's name is not a plain one",
                    stage.name,
                    "small letters, digits and _",
                    stage.name,
                )
            if stage.name in {PLAN, *self._stages}:
                raise _wrong(
                    "stage.name_twice: two stages have the same name",
                    stage.name,
                    "a name that no other stage has",
                    stage.name,
                )
            self._stages[stage.name] = stage
        self._wave = self._levels()

    def __getitem__(self, name: str) -> Stage:
        if name not in self._stages:
            known = ", ".join(self._stages)
            raise ConfigError(
                "stage.unknown: there is no such stage", expected=known, got=name, next_step="choose one of these"
            )
        return self._stages[name]

    def __contains__(self, name: object) -> bool:
        return name in self._stages

    def __iter__(self) -> Iterator[Stage]:
        return iter(sorted(self._stages.values(), key=lambda stage: self._wave[stage.name]))

    def is_wanted(self, name: str, config: DatasetConfig) -> bool:
        """Whether a configuration needs a stage, and so the stage that names its units."""
        stage = self[name]
        return stage.wanted(config) and (not stage.units_of or self.is_wanted(stage.units_of, config))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all stages, in order."""
        return tuple(stage.name for stage in self)

    @cached_property
    def per_shard(self) -> tuple[str, ...]:
        """The stages of which one shard can be reprocessed, in order."""
        return tuple(stage.name for stage in self if stage.per_shard)

    def after(self, name: str) -> tuple[str, ...]:
        """The stages that one waits for."""
        wanted = self[name].after
        return tuple(other for other in self._stages if other != name) if wanted == EVERY_OTHER else wanted

    def waves(self, until: str = "") -> tuple[tuple[str, ...], ...]:
        """Stages that may run at the same time; a wave starts when the one before it has ended.

        `until`: only that stage and those it waits for.
        """
        wanted = {until, *self.before(until)} if until else set(self.names)
        waves: dict[int, list[str]] = {}
        for name in self.names:
            if name in wanted:
                waves.setdefault(self._wave[name], []).append(name)
        return tuple(tuple(wave) for wave in waves.values())

    def before(self, name: str) -> tuple[str, ...]:
        """The stages that one waits for, and all that those wait for, in order."""
        names: set[str] = set()
        waiting = list(self.after(name))
        while waiting:
            other = waiting.pop()
            if other not in names:
                names.add(other)
                waiting += self.after(other)
        return tuple(other for other in self.names if other in names)

    @cached_property
    def _earlier(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(self.before(name)) for name in self.names}

    @cached_property
    def later(self) -> dict[str, tuple[str, ...]]:
        """{stage: the stages that wait for it, directly or indirectly}."""
        return {name: tuple(other for other in self.names if name in self._earlier[other]) for name in self.names}

    def require_waits(self, name: str, read: Iterable[str]) -> None:
        """Raise ConfigError if a stage reads from one that it does not wait for, which may run later."""
        for other in read:
            if other not in self._earlier[name]:
                waits = ", ".join(self.after(name)) or "no stage"
                raise _wrong(
                    "stage.reads_without_waiting: a stage reads from one that it does not wait for",
                    name,
                    f"{other} in `after`",
                    waits,
                )

    def between(self, name: str, last: str) -> tuple[str, ...]:
        """The stages of later waves than that of `name`, in order, up to the wave of `last`."""
        until = self._wave[self[last].name]
        return tuple(other for other in self.names if self._wave[name] < self._wave[other] <= until)

    def _levels(self) -> dict[str, int]:
        """The wave of every stage: one more than the last of those that it waits for."""
        levels: dict[str, int] = {}
        waiting = dict.fromkeys(self._stages)
        while waiting:
            ready = [name for name in waiting if set(self.after(name)) <= levels.keys()]
            for name in ready:
                levels[name] = 1 + max((levels[other] for other in self.after(name)), default=-1)
                del waiting[name]
            if not ready:
                self._require_known(waiting)
                cycle = [name for name in waiting if self[name].after != EVERY_OTHER]
                raise _wrong("stage.cycle: stages wait for each other in a cycle", ", ".join(cycle), "an order", "none")
        return levels

    def _require_known(self, names: Iterable[str]) -> None:
        for name in names:
            unknown = [other for other in self.after(name) if other not in self._stages]
            if unknown:
                raise _wrong(
                    "stage.waits_for_unknown: a stage waits for one that does not exist",
                    name,
                    ", ".join(self._stages),
                    unknown[0],
                )


def _wrong(what: str, stage: str, expected: str, got: str) -> ConfigError:
    return ConfigError(
        what,
        where=f"stage {stage}",
        expected=expected,
        got=got,
        next_step="fix the stage's `name` or `after`; CORPUSMILL_STAGES names the modules of your own stages",
    )
