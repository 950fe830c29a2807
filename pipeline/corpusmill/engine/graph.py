"""The stages of a build in the order in which they run; order and dependence are derived here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from corpusmill.engine.stage import EVERY_OTHER, Stage
from corpusmill.errors import ConfigError

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig

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
                    "stage.name_twice: two stages of one name", stage.name, "a name that no other stage has", stage.name
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
