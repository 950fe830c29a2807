"""A build as its receipts recorded it: followed from step to step even where a receipt is damaged.

`Build` finds a step by a fingerprint that holds the digests of its inputs' receipts, so one edited receipt would make
all later steps look as if they had never run. What a receipt's digest was is also written in the receipts of the steps
that read it, and their own fingerprints vouch for those. Where the two differ, or the receipt is gone, this class goes
on with the digest that the readers name, and the damage stays where it is.

What cannot be worked out from damaged receipts (cells, partitions and output files follow from counts) is taken from
the receipts on disk whose inputs are the current ones: those whose settings agree most, then the newest.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from corpusmill.config import DatasetConfig
from corpusmill.engine.build import Build, StepMissingError
from corpusmill.engine.graph import PLAN, PLAN_VERSION, Graph
from corpusmill.errors import CorpusmillError
from corpusmill.fingerprint import FOLDER_DIGITS
from corpusmill.ledger import RECEIPT_NAME, InputReceipt, Receipt, Step
from corpusmill.ledger.receipt import parse_receipt
from corpusmill.sources.plan import Plan
from corpusmill.verify.finding import DAMAGE

STEP_FOLDER = re.compile(rf"(.+)-([0-9a-f]{{{FOLDER_DIGITS}}})")

StepName = tuple[str, str]


@dataclass(frozen=True)
class Recorded:
    """A step folder and what its receipt says; `receipt` is None and `error` says why if it cannot be read."""

    folder: Path
    receipt: Receipt | None
    error: BaseException | None
    written_at: float

    @cached_property
    def own_fingerprint(self) -> str | None:
        """The fingerprint that follows from the receipt's own stage, version, unit, settings and inputs."""
        return None if self.receipt is None else fingerprint_of(self.receipt)

    @property
    def belongs(self) -> bool:
        """Whether the receipt is this folder's, though perhaps edited."""
        return self.receipt is not None and self.folder.name[-FOLDER_DIGITS:] in {
            self.receipt.fingerprint[:FOLDER_DIGITS],
            (self.own_fingerprint or "")[:FOLDER_DIGITS],
        }

    @property
    def vouched_for(self) -> bool:
        """Whether stage, version, unit, settings and inputs are as written: the folder's name is their fingerprint."""
        return self.belongs and self.receipt is not None and self.own_fingerprint == self.receipt.fingerprint


def fingerprint_of(receipt: Receipt) -> str | None:
    """See Recorded.own_fingerprint; None for settings that no step can have."""
    one = receipt
    try:
        return Step(one.stage, one.stage_version, one.unit, one.settings, one.inputs).fingerprint()
    except CorpusmillError:
        return None


def read_folder(folder: Path) -> Recorded | None:
    """The receipt of a step folder, readable or not; None if there is no receipt."""
    path = folder / RECEIPT_NAME
    if not path.exists():
        return None
    try:
        return Recorded(folder, parse_receipt(path), None, path.stat().st_mtime)
    except DAMAGE as error:
        return Recorded(folder, None, error, path.stat().st_mtime)


