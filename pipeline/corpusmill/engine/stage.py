"""The definition of a stage: what it is and does; beside that, how it is scheduled and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.ledger import Check, Receipt
from corpusmill.errors import PermanentError

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


def _no_units(build: Build) -> list[str]:  # noqa: ARG001
    return []


def _no_checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:  # noqa: ARG001
    return []


def _nothing_outside(build: Build, unit: str) -> bool:  # noqa: ARG001
    return False


def _no_gate(build: Build) -> None:
    pass


def _no_flows(build: Build) -> dict[str, Flow]:  # noqa: ARG001
    return {}


def _nothing_more(receipts: Iterator[Receipt]) -> dict[str, Any]:  # noqa: ARG001
    return {}


def _nothing_recounted(build: Build, unit: str, folder: Path) -> Recount:  # noqa: ARG001
    return Recount({})


def _whole_unit(unit: str) -> str:
    return unit


@dataclass(frozen=True)
class Schedule:
    """How a scheduler runs a stage.

    `stores`    its work may access stores, so the scheduler passes it credentials
    `task`      the name that decides a unit's task: units of one name, such as those of one shard, share a task
    `memory`    (the key that decides, bytes) that one task takes by its settings, if that is much
    `approval`  Markdown that a person may have to approve before the build continues, "" if there is nothing to ask
    """

    stores: bool = False
    task: Callable[[str], str] = _whole_unit
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
    flows: Callable[[Build], dict[str, Flow]] = _no_flows
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
    units: Callable[[Build], list[str]] = _no_units
    units_of: str = ""
    has_unit: Callable[[Build, str], bool] | None = None
    wanted: Callable[[DatasetConfig], bool] = lambda _config: True
    per_shard: bool = False
    checks: Callable[[Build, str, Receipt], list[Check]] = _no_checks
    gate: Callable[[Build], None] = _no_gate
    common: bool = False
    outside: Callable[[Build, str], bool] = _nothing_outside
    reclaimed: tuple[str, ...] = ()
    read_until: str = ""
    rolled_up: Callable[[Iterator[Receipt]], dict[str, Any]] = _nothing_more
    delivers: bool = False
    recount: Callable[[Build, str, Path], Recount] = _nothing_recounted
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
