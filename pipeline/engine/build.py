"""A build: one planned dataset, its steps, their identities and receipts. Nothing here runs one (running.py)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corpusmill.engine.planned import read_config, read_plan
from corpusmill.engine.reclaim import is_settled
from corpusmill.engine.rollup import Rollup, read_rollup, roll_up, write_rollup
from corpusmill.engine.stage import Stage, StepMissingError, StepName
from corpusmill.errors import PermanentError
from corpusmill.ledger import (
    RECEIPT_NAME,
    Blocks,
    Check,
    InputReceipt,
    Receipt,
    Step,
    asked_again,
    valid_receipt,
)

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.graph import Graph
    from corpusmill.report.progress import StageProgress
    from corpusmill.sources.plan import Plan

COMMON = ".common"  # beside the folders of datasets, none of which can be called so

T = TypeVar("T")


class UndeclaredInputError(PermanentError):
    """The work of a step reads what its fingerprint does not name: the stage is wrong."""


class Build:
    """One planned dataset. Cheap to open; it reads receipts when asked and remembers those that are valid.

    `find_receipt` says which receipts are valid; `verify` has a laxer rule, to go on behind damaged outputs.
    """

    def __init__(
        self, plan_receipt: Path, graph: Graph, find_receipt: Callable[[Step, Path], Receipt | None] = valid_receipt
    ) -> None:
        self.plan_receipt = plan_receipt
        self.graph = graph
        self._find_receipt = find_receipt
        self.plan_folder = plan_receipt.parent
        self.work = plan_receipt.parents[2]
        self._receipts: dict[tuple[str, str], Receipt] = {}
        self._steps: dict[tuple[str, str], Step] = {}
        self._held: set[str] = set()
        self._asked: set[str] = set()
        self._remembered: dict[tuple[object, ...], Any] = {}
        self._missing: dict[tuple[object, ...], StepMissingError] | None = None
        self.settled_now: dict[StepName, bool] | None = None  # at_this_moment, what is known to be settled or not

    @cached_property
    def config(self) -> DatasetConfig:
        """The configuration that was planned."""
        return read_config(self.plan_receipt)

    @cached_property
    def plan(self) -> Plan:
        """The plan: source files grouped into shards."""
        return read_plan(self.plan_receipt)

    def home(self, stage: str) -> Path:
        """The folder below which the steps of a stage lie: the dataset's, or that of all datasets beside it."""
        return self.work.parent / COMMON if self.graph[stage].common else self.work

    def remembered(self, key: tuple[object, ...], work_out: Callable[[], T]) -> T:
        """What `work_out` gives, worked out once for as long as no receipt becomes another.

        Whatever follows from the receipts of all units is asked for by each of them: ten thousand times ten thousand.
        """
        known: T = self._known(self._remembered, key, work_out)
        return known

    def _known(self, known: dict[Any, T], key: tuple[object, ...], work_out: Callable[[], T]) -> T:
        """What is known under a key, worked out if nothing is; at_this_moment, what is missing is known, too."""
        if key not in known:
            if self._missing is not None and key in self._missing:
                raise self._missing[key].with_traceback(None)
            try:
                known[key] = work_out()
            except StepMissingError as error:
                if self._missing is not None:
                    self._missing[key] = error
                raise
        return known[key]

    def units(self, stage: str) -> list[str]:
        """Names of a stage's units; StepMissingError if they are not known yet."""
        wanted = self.graph[stage]
        if wanted.units_of:
            return self.units(wanted.units_of)
        return self.remembered(("units", stage), lambda: wanted.units(self))

    def step(self, stage: str, unit: str) -> Step:
        """One step with its fingerprint; StepMissingError if an input has no valid receipt yet."""
        key = (stage, unit)
        return self._known(self._steps, key, lambda: self._find_step(self.graph[stage], unit))

    def _find_step(self, stage: Stage, unit: str) -> Step:
        names = stage.inputs(self, unit)
        self.graph.require_waits(stage.name, dict(names))
        inputs = self._with_digests(names)
        return Step(stage.name, stage.version, unit, stage.settings(self, unit), inputs)

    def _with_digests(self, inputs: list[StepName]) -> tuple[InputReceipt, ...]:
        rolled = self.rolled_inputs(inputs)
        if self._missing is None:
            for name, of in dict(inputs).items():
                # Of many inputs the last one finishes last: while it is missing, none of the others is looked at.
                if of not in rolled[name]:
                    self.receipt(name, of)
        return tuple(
            InputReceipt(name, of, rolled[name].get(of) or self.receipt(name, of).digest) for name, of in inputs
        )

    def rolled_inputs(self, inputs: list[StepName]) -> dict[str, dict[str, str]]:
        """By stage of a step's inputs, the digests of all its receipts, or none where it has no rollup."""
        wanted: dict[str, int] = {}
        for name, _ in inputs:  # a Counter takes five times as long
            wanted[name] = wanted.get(name, 0) + 1
        return {name: self._rolled(name, number) for name, number in wanted.items()}

    def _rolled(self, stage: str, wanted: int) -> dict[str, str]:
        """A rollup that is not there is made if half of its receipts or more are wanted and all are there: a cell needs
        those of every shard's documents, or of every shard's contexts.
        """
        kept: Rollup | None = self._remembered.get(("rollup", stage)) or self._read_rollup(stage)
        if kept:
            self._remembered["rollup", stage] = kept
            return kept.digests
        units = self.units(stage)
        if wanted > 1 and len(units) <= 2 * wanted and self.find(stage, units[-1]):
            with suppress(StepMissingError):
                return self.rollup(stage).digests
        return {}

    def rollup(self, stage: str) -> Rollup:
        """The digests of a stage's receipts, and the sums of their counts; StepMissingError if one is missing."""
        return self.remembered(("rollup", stage), lambda: self._find_rollup(stage))

    def _find_rollup(self, stage: str) -> Rollup:
        rollup = self._read_rollup(stage)
        if rollup is None:
            rollup = roll_up(self.receipts(stage), self.graph[stage].rolled_up)
            if self._keeps_rollup(stage):
                write_rollup(rollup, self.plan_folder, stage)
        return rollup

    def _read_rollup(self, stage: str) -> Rollup | None:
        rollup = read_rollup(self.plan_folder, stage) if self._keeps_rollup(stage) else None
        return rollup if rollup and list(rollup.digests) == self.units(stage) else None

    def _keeps_rollup(self, stage: str) -> bool:
        # Whoever has another rule, or holds a receipt, has receipts of its own.
        return self._find_receipt is valid_receipt and stage not in self._held

    def find(self, stage: str, unit: str) -> Receipt | None:
        """The valid receipt of a step, or None if it has none. It stands while the step runs again."""
        key = (stage, unit)
        if key in self._receipts:
            return self._receipts[key]
        missing = ("receipt", *key)
        if self._missing is not None and missing in self._missing:
            return None
        try:
            receipt = self._find_receipt(self.step(stage, unit), self.home(stage))
        except StepMissingError:
            receipt = None
        if receipt is not None:
            self._receipts[key] = receipt
        elif self._missing is not None:
            self._missing[missing] = self._unfinished(stage, unit)
        return receipt

    @contextmanager
    def at_this_moment(self) -> Iterator[None]:
        """Look for every missing step once: what finishes while the body of the `with` runs may stay unseen."""
        self._missing, self.settled_now = {}, {}
        try:
            yield
        finally:
            self._missing = self.settled_now = None

    def hold(self, receipt: Receipt) -> None:
        """Take a receipt for its step's, whatever became of the step's inputs and outputs."""
        key = receipt.stage, receipt.unit
        self._held.add(receipt.stage)
        self._put(key, receipt)
        self._steps[key] = Step.of(receipt)

    def note_given_back(self, receipt: Receipt) -> None:
        """Take a receipt that says now what its step gave back: whatever follows from it stays as it was."""
        self._receipts[receipt.stage, receipt.unit] = receipt

    def _put(self, key: tuple[str, str], receipt: Receipt) -> None:
        if key in self._receipts:
            self._remembered.clear()
        self._receipts[key] = receipt

    def receipt(self, stage: str, unit: str) -> Receipt:
        """The valid receipt of a step; StepMissingError if it has none."""
        receipt = self.find(stage, unit)
        if receipt is None:
            known = (self._missing or {}).get(("receipt", stage, unit))
            raise known.with_traceback(None) if known else self._unfinished(stage, unit)
        return receipt

    def _unfinished(self, stage: str, unit: str) -> StepMissingError:
        error = StepMissingError(
            f"{stage} {unit} has not finished, but a later step needs it",
            where=self.home(stage) / stage,
            next_step=f"run {stage} {unit} first; if garbage collection removed it, clear this run from its first"
            " task on, or start a new one",
        )
        error.stage, error.unit = stage, unit
        return error

    def receipts(self, stage: str) -> list[Receipt]:
        """The receipts of every unit of a stage, in order."""
        return self.remembered(("receipts", stage), lambda: [self.receipt(stage, unit) for unit in self.units(stage)])

    def folder(self, stage: str, unit: str, *names: str) -> Path:
        """Where a finished step's outputs lie; those of these names, or all, compared (see ledger/blocks.py).

        DamagedStepError if one is not what the step wrote, or was given back.
        """
        blocks = self.blocks(stage, unit)
        blocks.require(names or None)
        return blocks.folder

    def blocks(self, stage: str, unit: str) -> Blocks:
        """A finished step's outputs, for readers of slices: they compare what they touch."""
        return Blocks(self.step_folder(stage, unit), self.receipt(stage, unit))

    def step_folder(self, stage: str, unit: str) -> Path:
        """Where a finished step's outputs lie; nothing is compared."""
        self.receipt(stage, unit)
        return self.step(stage, unit).folder(self.home(stage))

    def total(self, stage: str, count: str) -> int:
        """One count summed over every unit of a stage."""
        return self.rollup(stage).totals.get(count, 0)

    def checks(self, stage: str) -> list[Check]:
        """The accounts of every finished unit of a stage."""
        node = self.graph[stage]
        return [check for unit in self.units(stage) for check in node.checks(self, unit, self.receipt(stage, unit))]

    def reused(self, stage: str, unit: str) -> bool:
        """Whether a finished step's receipt is older than the newest run of this plan."""
        return not self._is_of_newest_run(self.finished_at(stage, unit))

    def _is_of_newest_run(self, at: float) -> bool:
        from corpusmill.engine.runs import begun_at

        return at >= begun_at(self.plan_folder)

    def _seen(self, stage: str, unit: str) -> float | None:
        """When a receipt that was found was written; None if it is gone by now, or its step is to run again."""
        place = self.step(stage, unit).place(self.home(stage))
        if asked_again(place):
            self._asked.add(place)
            return None
        try:
            at = self.finished_at(stage, unit)
        except FileNotFoundError:
            self._receipts.pop((stage, unit), None)
            self._remembered.clear()
            return None
        return at if self.graph[stage].reuse or self._is_of_newest_run(at) else None

    def finished_at(self, stage: str, unit: str) -> float:
        """When a finished step's receipt was written, by the file system's clock; for people, never for bytes."""
        self.receipt(stage, unit)
        place = self.step(stage, unit).place(self.home(stage))
        return os.stat(f"{place}/{RECEIPT_NAME}").st_mtime  # noqa: PTH116

    def _forget(self) -> None:
        """Read every receipt again: a step has run again."""
        self._receipts.clear()
        self._remembered.clear()
        self._steps.clear()
        self._asked.clear()

    def need_not_run(self, stage: str, unit: str) -> bool:
        """Whether a step has a valid receipt, nobody asked for it again, and none needs files that it gave back."""
        return self.graph[stage].reuse and is_settled(self, stage, unit)

    def progress(self) -> list[StageProgress]:
        """Every stage's finished units, for a progress view; cheap enough to poll."""
        if any(not asked_again(place) for place in self._asked):
            self._forget()  # what follows from a step that has run again may be another
        with self.at_this_moment():
            return [self._stage_progress(stage) for stage in self.graph.names]

    def _stage_progress(self, stage: str) -> StageProgress:
        from corpusmill.report.progress import StageProgress

        try:
            units = self.units(stage)
        except StepMissingError:
            return StageProgress(stage=stage, units_done=0, units_total=None, bytes_done=0, seconds=0.0)
        finished = [(unit, receipt) for unit in units if (receipt := self.find(stage, unit))]
        done = [(at, receipt) for unit, receipt in finished if (at := self._seen(stage, unit))]
        fresh = [(at, receipt) for at, receipt in done if self._is_of_newest_run(at)]
        seconds = 0.0
        if fresh:
            began = min(at - receipt.seconds for at, receipt in fresh)
            seconds = (max(at for at, _ in fresh) if len(done) == len(units) else time.time()) - began
        return StageProgress(
            stage=stage,
            units_done=len(done),
            units_total=len(units),
            bytes_done=sum(receipt.counts.get("bytes_read", 0) for _, receipt in fresh),
            seconds=max(0.0, seconds),
            units_reused=len(done) - len(fresh),
        )


