"""What a stage is, and the order and versions of all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.ledger import Check, Outcome, Receipt

if TYPE_CHECKING:
    from pipeline.stages.build import Build

# In the order in which they run. The number is the stage's version: raise it whenever the stage's bytes change for the
# same inputs and settings, and every dataset redoes that stage and what depends on it.
VERSIONS = {
    "plan": 1,
    "download": 3,
    "index": 4,
    "anchor": 2,
    "suffix_array": 1,
    "match": 3,
    "union": 2,
    "writeback": 5,
    "tokenize": 3,
    "audit": 3,
    "scatter": 4,
    "gather": 3,
    "export": 4,
    "manifest": 6,
    "upload": 2,
    "report": 3,
}

# Stages whose units are shards (scatter: shard and kind of record); one shard of them can be done again by itself.
PER_SHARD = ("download", "index", "anchor", "suffix_array", "union", "writeback", "tokenize", "scatter")

LEAST_SPREAD = 16  # tasks that a stage without shards may have, however few shards there are

# Stages that may run at the same time; a wave starts when the one before it has ended.
WAVES = (
    ("download",),
    ("index",),
    ("anchor", "suffix_array"),
    ("match",),
    ("union",),
    ("writeback", "tokenize"),
    ("audit",),
    ("scatter",),
    ("gather",),
    ("export",),
    ("manifest",),
    ("upload",),
    ("report",),
)


def waves_until(stage: str) -> tuple[tuple[str, ...], ...]:
    """The waves up to the one that holds `stage`."""
    return WAVES[: next(place for place, wave in enumerate(WAVES) if stage in wave) + 1]


def _no_checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:  # noqa: ARG001
    return []


def _all_inside(build: Build, unit: str) -> bool:  # noqa: ARG001
    return False


def _no_gate(build: Build) -> None:
    pass


def _whole_unit(unit: str) -> str:
    return unit


def _no_limit(shards: int) -> int:  # noqa: ARG001
    return sys.maxsize


def as_many_as_shards(shards: int) -> int:
    """Tasks of a stage whose units are no shards: shards are how a dataset says how widely it is spread."""
    return max(shards, LEAST_SPREAD)


@dataclass(frozen=True)
class Stage:
    """One stage; see the package's docstring.

    `reuse` false: the stage looks at the world outside the work folder and runs every time. `outside`: whether a unit's
    receipt speaks of bytes that lie elsewhere, so that it runs again where all is verified. `gate` runs before every
    step, reused or not, and raises when the build must not go on. `task` names the scheduler's task that a unit belongs
    to: its units run one after another, so that a stage with several units per shard still has one task per shard.
    `most_tasks`, of the number of shards: where there would be more, neighbours share one, because a scheduler spends
    a second on a task whatever it does.
    `delivers`: the outputs are meant for people and stores, and receipts state their sha256.
    """

    name: str
    units: Callable[[Build], list[str]]
    inputs: Callable[[Build, str], list[tuple[str, str]]]
    settings: Callable[[Build, str], dict[str, Any]]
    run: Callable[[Build, str, Path], Outcome]
    checks: Callable[[Build, str, Receipt], list[Check]] = _no_checks
    gate: Callable[[Build], None] = _no_gate
    task: Callable[[str], str] = _whole_unit
    most_tasks: Callable[[int], int] = _no_limit
    reuse: bool = True
    outside: Callable[[Build, str], bool] = _all_inside
    delivers: bool = False


def every(build: Build, stage: str) -> list[tuple[str, str]]:
    """All steps of a stage, as inputs."""
    return [(stage, unit) for unit in build.units(stage)]