class RecordedBuild(Build):
    """See the module's docstring. Opening it reads every receipt of the dataset; nothing is read after that."""

    def __init__(self, plan_receipt: Path, graph: Graph) -> None:
        super().__init__(plan_receipt, graph)
        self.recorded: dict[Path, Recorded] = {}
        self.folders: dict[StepName, Path | None] = {}
        self.damaged: set[StepName] = set()
        self._digests: dict[StepName, str] = {}
        self._units: dict[str, list[str]] = {}
        self._named_by: dict[StepName, dict[str, list[Recorded]]] = {}
        self._known: dict[StepName, set[str]] = {}
        self._read_receipts()
        if self.planned is not None:
            self._follow()

    @cached_property
    def planned(self) -> dict[str, Any] | None:
        """Configuration and plan, from the plan's receipt or its files: whichever the folder's fingerprint vouches for.

        None if neither: then nothing can be said about this build.
        """
        recorded = self.recorded.get(self.plan_folder)
        candidates = [recorded.receipt.settings] if recorded and recorded.receipt else []
        with suppress(*DAMAGE):  # what is wrong with the plan's files is said where every step's files are checked
            candidates.append(
                {name: json.loads((self.plan_folder / f"{name}.json").read_bytes()) for name in ("config", PLAN)}
            )
        return next((one for one in candidates if self._is_planned(one)), None)

    def _is_planned(self, settings: dict[str, Any]) -> bool:
        with suppress(CorpusmillError):  # settings that no step can have
            return self._plan_step(settings).folder(self.work) == self.plan_folder
        return False

    def _plan_step(self, settings: dict[str, Any]) -> Step:
        return Step(PLAN, PLAN_VERSION, self.work.name, settings, ())

    @cached_property
    def config(self) -> DatasetConfig:
        """The configuration that was planned."""
        return DatasetConfig.model_validate((self.planned or {})["config"])

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        return Plan.model_validate((self.planned or {})[PLAN])

    def steps(self) -> list[StepName]:
        """Every step of the build, the plan first."""
        return [(PLAN, self.work.name), *self.folders]

    def located(self, stage: str, unit: str) -> Path | None:
        """The folder of a step, there or not; None if damage elsewhere hides which one it is."""
        return self.plan_folder if stage == PLAN else self.folders[stage, unit]

    def named_by(self, stage: str, unit: str) -> list[Receipt]:
        """The receipts of the steps that name a step's receipt with the digest that counts."""
        readers = self._named_by.get((stage, unit), {}).get(self._digests.get((stage, unit), ""), [])
        return [one.receipt for one in readers if one.receipt]

    def digest(self, stage: str, unit: str) -> str:
        """The digest of a step's receipt as its readers know it; StepMissingError if neither it nor they are there."""
        if (stage, unit) not in self._digests:
            raise StepMissingError(f"{stage} {unit} left no trace", where=self.work / stage)
        return self._digests[stage, unit]

    def step(self, stage: str, unit: str) -> Step:
        """See Build; inputs by the digests that their readers name."""
        key = (stage, unit)
        if stage == PLAN:
            return self._plan_step(self.planned or {})
        if key not in self._steps:
            one = self.graph[stage]
            inputs = tuple(
                InputReceipt(stage=name, unit=of, digest=self.digest(name, of)) for name, of in one.inputs(self, unit)
            )
            self._steps[key] = Step(stage, one.version, unit, one.settings(self, unit), inputs)
        return self._steps[key]

    def find(self, stage: str, unit: str) -> Receipt | None:
        """The receipt of a step, damaged files or not; None if there is none that belongs to it."""
        folder = self.located(stage, unit) if stage == PLAN or (stage, unit) in self.folders else None
        recorded = self.recorded.get(folder) if folder else None
        return recorded.receipt if recorded and recorded.belongs else None

    def folder(self, stage: str, unit: str) -> Path:
        """Where a step's outputs lie, whole or not; StepMissingError if nobody knows."""
        folder = self.located(stage, unit)
        if folder is None:
            raise StepMissingError(f"nothing says where the outputs of {stage} {unit} are", where=self.work / stage)
        return folder

    def units(self, stage: str) -> list[str]:
        """See Build."""
        return self._units[stage] if stage in self._units else super().units(stage)

    def _read_receipts(self) -> None:
        for stage in (PLAN, *self.graph.names):
            parent = self.work / stage
            for folder in sorted(parent.iterdir()) if parent.is_dir() else []:
                recorded = read_folder(folder) if STEP_FOLDER.fullmatch(folder.name) else None
                if recorded:
                    self.recorded[folder] = recorded
                    self._note(stage, recorded)

    def _note(self, stage: str, recorded: Recorded) -> None:
        if recorded.receipt and recorded.belongs:
            name = STEP_FOLDER.sub(r"\1", recorded.folder.name)
            self._known.setdefault((stage, name), set()).add(recorded.receipt.digest)
        if recorded.receipt and recorded.vouched_for:
            for one in recorded.receipt.inputs:
                self._named_by.setdefault((one.stage, one.unit), {}).setdefault(one.digest, []).append(recorded)

    def _follow(self) -> None:
        """Find every step's folder and digest, in the order in which they ran: each needs only those before it."""
        for stage in self.graph.names:
            units = self._find_units(stage)
            found = {(stage, unit): self._locate(stage, unit) for unit in units}
            self._units[stage] = units
            for key, folder in found.items():
                self.folders[key] = folder
            for key in found:
                receipt = self.find(*key)
                digest = self._choose_digest(key, receipt)
                if digest is not None:
                    self._digests[key] = digest
                if receipt is None or receipt.digest != digest:
                    self.damaged.add(key)

    def _find_units(self, stage: str) -> list[str]:
        try:
            units = super().units(stage)
        except DAMAGE:
            if not self.damaged:
                raise
            units = []
        if not self.damaged:
            return units
        there = {unit for unit, _ in self._current(stage)}
        units = [unit for unit in units if unit in there or (stage, unit) in self._named_by]
        return [*units, *sorted(there - set(units))]

    def _locate(self, stage: str, unit: str) -> Path | None:
        try:
            step = self.step(stage, unit)
        except DAMAGE:
            if not self.damaged:
                raise
            step = None
        folder = step.folder(self.work) if step else None
        if folder and (folder.is_dir() or not self.damaged):
            return folder
        wanted = step.settings if step else {}
        candidates = [one for name, one in self._current(stage) if name == unit]
        return max(candidates, key=lambda one: _likeness(one, wanted)).folder if candidates else folder

    def _current(self, stage: str) -> list[tuple[str, Recorded]]:
        """Units and folders of a stage on disk whose inputs are all current."""
        return [
            (one.receipt.unit, one)
            for folder, one in self.recorded.items()
            if folder.parent.name == stage and one.receipt and one.vouched_for and one.receipt.inputs
            if all(self._digests.get((read.stage, read.unit)) == read.digest for read in one.receipt.inputs)
        ]

    def _choose_digest(self, key: StepName, receipt: Receipt | None) -> str | None:
        """The receipt's own digest unless nobody reads it and its readers name one that no receipt has."""
        named = self._named_by.get(key, {})
        if receipt and receipt.digest in named:
            return receipt.digest
        lost = {digest: readers for digest, readers in named.items() if digest not in self._known.get(key, set())}
        choices = lost or ({} if receipt else named)
        if choices:
            return max(choices, key=lambda digest: max(one.written_at for one in choices[digest]))
        return receipt.digest if receipt else None


def _likeness(recorded: Recorded, wanted: dict[str, Any]) -> tuple[int, float]:
    settings = recorded.receipt.settings if recorded.receipt else {}
    return sum(settings.get(key) == value for key, value in wanted.items()), recorded.written_at
