"""Runs steps: once, or again if outputs are damaged, contents differ or a user requests it; and divides them into
parts.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.engine.build import Build
from corpusmill.engine.ledger import (
    RECEIPT_NAME,
    Check,
    DamagedStepError,
    Outcome,
    Receipt,
    evict_excess,
    read_receipt,
    request_rerun,
    require_balanced,
    run_once,
)
from corpusmill.engine.plan import tokenizer_versions
from corpusmill.engine.reclaim import inputs_kept, reclaim_after
from corpusmill.engine.rollup import remove_rollups
from corpusmill.engine.stage import StepMissingError
from corpusmill.engine.work_folder.small import refresh
from corpusmill.errors import PermanentError
from corpusmill.storage.mirrored import path_of

if TYPE_CHECKING:
    from corpusmill.engine.parts import Part
    from corpusmill.engine.stage import Graph

log = logging.getLogger(__name__)


class PlanGoneError(PermanentError):
    """A run's plan or work folder was removed."""


class RunnableBuild(Build):
    """A build whose steps can be run: those that are missing, or one again."""

    def run(self, stage: str, unit: str, *, verify: bool = False) -> Path:
        """Run one step or reuse its receipt (see run_once), check its accounts, return the receipt's path.

        An input whose outputs turn out damaged runs again first. If content sums differ, the steps to blame run once
        more; if the difference persists, BalanceError reports a bug.
        """
        stage_of_unit = self.graph[stage]
        if not self.has_unit(stage, unit):
            raise PermanentError(
                f"step.no_such_unit: {stage} has no unit {unit}",
                expected=", ".join(self.units(stage)) or "none",
                where=self.plan_receipt,
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
        again = f"{self._how_to_rerun(stage, unit, path)}; if it persists, report it with both receipts"
        wrong = "report this with both receipts: the steps ran twice with the same difference, so it is a bug"
        require_balanced(checks, what=f"{stage} {unit}", receipt=path, next_step=wrong if blamed else again)
        if log.isEnabledFor(logging.INFO):
            log_finished(self.receipt(stage, unit))
        return path

    def reuse_stage(self, stage: str) -> None:
        """Reuse every step of an unchanged stage (rollup.py), and check its accounts."""
        node = self.graph[stage]
        units = self.units(stage)
        if units:
            self.remembered(("gate", stage), lambda: node.gate(self))
        for unit in units:
            receipt = self.find(stage, unit)
            if receipt is None or any(check.difference for check in node.checks(self, unit, receipt)):
                self.run(stage, unit)

    def _run_and_check(self, stage: str, unit: str, *, verify: bool) -> tuple[Path, list[Check]]:
        """(the path of the step's receipt, its checks that do not balance)."""
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
                if damaged in mended:
                    self._require_in_time(stage, unit, damaged[0])
                if damaged in mended or not self._may_read(stage, unit, damaged):
                    raise
                mended.add(damaged)
                self._forget()
                self._mend(stage, unit, damaged, error)
                self._complete(stage)
            else:
                reclaim_after(self, stage, unit)
                return path

    def _mend(self, stage: str, unit: str, damaged: tuple[str, str], error: DamagedStepError) -> None:
        """Run a damaged input of a step again; if it was reclaimed, all inputs of its stage that were."""
        receipt = self.find(*damaged)
        if receipt is None or not receipt.reclaimed:
            log.warning("%s %s runs again: %s", *damaged, error)
            self.run(*damaged, verify=True)
            return
        beside = [made_by for made_by in self.inputs(stage, unit) if made_by[0] == damaged[0]]
        for made_by in dict.fromkeys([damaged, *beside]):
            if self.receipt(*made_by).reclaimed:
                self.make_whole(*made_by)

    def _require_in_time(self, stage: str, unit: str, read: str) -> None:
        """PermanentError for a step that reads files of a stage which an eager build frees before."""
        until = self.graph[read].read_until
        if (
            self.config.reclaim == "eager"
            and self.graph[read].reclaimed
            and stage not in self.graph.between(read, until)
        ):
            raise PermanentError(
                f"step.reads_reclaimed: {stage} {unit} reads files of {read} that `reclaim: eager` has deleted by then",
                where=f"{stage} {unit}",
                expected=f"a reader that runs no later than {until}",
                got=f"{stage}, which runs after {', '.join(self.graph.after(stage))}",
                next_step=f"let {stage} run after a stage before {until}, or set reclaim: keep",
            )

    def make_whole(self, stage: str, unit: str) -> None:
        """Run a finished step again whose outputs were reclaimed."""
        log.info("%s %s runs again: a later step needs what it freed", stage, unit)
        self._run_mending(stage, unit, verify=False, whole=True)

    def _may_read(self, stage: str, unit: str, step: tuple[str, str]) -> bool:
        """Whether a step may read another's files: those of its inputs, and if it is never reused, of all before it."""
        everything = not self.graph[stage].reuse and step[0] in self.graph.before(stage)
        return everything or step in self._inputs_of(stage, unit)

    def _inputs_of(self, stage: str, unit: str) -> set[tuple[str, str]]:
        """Every step that one depends on."""
        inputs: set[tuple[str, str]] = set()
        waiting = [(stage, unit)]
        while waiting:
            name, of = waiting.pop()
            fresh = set(self.inputs(name, of)) - inputs
            inputs |= fresh
            waiting += fresh
        return inputs

    def _run_once(self, stage: str, unit: str, *, verify: bool, whole: bool) -> Path:
        """`whole`: run the step even if it only lacks reclaimed outputs that no step is known to need."""
        wanted = self.graph[stage]
        step = self.step(stage, unit)
        receipt = self.find(stage, unit)
        reclaimed = receipt is not None and bool(receipt.reclaimed)
        if not (whole if reclaimed else verify) and self.need_not_run(stage, unit):
            return step.folder(self.home(stage)) / RECEIPT_NAME

        def work(folder: Path) -> Outcome:
            with inputs_kept(self, step):
                try:
                    return wanted.work.run_step(self, step, folder)
                except OSError as error:  # its path may be anything that the step opened, so its traceback is needed
                    error.add_note(f"in {stage} {unit}")
                    raise

        path = run_once(
            step,
            self.home(stage),
            work,
            delivers=wanted.delivers,
            reuse=wanted.reuse and not (verify and wanted.outside(self, unit)),
            verify=verify,
            versions=tokenizer_versions(self.config),
        )
        evict_excess(self.work)
        written = read_receipt(path)
        if receipt is None or receipt.digest != written.digest:
            self._forget_later(stage)
        self._put(written)
        return path

    def _forget_later(self, stage: str) -> None:
        """Forget what follows from the receipts of a stage, one of which is new or changed, and remove rollups."""
        later = self.graph.later[stage]
        stages = {stage, *later}
        remove_rollups(self.work, stages)
        for name in stages:
            self.noted_stages.pop(name, None)
        for name in later:  # whose steps may have been looked up, as readers of files
            self._steps.pop(name, None)
            self._receipts.pop(name, None)
        for key in list(self._remembered):
            if key[0] == "settled" or (key[0] in {"rollup", "digest"} and key[1] in stages):
                del self._remembered[key]

    def _run_again(self, stage: str, unit: str) -> None:
        """Rerun a finished step."""
        request_rerun(self.step_folder(stage, unit))
        self._forget()
        self._run_mending(stage, unit, verify=False)

    def _how_to_rerun(self, stage: str, unit: str, receipt: Path) -> str:
        """The next step of an error that rerunning may fix."""
        if self.graph[stage].per_shard:
            return f"corpusmill reprocess CONFIG --stage {stage} --shard {int(unit.rpartition('-')[2])}"
        return f"remove {receipt.parent} and run again"

    def _complete(self, stage: str) -> None:
        """Run the steps of earlier stages that lack a receipt because an input of theirs ran again and changed."""
        for name in self.graph.before(stage):
            for unit in self.units(name):
                if self.find(name, unit) is None:
                    self.run(name, unit)

    def units_of_shards(self, stage: str, part: Part) -> list[str]:
        """The units of a stage per shard in one of several parts, in order: shards are divided by their bytes."""
        node = self.graph[stage]
        shards = self.remembered(
            ("part", part), lambda: frozenset(part.of_units(self.plan.shard_names(), self._bytes()))
        )
        candidates = self.units(node.units_of if node.has_unit else stage)
        return [unit for unit in candidates if unit.rpartition("-")[2] in shards and self.has_unit(stage, unit)]

    def ask_for(self, stage: str, unit: str) -> None:
        """Request a step again, if it has finished."""
        with suppress(StepMissingError):  # an input has not finished, so neither has the step
            request_rerun(self.step_folder(stage, unit))

    def _bytes(self) -> list[int]:
        """Source bytes of each shard."""
        return [sum(file.size_bytes for file in shard) for shard in self.plan.shards]


def open_build(plan_receipt: str | Path, graph: Graph) -> RunnableBuild:
    """The build that a plan's receipt belongs to; PlanGoneError if the receipt is not there."""
    path = path_of(plan_receipt)
    if path.name != RECEIPT_NAME or not refresh(path):
        raise PlanGoneError(
            "plan.gone: the plan no longer exists",
            where=path,
            expected="a plan's receipt, which the task plan returned",
            got="nothing: gc removed an unused plan, the work folder was renamed, or plan was marked by hand",
            next_step="rename the folder back, or clear the task plan with everything downstream, or start a new run",
        )
    return RunnableBuild(path, graph)


def log_finished(receipt: Receipt) -> None:
    """Log what a finished step counted, how fast, and its peak memory."""
    counts = ", ".join(f"{name} {count:,}" for name, count in receipt.counts.items())
    seconds = max(receipt.seconds, 1e-3)
    speed = f"{receipt.counts.get('bytes_read', 0) / 1e6 / seconds:.0f} MB/s"
    if tokens := receipt.counts.get("tokens", receipt.counts.get("slots")):
        speed += f", {tokens / seconds:,.0f} tokens/s"
    peak = f"peak {receipt.peak_rss_bytes / 2**20:.0f} MiB"
    log.info("%s %s: %s; %.1f s, %s, %s", receipt.stage, receipt.unit, counts, receipt.seconds, speed, peak)