class StepView(Build):
    """A build as the work of one step sees it: its settings, and the receipts and outputs of its inputs alone.

    What a step reads beside its inputs and settings would be missing in its fingerprint, and the step would be reused
    when that has changed. Stages that run every time see the whole build.
    """

    def __init__(self, build: Build, step: Step) -> None:
        super().__init__(build.plan_receipt, build.graph)
        self.settings = step.settings
        self._build = build
        self._step = step
        self._inputs = {(receipt.stage, receipt.unit) for receipt in step.inputs}
        self.config, self.plan = build.config, build.plan

    def units(self, stage: str) -> list[str]:
        """See Build."""
        return self._build.units(stage)

    def find(self, stage: str, unit: str) -> Receipt | None:
        """See Build; UndeclaredInputError for a step that is no input."""
        self._require_declared(stage, unit)
        return self._build.find(stage, unit)

    def rollup(self, stage: str) -> Rollup:
        """See Build; UndeclaredInputError unless all steps of the stage are inputs."""
        for unit in self.units(stage):
            self._require_declared(stage, unit)
        return self._build.rollup(stage)

    def _require_declared(self, stage: str, unit: str) -> None:
        if (stage, unit) not in self._inputs:
            raise UndeclaredInputError(
                f"{self._step.stage} {self._step.unit} reads from a step that is not among its inputs",
                expected=f"one of its {len(self._inputs):,} inputs",
                got=f"{stage} {unit}",
                next_step=f"name it in the inputs of stage {self._step.stage}, or put what is read into its settings",
            )

    def step(self, stage: str, unit: str) -> Step:
        """See Build."""
        return self._build.step(stage, unit)
