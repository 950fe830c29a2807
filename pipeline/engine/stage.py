"""The definition of a stage: one frozen value that states everything about it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import PermanentError
from corpusmill.ledger import Check, Outcome, Receipt

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.build import Build
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


def _no_settings(build: Build, unit: str) -> dict[str, Any]:  # noqa: ARG001
    return {}


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
class Stage:
    """Everything about one stage.

    What it is:

    `version`       raise it whenever the stage's bytes change for the same inputs and settings: every dataset then
                    redoes the stage and what depends on it
    `after`         the stages that must finish before its units run
    `units`         the names of its units; or `units_of` names a stage that has the same ones
    `units_after`   the stages whose receipts determine the units; empty if the plan does
    `per_shard`     its units are shards, or end in `-<shard>`: a single shard can be reprocessed
    `inputs`        the steps whose outputs a unit reads; all those of a stage are one input (`whole`)
    `settings`      everything else that can change its bytes

    What it does:

    `run`           the work, which writes files into the folder it is given. Its build is a StepView (engine/build.py),
                    which shows the step's settings and inputs and nothing else; the whole build where `reuse` is false
    `checks`        the accounts that must balance once it has run
    `gate`          runs before every step, reused or not, and raises when the build must stop
    `reuse`         false: the stage looks at the world outside the work folder and runs every time
    `common`        all datasets of a work folder share its steps, whose identity names no dataset
    `outside`       whether a unit's receipt covers bytes outside the work folder, so that verifying runs it again
    `reclaimed`     patterns of the files that `reclaim: eager` deletes once every step that reads them has finished
    `read_until`    the last stage that reads these files; later stages read receipts and other files only
    `rolled_up`     what later tasks need of all its receipts besides digests and totals (engine/rollup.py), as JSON
    `delivers`      its outputs are delivered, so receipts state their sha256
    `recount`       what a step's files hold, counted again from the files alone, independent of the counters of `run`;
                    what only the work itself could give (seconds, candidates) is left to the receipts' digests

    How a scheduler runs it:

    `stores`        its work may access stores, so the scheduler passes it credentials
    `group`         the group of stages that it is shown in
    `task`          the name under which a unit is put into a task: units of one name, such as those of one shard, are
                    always in the same
    `most_tasks`    the most tasks its units are divided into, if each task has much to load
    `memory`        (the key that decides, bytes) that one task takes by its settings, if that is much
    `approval`      Markdown that a person may have to approve before the build continues, "" if there is nothing to ask
    `approved`      a word for what is approved, which names the approval task; "": the stage's name

    How people see it:

    `unit_word`     the word for one unit
    `flows`         {"documents", "text_bytes" or "tokens": how many come in, go out and are lost}
    `on_trunk`      false: later stages do not read its output
    """

    name: str
    version: int
    after: tuple[str, ...]
    inputs: Callable[[Build, str], list[StepName]]
    run: Callable[[Any, str, Path], Outcome]
    units: Callable[[Build], list[str]] = _no_units
    units_of: str = ""
    units_after: tuple[str, ...] = ()
    per_shard: bool = False
    settings: Callable[[Build, str], dict[str, Any]] = _no_settings
    checks: Callable[[Build, str, Receipt], list[Check]] = _no_checks
    gate: Callable[[Build], None] = _no_gate
    reuse: bool = True
    common: bool = False
    outside: Callable[[Build, str], bool] = _nothing_outside
    reclaimed: tuple[str, ...] = ()
    read_until: str = ""
    rolled_up: Callable[[Iterator[Receipt]], dict[str, Any]] = _nothing_more
    delivers: bool = False
    stores: bool = False
    recount: Callable[[Build, str, Path], Recount] = _nothing_recounted
    group: str = ""
    task: Callable[[str], str] = _whole_unit
    most_tasks: int = sys.maxsize
    memory: Callable[[DatasetConfig], tuple[str, int] | None] = lambda _config: None
    approval: Callable[[Build], str] | None = None
    approved: str = ""
    unit_word: str = "shard"
    flows: Callable[[Build], dict[str, Flow]] = _no_flows
    on_trunk: bool = True


def every(build: Build, stage: str) -> list[StepName]:
    """All steps of a stage."""
    return [(stage, unit) for unit in build.units(stage)]


def whole(build: Build, *stages: str, kind: str = "") -> list[StepName]:
    """All steps of these stages whose units begin with `kind`, as inputs: one for each stage that has any.

    Its digest is that of all their receipts' digests, so that a step with 50,000 inputs takes no longer to open.
    """
    return [(stage, f"{kind}{MANY}") for stage in stages if build.named(stage, f"{kind}{MANY}")]
