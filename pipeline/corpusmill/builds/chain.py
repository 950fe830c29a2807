"""The steps that people meet: which stages each does, in which rounds, and which of them a configuration needs.

    plan -> download -> index -> near_duplicates -> find_ranges -> writeback -> tokenize -> shuffle -> export -> upload
      -> report

A **step** is a task of a scheduler, a row of the terminal and of the report, a chapter of docs/how-it-works.md. It has
**rounds** where every part must have finished before any part goes on: in find_ranges each partition of anchors asks
all shards, which answer all partitions. A round is a task of its own, `find_ranges.context`, unless the step has one
part: then its first task does all of them, and the others have nothing to do.

Stages are fused into one round where a shard needs only itself: index with the user's steps, decontamination, keys of
near-duplicates and anchors; with near-duplicates the text without them and its anchors; writeback with the union of its
ranges; tokenize with its audit. A stage of one's own (CORPUSMILL_STAGES) is a round behind those of the step of the
last stage that it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from corpusmill.builds.graph import GRAPH
from corpusmill.engine.rounds import EXPORT, Round, Step, steps_of
from corpusmill.engine.stage import kind_of
from corpusmill.errors import ConfigError
from corpusmill.export.stages.layout import unit_formats
from corpusmill.sources.stages.index import require_few_rejected

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.parts import Part
    from corpusmill.engine.running import RunnableBuild

APPROVALS = {"decontamination": "decontaminate", "near_duplicates": "near_duplicates", "removal": "union"}
"""{what somebody may have to approve: the stage that says how much it is}"""

GATES = {"index": require_few_rejected}
"""{step: raises if the build must stop once all parts of the step have run}"""

STEPS = steps_of(GRAPH)
STEP_OF = {stage: step.name for step in STEPS.values() for stage in step.stages}
"""The step of every stage that does it where nobody is asked."""


@dataclass(frozen=True)
class Task:
    """A round of a step, as a scheduler knows it: `tokenize`, or `find_ranges.context`."""

    step: Step
    round: Round

    @property
    def name(self) -> str:
        """Its name, which has the round's if the step has several."""
        return self.step.name if len(self.step.rounds) == 1 else f"{self.step.name}.{self.round.name}"

    def stages(self, config: DatasetConfig, parts: int = 2) -> tuple[str, ...]:
        """The stages that it does for a configuration, in order; none if another task does them, or if none is needed.

        The first task of a step of one part does all of the step, unless its rounds may run at the same time.
        """
        if self.step.name == EXPORT and self.round.stages == (EXPORT,):
            return (EXPORT,) if self.formats(config) else ()
        if self.round.asked:
            return tuple(name for name in self.round.stages if GRAPH.is_wanted(name, config))
        rounds = _stages_of_rounds(self.step, config)
        mine = rounds[self.round.name]
        if parts > 1 or self.step.beside or not mine:
            return (*self.round.left, *(stage for stage in mine if stage not in self.round.later)) if mine else ()
        first = next(name for name, stages in rounds.items() if stages)
        return tuple(name for stages in rounds.values() for name in stages) if first == self.round.name else ()

    @property
    def uses_stores(self) -> bool:
        """Whether its work may access stores, so that it needs credentials."""
        return any(GRAPH[stage].schedule.stores for stage in self.step.stages)

    def formats(self, config: DatasetConfig) -> tuple[str, ...]:
        """Of a task that exports: the formats that it writes; two may share their bytes, and then the first one's task
        writes both.
        """
        return next((of for of in unit_formats(config.exports).values() if of[0] == self.round.name), ())

    def units(self, build: RunnableBuild, stage: str, part: Part) -> list[str]:
        """The units of one of its stages that a part of it runs, in order, once the stages before it have run."""
        whole = part.of == 1 or self.round.alone
        if not whole and GRAPH[stage].per_shard:
            return build.units_of_shards(stage, part)
        units = build.units(stage)
        if stage == EXPORT:
            kinds = [kind for kind, of in unit_formats(build.config.exports).items() if of[0] == self.round.name]
            units = [unit for unit in units if kind_of(unit) in kinds]
        if whole:
            return units if part.number == 1 else []
        names = list(dict.fromkeys(map(GRAPH[stage].schedule.task, units)))
        share = set(part.of_units(names, [0] * len(names)))
        return [unit for unit in units if GRAPH[stage].schedule.task(unit) in share]


def all_tasks() -> list[Task]:
    """Every task that there is, in order."""
    return [Task(step, round_) for step in STEPS.values() for round_ in step.rounds]


def needed_tasks(config: DatasetConfig, parts: int = 2) -> list[Task]:
    """The tasks that builds of a configuration need, in order, if nobody is asked."""
    return [task for task in all_tasks() if task.stages(config, parts) and not task.round.asked]


def label_of(receipts: Iterable[str]) -> str:
    """What a part of a task ran, for people, from its receipts' addresses: `00000 to 00006`, its shards, or if it has
    none, its units. It opens no build: a scheduler's own environment may lack what computes units.
    """
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for address in receipts:
        stage, step = PurePosixPath(address).parts[-3:-1]
        names[GRAPH[stage].per_shard].add(GRAPH[stage].schedule.task(step.rpartition("-")[0]))
    ran = sorted(names[True] or names[False])
    return f"{ran[0]} to {ran[-1]}" if len(ran) > 1 else "".join(ran) or "nothing"


def find_task(name: str) -> Task:
    """A task by its name; ConfigError if there is none."""
    known = {task.name: task for task in all_tasks()}
    if name not in known:
        raise ConfigError(
            "task.unknown: there is no such task", expected=", ".join(known), got=name, next_step="choose one of these"
        )
    return known[name]


def _stages_of_rounds(step: Step, config: DatasetConfig) -> dict[str, tuple[str, ...]]:
    """{round: the stages that it does}, of those that the configuration needs."""
    done: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    rounds = [round_ for round_ in step.rounds if not round_.asked]
    gone = {name for other in STEPS.values() if other is not step for name in _moved(other, config)}
    for round_ in rounds:
        mine = (*(name for name in round_.stages if name not in gone), *_moved(step, config, round_))
        stages = before + tuple(name for name in mine if GRAPH.is_wanted(name, config))
        waits = round_ is rounds[-1] or round_.barrier(config)
        done[round_.name], before = (stages, ()) if waits else ((), stages)
    return done


def _moved(step: Step, config: DatasetConfig, only: Round | None = None) -> list[str]:
    """The stages of earlier steps that a step does for a configuration, or one of its rounds."""
    rounds = [only] if only else step.rounds
    needed = [round_ for round_ in rounds if any(GRAPH.is_wanted(name, config) for name in round_.stages)]
    return [name for round_ in needed for name in round_.moved]
