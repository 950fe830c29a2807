"""How far a run in this process is: its steps are counted as they end.

Price: one stat a step; no receipt is read that the run has not read. One thread counts, another may read the counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from corpusmill.engine.build import Build
from corpusmill.engine.graph import Graph
from corpusmill.engine.runs import begun_at
from corpusmill.report.progress import StageProgress


@dataclass
class _Ended:
    """Steps of one stage that have ended; `began` and `last` are those of steps that were not reused."""

    units: int = 0
    reused: int = 0
    bytes_read: int = 0
    began: float = math.inf
    last: float = 0.0


class RunProgress:
    """The progress of some stages of a run."""

    def __init__(self, graph: Graph, stages: Iterable[str]) -> None:
        self._ended = {stage: _Ended() for stage in stages}
        self._named_by = {stage: graph[stage].units_of or stage for stage in self._ended}
        self._units: dict[str, int] = {}  # by the stage that names them
        self._run_began = 0.0

    def begin(self, build: Build, stage: str) -> None:
        """The steps of a stage begin."""
        self._units[self._named_by[stage]] = len(build.units(stage))
        self._run_began = begun_at(build.plan_folder)

    def end(self, build: Build, stage: str, unit: str) -> None:
        """A step has run, or was reused."""
        ended, at = self._ended[stage], build.finished_at(stage, unit)
        if at < self._run_began:
            ended.reused += 1
        else:
            receipt = build.receipt(stage, unit)
            ended.bytes_read += receipt.counts.get("bytes_read", 0)
            ended.began = min(ended.began, at - receipt.seconds)
            ended.last = max(ended.last, at)
        ended.units += 1

    def reuse(self, build: Build, stage: str) -> None:
        """Every step of a stage was reused."""
        self._ended[stage].units = self._ended[stage].reused = len(build.units(stage))

    def read(self) -> list[StageProgress]:
        """Every stage that has units, as far as it is known."""
        stages = [self._progress(stage, ended) for stage, ended in self._ended.items()]
        return [progress for progress in stages if progress.units_total != 0]

    def _progress(self, stage: str, ended: _Ended) -> StageProgress:
        units = self._units.get(self._named_by[stage])
        until = ended.last if ended.units == units else time.time()
        return StageProgress(
            stage=stage,
            units_done=ended.units,
            units_total=units,
            bytes_done=ended.bytes_read,
            seconds=max(0.0, until - ended.began) if ended.last else 0.0,
            units_reused=ended.reused,
        )
