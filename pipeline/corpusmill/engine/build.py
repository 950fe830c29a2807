"""A build: one planned dataset, its steps, their identities and receipts. Nothing here runs one (running.py)."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from corpusmill.engine.ledger import (
    RECEIPT_NAME,
    Blocks,
    Check,
    InputReceipt,
    Receipt,
    Step,
    place_of,
    read_receipt,
    valid_receipt,
)
from corpusmill.engine.plan import read_config, read_plan
from corpusmill.engine.reclaim import is_settled, note_files
from corpusmill.engine.rollup import Digests, Rollup, digest_of_many, read_rollup, roll_up, write_rollup
from corpusmill.engine.stage import MANY, Stage, StepMissingError, StepName
from corpusmill.errors import CorruptDataError

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.plan import Plan
    from corpusmill.engine.rollup import NotedStage
    from corpusmill.engine.stage import Graph

COMMON = ".common"  # beside the folders of datasets, whose names cannot begin with a dot
FILES_KEPT = 64  # files of a work folder in a bucket that stay open between steps

T = TypeVar("T")


class Build:
    """One planned dataset. Cheap to open; it reads receipts on demand and caches valid ones.

    `find_receipt` decides which receipts are valid; `verify` passes a laxer rule, to continue past damaged outputs.
    """

    def __init__(
        self, plan_receipt: Path, graph: Graph, find_receipt: Callable[[Step, Path], Receipt | None] = valid_receipt
    ) -> None:
        self.plan_receipt = plan_receipt
        self.graph = graph
        self._find_receipt = find_receipt
        self.plan_folder = plan_receipt.parent
        self.work = plan_receipt.parents[2]
        self._receipts: defaultdict[str, dict[str, Receipt]] = defaultdict(dict)  # by stage and unit
        self._steps: defaultdict[str, dict[StepName, Step]] = defaultdict(dict)  # by stage
        self._held: set[str] = set()
        self.noted_stages: dict[str, NotedStage] = {}  # of unchanged stages (rollup.py)
        self._remembered: dict[tuple[object, ...], Any] = {}
        self._missing: dict[tuple[object, ...], StepMissingError] | None = None
        self.settled_now: dict[StepName, bool] | None = None  # in at_this_moment: is_settled's results
        self._unrolled: set[str] | None = None  # in at_this_moment: stages without a rollup
        self.kept: deque[BinaryIO] = deque(maxlen=FILES_KEPT)

    @cached_property
    def config(self) -> DatasetConfig:
        """The configuration that was planned."""
        return read_config(self.plan_receipt)

    @cached_property
    def plan(self) -> Plan:
        """The plan: source files grouped into shards."""
        return read_plan(self.plan_receipt)

    def home(self, stage: str) -> Path:
        """The folder above a stage's folder: the dataset's, or for a common stage the one that all datasets share."""
        return self.work.parent / COMMON if self.graph[stage].common else self.work

    def remembered(self, key: tuple[object, ...], work_out: Callable[[], T]) -> T:
        """The result of `work_out`, which may depend on receipts' digests; cached until one of these changes.

        Without the cache, what follows from the receipts of all units would be computed for each unit: quadratic time.
        """
        known: T = self._known(self._remembered, key, work_out)
        return known

    def _known(self, known: dict[Any, T], key: tuple[object, ...], work_out: Callable[[], T]) -> T:
        """A cached value, computed if it is missing; within at_this_moment, StepMissingError is cached, too."""
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
        node = self.graph[stage]
        if not self.graph.is_wanted(stage, self.config):
            return []
        if node.has_unit:
            return self.remembered(("units", stage), lambda: self._having(node, self.units(node.units_of)))
        if node.units_of:
            return self.units(node.units_of)
        return self.remembered(("units", stage), lambda: node.units(self))

    def _having(self, stage: Stage, units: list[str]) -> list[str]:
        return [unit for unit in units if stage.has_unit is None or stage.has_unit(self, unit)]

    def has_unit(self, stage: str, unit: str) -> bool:
        """Whether a stage has this unit, by what is known of the unit alone."""
        node = self.graph[stage]
        if not self.graph.is_wanted(stage, self.config):
            return False
        of = node.units_of if node.has_unit else stage
        known = self.remembered(("set of units", of), lambda: frozenset(self.units(of)))
        return unit in known and (node.has_unit is None or node.has_unit(self, unit))

    def step(self, stage: str, unit: str) -> Step:
        """One step with its fingerprint; StepMissingError if an input has no valid receipt yet."""
        return self._known(self._steps[stage], (stage, unit), lambda: self._find_step(self.graph[stage], unit))

    def _find_step(self, stage: Stage, unit: str) -> Step:
        names = stage.inputs(self, unit)
        self.graph.require_waits(stage.name, dict(names))
        inputs = self._with_digests(names)
        return Step(stage.name, stage.version, unit, stage.settings(self, unit), inputs)

    def inputs(self, stage: str, unit: str) -> list[StepName]:
        """The steps that one reads from, each by its own name."""
        return [(name, of) for name, named in self.graph[stage].inputs(self, unit) for of in self.named(name, named)]

    def named(self, stage: str, unit: str) -> list[str]:
        """The units that an input's unit names: one, or all that begin so (see MANY)."""
        if not unit.endswith(MANY):
            return [unit]
        beginning = unit.removesuffix(MANY)
        return self.remembered(
            ("named", stage, unit), lambda: [of for of in self.units(stage) if of.startswith(beginning)]
        )

    def _with_digests(self, inputs: list[StepName]) -> tuple[InputReceipt, ...]:
        rolled = self.rolled_inputs(inputs)
        if self._missing is None:
            for name, of in dict(inputs).items():
                # The last of many inputs usually finishes last: while it is missing, no other is read.
                last, digests = self.named(name, of)[-1], rolled[name]
                if digests is None or (of == last and last not in digests):
                    self.receipt(name, last)

        def digest(stage: str, unit: str) -> str:
            if unit.endswith(MANY):
                return self.digest_of_many(stage, unit)
            digests = rolled[stage]
            return (digests and digests.get(unit)) or self.receipt(stage, unit).digest

        return tuple(InputReceipt(name, of, digest(name, of)) for name, of in inputs)

    def digest_of_many(self, stage: str, unit: str) -> str:
        """The digest of all receipts that an input names (see MANY)."""

        def find_digest() -> str:
            units = self.named(stage, unit)
            digests = self._digests(stage, len(units))
            if digests is None:
                digests = Digests(units, b"".join(bytes.fromhex(self.receipt(stage, of).digest) for of in units))
            return digest_of_many(digests.of(units))

        return self.remembered(("digest", stage, unit), find_digest)

    def rolled_inputs(self, inputs: list[StepName]) -> dict[str, Digests | None]:
        """For each stage among the inputs, the digests of all its receipts; None if it has no rollup."""
        wanted: dict[str, int] = {}
        for name, of in inputs:  # a Counter takes five times as long
            wanted[name] = wanted.get(name, 0) + len(self.named(name, of))
        return {name: self._digests(name, number) for name, number in wanted.items()}

    def _digests(self, stage: str, wanted: int) -> Digests | None:
        """A missing rollup is made if at least half of its receipts are wanted and all exist: a cell needs those of all
        shards.
        """
        kept: Rollup | None = self._remembered.get(("rollup", stage))
        if kept is None and stage not in (self._unrolled or ()):
            with suppress(StepMissingError):  # its units depend on steps that have not finished
                kept = self._read_rollup(stage)
            if kept is None and self._unrolled is not None:
                self._unrolled.add(stage)
        if kept:
            self._remembered["rollup", stage] = kept
            return kept.digests
        if wanted == 1:  # nor are its units asked for, which may depend on steps that have not finished
            return None
        units = self.units(stage)
        if len(units) <= 2 * wanted and self.find(stage, units[-1]):
            with suppress(StepMissingError):
                return self.rollup(stage).digests
        return None

    def rollup(self, stage: str) -> Rollup:
        """The digests of a stage's receipts, and the sums of their counts; StepMissingError if one is missing."""
        return self.remembered(("rollup", stage), lambda: self._find_rollup(stage))

    def _find_rollup(self, stage: str) -> Rollup:
        rollup = self._read_rollup(stage)
        if rollup is None:
            rollup = roll_up(self._passing(stage), self.graph[stage].rolled_up)
            if self.keeps_rollup(stage):
                write_rollup(rollup, self.plan_folder, stage)
        return rollup

    def _passing(self, stage: str) -> Iterator[Receipt]:
        """The receipts of a stage; those that were not cached before are not cached."""
        for unit in self.units(stage):
            known = unit in self._receipts[stage]
            yield self.receipt(stage, unit)
            if not known:
                self._receipts[stage].pop(unit, None)
                self._steps[stage].pop((stage, unit), None)

    def _read_rollup(self, stage: str) -> Rollup | None:
        return read_rollup(self.plan_folder, stage, self.units(stage)) if self.keeps_rollup(stage) else None

    def keeps_rollup(self, stage: str) -> bool:
        """Whether a stage's receipts are those of its rollup: not with another rule, nor with a held receipt."""
        return self._find_receipt is valid_receipt and stage not in self._held

    def find(self, stage: str, unit: str) -> Receipt | None:
        """The valid receipt of a step, or None. It remains valid while the step runs again."""
        if unit in self._receipts[stage]:
            return self._receipts[stage][unit]
        missing = ("receipt", stage, unit)
        if self._missing is not None and missing in self._missing:
            return None
        receipt = self._noted_receipt(stage, unit) if stage in self.noted_stages else None
        try:
            receipt = receipt or self._find_receipt(self.step(stage, unit), self.home(stage))
        except StepMissingError:
            receipt = None
        if receipt is not None:
            self._receipts[stage][unit] = receipt
        elif self._missing is not None:
            self._missing[missing] = self._unfinished(stage, unit)
        return receipt

    def _noted_receipt(self, stage: str, unit: str) -> Receipt | None:
        """The receipt of a step of an unchanged stage; if it cannot be read after all, the stage has changed."""
        try:
            receipt = read_receipt(f"{self.place(stage, unit)}/{RECEIPT_NAME}")
        except (FileNotFoundError, CorruptDataError):
            receipt = None
        if receipt is None or receipt.fingerprint != self.noted_stages[stage].steps[unit].fingerprint:
            del self.noted_stages[stage]
            return None
        return receipt

    @contextmanager
    def at_this_moment(self) -> Iterator[None]:
        """Look up every missing step only once: steps that finish during the `with` may go unnoticed."""
        self._missing, self.settled_now, self._unrolled = {}, {}, set()
        try:
            yield
        finally:
            self._missing = self.settled_now = self._unrolled = None

    def hold(self, receipt: Receipt) -> None:
        """Use a receipt as its step's, whatever happened to the step's inputs and outputs."""
        self._held.add(receipt.stage)
        self._put(receipt)
        self._steps[receipt.stage][receipt.stage, receipt.unit] = Step.of(receipt)

    def note_reclaimed(self, receipt: Receipt) -> None:
        """Replace a receipt by one that lists its reclaimed outputs; cached results stay valid."""
        self._receipts[receipt.stage][receipt.unit] = receipt

    def _put(self, receipt: Receipt) -> None:
        before = self._receipts[receipt.stage].get(receipt.unit)
        if before is not None and before.digest != receipt.digest:
            self._remembered.clear()
        elif before is not None:  # what was computed from its digest is still valid: ten thousand may run again
            self._remembered.pop(("receipts", receipt.stage), None)
            note_files(self, receipt.stage, receipt.unit)
        self._receipts[receipt.stage][receipt.unit] = receipt

    def receipt(self, stage: str, unit: str) -> Receipt:
        """The valid receipt of a step; StepMissingError if it has none."""
        receipt = self.find(stage, unit)
        if receipt is None:
            known = (self._missing or {}).get(("receipt", stage, unit))
            raise known.with_traceback(None) if known else self._unfinished(stage, unit)
        return receipt

    def _unfinished(self, stage: str, unit: str) -> StepMissingError:
        error = StepMissingError(
            f"step.not_finished: {stage} {unit} has not finished, but a later step needs it",
            where=f"{self.home(stage)}/{stage}",  # text, not a Path: raised very often
            next_step=f"run {stage} {unit} first; if garbage collection removed it, clear this run from its first"
            " task on, or start a new one",
        )
        error.stage, error.unit = stage, unit
        return error

    def receipts(self, stage: str) -> list[Receipt]:
        """The receipts of every unit of a stage, in order."""
        return self.remembered(("receipts", stage), lambda: [self.receipt(stage, unit) for unit in self.units(stage)])

    def folder(self, stage: str, unit: str, *names: str) -> Path:
        """The folder of a finished step's outputs, after checking those of these names, or all (see ledger/blocks.py).

        DamagedStepError if one is damaged or was reclaimed. Outputs in a bucket stay on this machine until the step
        that reads them ends, or, between steps, until FILES_KEPT others were opened.
        """
        blocks = self.blocks(stage, unit)
        self.kept.extend(blocks.kept(names or None))
        return blocks.folder

    def opened(self, stage: str, unit: str, *names: str) -> AbstractContextManager[Path]:
        """The same, but files are kept only during the `with`: for a step that reads many others in turn."""
        return self.blocks(stage, unit).opened(names or None)

    def blocks(self, stage: str, unit: str) -> Blocks:
        """A finished step's outputs, for readers of slices, which check only the blocks that they read."""
        return Blocks(self.step_folder(stage, unit), self.receipt(stage, unit))

    def step_folder(self, stage: str, unit: str) -> Path:
        """The folder of a finished step's outputs, unchecked."""
        self.receipt(stage, unit)
        return Path(self.place(stage, unit))

    def place(self, stage: str, unit: str) -> str:
        """The same of any step as text, finished or not; StepMissingError if an input has no valid receipt yet."""
        if stage in self.noted_stages:
            return place_of(self.home(stage), stage, unit, self.noted_stages[stage].steps[unit].fingerprint)
        return self.step(stage, unit).place(self.home(stage))

    def total(self, stage: str, count: str) -> int:
        """One count summed over every unit of a stage."""
        return self.rollup(stage).totals.get(count, 0)

    def checks(self, stage: str) -> list[Check]:
        """The balance checks of every finished unit of a stage."""
        node = self.graph[stage]
        return [check for unit in self.units(stage) for check in node.checks(self, unit, self.receipt(stage, unit))]

    def finished_at(self, stage: str, unit: str) -> float:
        """When a finished step's receipt was written, by the file system's clock; for people, never for bytes."""
        self.receipt(stage, unit)
        return os.stat(f"{self.place(stage, unit)}/{RECEIPT_NAME}").st_mtime  # noqa: PTH116

    def _forget(self) -> None:
        """Drop all caches: a step has run again."""
        self._receipts.clear()
        self._remembered.clear()
        self._steps.clear()
        self.noted_stages.clear()

    def need_not_run(self, stage: str, unit: str) -> bool:
        """Whether a step has a valid receipt, is not requested again, and no step needs files that were reclaimed."""
        return self.graph[stage].reuse and is_settled(self, stage, unit)
