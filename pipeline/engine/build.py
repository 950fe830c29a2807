"""A build: one planned dataset, and its steps."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corpusmill.config import DatasetConfig
from corpusmill.engine.groups import LEAST_TASKS, names_of_group, names_of_groups
from corpusmill.engine.planned import read_plan, read_planned, tokenizer_versions
from corpusmill.engine.reclaim import inputs_kept, is_settled, reclaim_after
from corpusmill.engine.rollup import Rollup, read_rollup, remove_rollups, roll_up, write_rollup
from corpusmill.engine.stage import Stage, StepMissingError, StepName
from corpusmill.errors import PermanentError
from corpusmill.ledger import (
    RECEIPT_NAME,
    Blocks,
    Check,
    DamagedStepError,
    InputReceipt,
    Outcome,
    Receipt,
    Step,
    ask_again,
    asked_again,
    read_receipt,
    require_balanced,
    run_once,
    valid_receipt,
)
from corpusmill.schedule import MOST_TASKS

if TYPE_CHECKING:
    from corpusmill.engine.graph import Graph
    from corpusmill.report.progress import StageProgress
    from corpusmill.sources.plan import Plan

T = TypeVar("T")

log = logging.getLogger(__name__)


class UndeclaredInputError(PermanentError):
    """The work of a step reads what its fingerprint does not name: the stage is wrong."""


class PlanGoneError(PermanentError):
    """A run's plan was removed, or its work folder."""


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
        self._asked: set[Path] = set()
        self._remembered: dict[tuple[object, ...], Any] = {}
        self._missing: dict[tuple[object, ...], StepMissingError] | None = None

    @cached_property
    def config(self) -> DatasetConfig:
        """The configuration that was planned."""
        return DatasetConfig.model_validate_json(read_planned(self.plan_receipt, "config.json"))

    @cached_property
    def plan(self) -> Plan:
        """The plan: source files grouped into shards."""
        return read_plan(self.plan_receipt)

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
        inputs = self._with_digests(stage.inputs(self, unit))
        return Step(stage.name, stage.version, unit, stage.settings(self, unit), inputs)

    def _with_digests(self, inputs: list[StepName]) -> tuple[InputReceipt, ...]:
        of_stage = Counter(name for name, _ in inputs)
        rolled = {name: self._rolled(name, whole=1 < of_stage[name] == len(self.units(name))) for name in of_stage}
        return tuple(
            InputReceipt(name, of, rolled[name].get(of) or self.receipt(name, of).digest) for name, of in inputs
        )

    def _rolled(self, stage: str, *, whole: bool) -> dict[str, str]:
        """The digests of a stage's receipts by its rollup; where that was not made, none, or made if all are wanted."""
        if whole or ("rollup", stage) in self._remembered:
            return self.rollup(stage).digests
        kept = self._read_rollup(stage)
        return self.remembered(("rollup", stage), lambda: kept).digests if kept else {}

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
            receipt = self._find_receipt(self.step(stage, unit), self.work)
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
        self._missing = {}
        try:
            yield
        finally:
            self._missing = None

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

    def need_not_run(self, stage: str, unit: str) -> bool:
        """Whether a step has a valid receipt, nobody asked for it again, and none needs files that it gave back."""
        return self.graph[stage].reuse and is_settled(self, stage, unit)

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
            where=self.work / stage,
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
        return self.step(stage, unit).folder(self.work)

    def total(self, stage: str, count: str) -> int:
        """One count summed over every unit of a stage."""
        return self.rollup(stage).totals.get(count, 0)

    def checks(self, stage: str) -> list[Check]:
        """The accounts of every finished unit of a stage."""
        one = self.graph[stage]
        return [check for unit in self.units(stage) for check in one.checks(self, unit, self.receipt(stage, unit))]

    def reused(self, stage: str, unit: str) -> bool:
        """Whether a finished step's receipt is older than the newest run of this plan."""
        return not self._is_of_newest_run(self.finished_at(stage, unit))

    def _is_of_newest_run(self, at: float) -> bool:
        from corpusmill.engine.runs import begun_at

        return at >= begun_at(self.plan_folder)

    def _seen(self, stage: str, unit: str) -> float | None:
        """When a receipt that was found was written; None if it is gone by now, or its step is to run again."""
        folder = self.step(stage, unit).folder(self.work)
        if asked_again(folder):
            self._asked.add(folder)
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
        return (self.step_folder(stage, unit) / RECEIPT_NAME).stat().st_mtime

    def run(self, stage: str, unit: str, *, verify: bool = False) -> Path:
        """Run one step or reuse its receipt (see run_once), check its accounts, return the receipt's path.

        A finished step that is found damaged when this one opens its outputs runs again first. Where contents differ,
        the steps to blame run once more; if the difference stays, BalanceError says that the program is wrong.
        """
        stage_of_unit = self.graph[stage]
        if unit not in self.remembered(("set of units", stage), lambda: frozenset(self.units(stage))):
            raise PermanentError(
                f"{stage} has no unit {unit}", expected=", ".join(self.units(stage)) or "none", where=self.plan_receipt
            )
        self.remembered(("gate", stage), lambda: stage_of_unit.gate(self))
        path, checks = self._run_and_check(stage, unit, verify=verify)
        blamed = {step for check in checks if check.of_content for step in check.blame or ((stage, unit),)}
        if blamed:
            for name, of in sorted(blamed):
                log.warning("%s %s does not balance: %s %s runs again", stage, unit, name, of)
                self._run_again(name, of)
            self._complete(stage)
            path, checks = self._run_and_check(stage, unit, verify=False)
        again = f"{self._doing_again(stage, unit, path)}; if it stays, report it with both receipts"
        wrong = "report this with both receipts: the steps ran twice with the same difference, so the program is wrong"
        require_balanced(checks, what=f"{stage} {unit}", receipt=path, next_step=wrong if blamed else again)
        if log.isEnabledFor(logging.INFO):
            log.info("%s %s: %s", stage, unit, _in_words(self.receipt(stage, unit)))
        return path

    def _run_and_check(self, stage: str, unit: str, *, verify: bool) -> tuple[Path, list[Check]]:
        """(the path of the step's receipt, those of its accounts that do not balance)."""
        path = self._run_mending(stage, unit, verify=verify)
        checks = self.graph[stage].checks(self, unit, self.receipt(stage, unit))
        return path, [check for check in checks if check.difference]

    def _run_mending(self, stage: str, unit: str, *, verify: bool, whole: bool = False) -> Path:
        """Run or reuse one step; steps that wrote damaged inputs run again, each of them once."""
        mended: set[tuple[str, str]] = set()
        while True:
            try:
                path = self._run_once(stage, unit, verify=verify, whole=whole)
            except DamagedStepError as error:
                damaged = error.stage, error.unit
                if damaged in mended or damaged not in self._inputs_of(stage, unit):
                    raise
                mended.add(damaged)
                self._forget()
                self._mend(stage, unit, damaged, error)
                self._complete(stage)
            else:
                reclaim_after(self, stage, unit)
                return path

    def _mend(self, stage: str, unit: str, damaged: tuple[str, str], error: DamagedStepError) -> None:
        """Run a damaged input of a step again; if it was given back, all inputs of its stage that were."""
        receipt = self.find(*damaged)
        if receipt is None or not receipt.given_back:
            log.warning("%s %s runs again: %s", *damaged, error)
            self.run(*damaged, verify=True)
            return
        beside = [one for one in self.graph[stage].inputs(self, unit) if one[0] == damaged[0]]
        for one in dict.fromkeys([damaged, *beside]):
            if self.receipt(*one).given_back:
                self.make_whole(*one)

    def make_whole(self, stage: str, unit: str) -> None:
        """Run a finished step again whose outputs were given back."""
        log.info("%s %s runs again: a later step needs what it gave back", stage, unit)
        self._run_mending(stage, unit, verify=False, whole=True)

    def _inputs_of(self, stage: str, unit: str) -> set[tuple[str, str]]:
        """Every step that one depends on."""
        found: set[tuple[str, str]] = set()
        waiting = [(stage, unit)]
        while waiting:
            name, of = waiting.pop()
            fresh = set(self.graph[name].inputs(self, of)) - found
            found |= fresh
            waiting += fresh
        return found

    def _run_once(self, stage: str, unit: str, *, verify: bool, whole: bool) -> Path:
        """`whole`: run the step, too, if it gave outputs back that no step is known to need."""
        wanted = self.graph[stage]
        step = self.step(stage, unit)
        receipt = self.find(stage, unit)
        gave_back = receipt is not None and bool(receipt.given_back)
        if not (whole if gave_back else verify) and self.need_not_run(stage, unit):
            return step.folder(self.work) / RECEIPT_NAME

        def work(folder: Path) -> Outcome:
            with inputs_kept(self, step):
                return wanted.run(StepView(self, step) if wanted.reuse else self, unit, folder)

        path = run_once(
            step,
            self.work,
            work,
            delivers=wanted.delivers,
            reuse=wanted.reuse and not (verify and wanted.outside(self, unit)),
            verify=verify,
            versions=tokenizer_versions(self.config),
        )
        written = read_receipt(path)
        if receipt is None or receipt.digest != written.digest:
            self._remove_rollups(stage)
        self._put((stage, unit), written)
        return path

    def _remove_rollups(self, stage: str) -> None:
        """Those of a stage of which a receipt is new, or another, and of the stages whose identities follow from it."""
        stages = {stage, *self.graph.later[stage]}
        remove_rollups(self.work, stages)
        for name in stages:
            self._remembered.pop(("rollup", name), None)

    def _run_again(self, stage: str, unit: str) -> None:
        """Run a finished step anew."""
        ask_again(self.step_folder(stage, unit))
        self._forget()
        self._run_mending(stage, unit, verify=False)

    def _doing_again(self, stage: str, unit: str, receipt: Path) -> str:
        """How to have one step run again."""
        if self.graph[stage].per_shard:
            return f"corpusmill reprocess CONFIG --stage {stage} --shard {int(unit.rpartition('-')[2])}"
        return f"remove {receipt.parent} and run again"

    def _complete(self, stage: str) -> None:
        """Run what earlier stages lack by now: a step of theirs ran again and wrote something else than before."""
        for name in self.graph.before(stage):
            for unit in self.units(name):
                if self.find(name, unit) is None:
                    self.run(name, unit)

    def _forget(self) -> None:
        """Read every receipt anew: a step has run again."""
        self._receipts.clear()
        self._remembered.clear()
        self._steps.clear()
        self._asked.clear()

    def tasks(self, stage: str, most: int = MOST_TASKS) -> list[str]:
        """Names of at most `most` tasks into which a scheduler divides a stage: `00007`, or `00000 to 00006`."""
        names = list(dict.fromkeys(map(self.graph[stage].task, self.units(stage))))
        # People look for shards, so each has a task of its own for as long as there are few enough.
        least = len(names) if self.graph[stage].per_shard else LEAST_TASKS
        return names_of_groups(names, self._source_bytes(names), min(most, self.graph[stage].most_tasks), least)

    def _source_bytes(self, names: list[str]) -> list[int]:
        """How much of the sources each of some shards holds, and each of other units, as far as is known: a share."""
        shards = dict(zip(self.plan.shard_names(), self.plan.shards, strict=True))
        if set(names) <= shards.keys():
            return [sum(file.size_bytes for file in shards[name]) for name in names]
        return [self.plan.source_bytes() // len(names)] * len(names)

    def units_of_task(self, stage: str, task: str) -> list[str]:
        """The units that a task runs."""
        units: dict[str, list[str]] = {}
        for unit in self.units(stage):
            units.setdefault(self.graph[stage].task(unit), []).append(unit)
        return [unit for name in names_of_group(list(units), task) for unit in units[name]]

    def ask_for_task(self, stage: str, task: str) -> None:
        """Let every step of a task run when it is asked for next, finished or not."""
        for unit in self.units_of_task(stage, task):
            ask_again(self.step(stage, unit).folder(self.work))

    def run_task(self, stage: str, task: str, *, again: bool = False) -> list[Path]:
        """Run every step of one task; the paths of their receipts. With `again` steps that are finished run, too."""
        if again:
            self.ask_for_task(stage, task)
        return [self.run(stage, unit) for unit in self.units_of_task(stage, task)]

    def progress(self) -> list[StageProgress]:
        """Every stage's finished units, for a progress view; cheap enough to poll."""
        if any(not asked_again(folder) for folder in self._asked):
            self._forget()  # what follows from a step that has run again may be another
        with self.at_this_moment():
            return [self._stage_progress(stage) for stage in self.graph.names]

    def _stage_progress(self, stage: str) -> StageProgress:
        from corpusmill.report.progress import StageProgress

        try:
            units = self.units(stage)
        except StepMissingError:
            return StageProgress(stage=stage, units_done=0, units_total=None, bytes_done=0, seconds=0.0)
        found = [(unit, receipt) for unit in units if (receipt := self.find(stage, unit))]
        done = [(at, receipt) for unit, receipt in found if (at := self._seen(stage, unit))]
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
        self._inputs = {(one.stage, one.unit) for one in step.inputs}
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
                f"{self._step.stage} {self._step.unit} reads from a step that it does not name as an input",
                expected=f"one of its {len(self._inputs):,} inputs",
                got=f"{stage} {unit}",
                next_step=f"name it in the inputs of stage {self._step.stage}, or put what is read into its settings",
            )

    def step(self, stage: str, unit: str) -> Step:
        """See Build."""
        return self._build.step(stage, unit)


def open_build(plan_receipt: str | Path, graph: Graph) -> Build:
    """The build that a plan's receipt belongs to; PlanGoneError if the receipt is not there."""
    path = Path(plan_receipt)
    if not path.is_file():
        raise PlanGoneError(
            "the plan is no longer there",
            where=path,
            expected="a plan's receipt, which the task plan returned",
            got="nothing: gc removes plans that no run began; or the work folder was renamed, or plan marked by hand",
            next_step="name the folder back, or clear the task plan with everything downstream, or start a new run",
        )
    return Build(path, graph)


def _in_words(receipt: Receipt) -> str:
    counts = ", ".join(f"{name} {count:,}" for name, count in receipt.counts.items())
    seconds = max(receipt.seconds, 1e-3)
    speed = f"{receipt.counts.get('bytes_read', 0) / 1e6 / seconds:.0f} MB/s"
    if tokens := receipt.counts.get("tokens", receipt.counts.get("slots")):
        speed += f", {tokens / seconds:,.0f} tokens/s"
    return f"{counts}; {receipt.seconds:.1f} s, {speed}, peak {receipt.peak_rss_bytes / 2**20:.0f} MiB"
