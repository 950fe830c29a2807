"""How far a run in this process is: a row for each step that people know (builds/chain.py), of the stages in it.

Units are counted as they end; of those that run, how far each is (advance.py).

Price: one stat a unit; no receipt is read that the run has not read. One thread counts, another may read the counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from mmap import mmap
from threading import Lock

from corpusmill.builds.chain import STEP_OF, STEPS
from corpusmill.config import DatasetConfig
from corpusmill.engine.build import Build
from corpusmill.engine.runs import begun_at
from corpusmill.engine.stage import PLAN, Graph, StepName
from corpusmill.kernels import advance
from corpusmill.kernels.shared_bytes import SharedBytes
from corpusmill.report.figures import bytes_text, counted
from corpusmill.report.progress import StageProgress

MOST_READ = 256  # of the units that run: they begin in order, so more are only those of so many workers
COMPILING = "compiling (once)"
# How long stages take beside others of their step that read the text once: measured on 129 MiB of text in four shards.
# If all counted alike, bars would jump, then stop in the slow ones.
WEIGHTS = {
    **{"index": 4.0, "writeback": 10.0, "tokenize": 7.0},
    **dict.fromkeys(("quarantine", "join", "decided", "copies", "union", "refine", "lost", "budget", "manifest"), 0.1),
}


@dataclass
class _Ended:
    """Units of one stage that have ended; `began` and `last` are those of units that were not reused."""

    units: int = 0
    reused: int = 0
    bytes_read: int = 0
    began: float = math.inf
    last: float = 0.0


@dataclass
class _Running:
    """A unit that waits or runs: its slot, and since when it runs, or when it was given out if it has not counted."""

    slot: int
    since: float
    counts: bool = False


@dataclass(frozen=True)
class _Seen:
    """One stage at one moment. `began`: the first unit that was not reused; infinity if there is none yet."""

    name: str
    ended: _Ended
    units: int | None
    share: float
    bytes_read: int
    began: float
    compiling: bool


class RunProgress:
    """The progress of some stages of a run. `slots`: where those that run count (advance.py)."""

    def __init__(self, graph: Graph, stages: Iterable[str]) -> None:
        self._graph = graph
        stages = list(stages)
        self._steps = {name: [stage for stage in stages if STEP_OF[stage] == name] for name in STEPS}
        self._ended = {stage: _Ended() for stage in stages}
        self._named_by = {stage: _naming(graph, stage) for stage in self._ended}
        self._units: dict[str, int] = {}  # by the stage that names them
        self._run_began = 0.0
        self._config: DatasetConfig | None = None
        self._planned = ""
        self._lock = Lock()
        self._running: dict[StepName, _Running] = {}
        self._shown: dict[str, tuple[float, int]] = {}  # of each stage, its share and bytes
        self._free: list[int] = []
        self._given = 0

    @cached_property
    def slots(self) -> SharedBytes:
        """Where units that run count."""
        return SharedBytes(advance.SLOTS * advance.SLOT_BYTES)

    @cached_property
    def memory(self) -> mmap:
        """The same, in this process."""
        return self.slots.mapped()

    def begin(self, build: Build, stage: str) -> None:
        """The units of a stage begin."""
        units, began = len(build.units(stage)), begun_at(build.plan_folder)
        with self._lock:
            self._units[self._named_by[stage]] = units
            self._run_began = began
            if self._config is None:
                self._config = build.config
                shards = counted(len(build.plan.shards), "shard")
                self._planned = f"{shards}, {bytes_text(build.plan.source_bytes())}"

    def start(self, stage: str, unit: str) -> int:
        """A unit is given out to be run: its slot."""
        with self._lock:
            slot = advance.NO_SLOT
            if self._free:
                slot = self._free.pop()
            elif self._given < advance.SLOTS:
                slot = self._given
                self._given += 1
            if slot != advance.NO_SLOT:
                advance.clear(self.memory, slot)
            self._running[stage, unit] = _Running(slot, time.time())
            return slot

    def end(self, build: Build, stage: str, unit: str) -> None:
        """A unit has run, or was reused."""
        at = build.finished_at(stage, unit)
        fresh = None if at < self._run_began else build.receipt(stage, unit)
        with self._lock:
            if (was := self._running.pop((stage, unit), None)) and was.slot != advance.NO_SLOT:
                self._free.append(was.slot)
            ended = self._ended[stage]
            if fresh is None:
                ended.reused += 1
            else:
                ended.bytes_read += fresh.counts.get("bytes_read", 0)
                ended.began = min(ended.began, at - fresh.seconds)
                ended.last = max(ended.last, at)
            ended.units += 1

    def reuse(self, build: Build, stage: str) -> None:
        """Every unit of a stage was reused."""
        units = len(build.units(stage))
        with self._lock:
            self._ended[stage].units = self._ended[stage].reused = units

    def read(self) -> list[StageProgress]:
        """The plan, and every step that has units, as far as it is known, with its stages."""
        with self._lock:
            running: dict[str, list[tuple[float, advance.Advance]]] = {}
            for number, ((stage, _), item) in enumerate(islice(self._running.items(), MOST_READ)):
                if item.slot == advance.NO_SLOT:
                    continue
                count = advance.read(self.memory, item.slot)
                if not item.counts and number:  # it waited behind the first, which runs
                    item.since = time.time()
                item.counts |= any(count)
                if number == 0 or item.counts:
                    running.setdefault(stage, []).append((item.since, count))
            rows = []
            for name, stages in self._steps.items():
                seen = [self._seen(stage, running.get(stage, [])) for stage in stages if self._is_wanted(stage)]
                seen = [stage for stage in seen if stage.units != 0]
                if seen:
                    rows.append(_row(name, seen, tuple(_row(stage.name, [stage]) for stage in seen)))
        plan = StageProgress(PLAN, 1, 1, 0, 0.0, about=self._planned)
        return [plan, *rows] if self._planned else rows

    def _is_wanted(self, stage: str) -> bool:
        return self._config is None or self._graph.is_wanted(stage, self._config)

    def _seen(self, stage: str, running: list[tuple[float, advance.Advance]]) -> _Seen:
        ended, units = self._ended[stage], self._units.get(self._named_by[stage])
        counts = [count for _, count in running]
        share = (ended.units + sum(count.share for count in counts)) / units if units else 0.0
        share, bytes_read = min(1.0, share), ended.bytes_read + sum(count.bytes_read for count in counts)
        if ended.units != units:  # a unit that runs again takes nothing back
            before = self._shown.get(stage, (0.0, 0))
            share, bytes_read = max(share, before[0]), max(bytes_read, before[1])
        self._shown[stage] = share, bytes_read
        return _Seen(
            name=stage,
            ended=ended,
            units=units,
            share=share,
            bytes_read=bytes_read,
            began=min([ended.began, *(since for since, _ in running)]),
            compiling=any(count.compiling for count in counts),
        )


def _naming(graph: Graph, stage: str) -> str:
    """The stage that has the same units and names them itself."""
    node = graph[stage]
    return _naming(graph, node.units_of) if node.units_of and not node.has_unit else stage


def _row(name: str, seen: list[_Seen], stages: tuple[StageProgress, ...] = ()) -> StageProgress:
    """The row of some stages together."""
    weights = [WEIGHTS.get(stage.name, 1.0) for stage in seen]
    units = [stage.units for stage in seen]
    done = sum(stage.ended.units for stage in seen)
    total = None if None in units else sum(filter(None, units))
    began = min(stage.began for stage in seen)
    until = max(stage.ended.last for stage in seen) if done == total else time.time()
    reused = [weight * stage.ended.reused / (stage.units or 1) for weight, stage in zip(weights, seen, strict=True)]
    return StageProgress(
        stage=name,
        units_done=done,
        units_total=total,
        bytes_done=sum(stage.bytes_read for stage in seen),
        seconds=max(0.0, until - began) if math.isfinite(began) else 0.0,
        units_reused=sum(stage.ended.reused for stage in seen),
        share=sum(weight * stage.share for weight, stage in zip(weights, seen, strict=True)) / sum(weights),
        share_reused=sum(reused) / sum(weights),
        about=COMPILING if any(stage.compiling for stage in seen) else "",
        stages=stages,
    )
