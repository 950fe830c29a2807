"""Reclaim: which files a running build deletes, and when a step must run again because of it.

A stage declares which of its files may be deleted (`reclaimed`). They are deleted when every step that reads them is
settled: it has a valid receipt, is not requested again, and if its own files were deleted, no step needs those. So
dedup's requests and answers go after the last match that reads them, scattered records after the last gathered cell,
gathered records after the exports that hold them, and exports when every destination has them. If a later run needs the
files again, the finished step runs again in its stage's turn, or, if that was not known then, when the reader opens
them.

    shared ---> context ---> settle ---> border ---> match         receipts: kept, all of them
    scatter ---> gather ---> export ---> upload                    files: deleted behind the last step that reads them

The step that has just finished checks its inputs and itself; the last of several readers finds all of them settled. A
running step locks what it reads (ledger/finished.py), all units of a kind at once: contexts are freed while documents
are read. A check that meets the lock leaves a mark, and the next one that does not covers the whole kind.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING

from corpusmill.engine.ledger import Step, nobody_reading, reading, reclaim_outputs, rerun_requested
from corpusmill.engine.stage import MANY, StepMissingError, StepName, kind_of

if TYPE_CHECKING:
    from corpusmill.engine.build import Build

LATER = ".reclaim_later"


def is_settled(build: Build, stage: str, unit: str) -> bool:
    """Whether a step has finished, and no step needs files that were reclaimed."""
    if stage in build.noted_stages:
        return True
    known = build.settled_now
    if known is None:
        return _is_settled(build, stage, unit)
    if (stage, unit) not in known:
        known[stage, unit] = _is_settled(build, stage, unit)
    return known[stage, unit]


def _is_settled(build: Build, stage: str, unit: str) -> bool:
    receipt = build.find(stage, unit)
    if receipt is None or rerun_requested(build.place(stage, unit)):
        return False
    return not receipt.reclaimed or not is_read(build, stage, unit)


def is_read(build: Build, stage: str, unit: str) -> bool:
    """Whether an unsettled step reads a step's files, as far as the readers are known."""
    # Caches tuples of settled readers: all shards of a stage have the same readers.
    settled: set[tuple[StepName, ...]] = build.remembered(("settled",), set)
    try:
        readers = tuple(readers_of(build, stage)[unit])
    except StepMissingError:
        return False
    if readers not in settled:
        if not all(is_settled(build, *reader) for reader in readers):
            return True
        settled.add(readers)
    return False


def readers_of(build: Build, stage: str) -> dict[str, list[StepName]]:
    """The steps that read the files of each unit of a stage; StepMissingError while not all of them are known."""
    return build.remembered(("readers", stage), lambda: _find_readers(build, stage))


def _find_readers(build: Build, stage: str) -> dict[str, list[StepName]]:
    readers: dict[str, list[StepName]] = {}  # by what an input names
    for later in build.graph.between(stage, build.graph[stage].read_until):
        for unit in build.units(later):
            for name, of in build.graph[later].inputs(build, unit):
                if name == stage:
                    readers.setdefault(of, []).append((later, unit))
    of_units: dict[str, list[StepName]] = {unit: [] for unit in build.units(stage)}
    for named, of_named in readers.items():
        for unit in build.named(stage, named):
            of_units[unit] = [*of_units[unit], *of_named] if of_units[unit] else of_named  # most units share one list
    return of_units


def note_files(build: Build, stage: str, unit: str) -> None:
    """A step has written its files again."""
    gone: set[str] = build.remembered(("gone", stage), set)
    gone.discard(unit)


@contextmanager
def inputs_kept(build: Build, step: Step) -> Iterator[None]:
    """While a step works, keep the files that it reads from being deleted, and those it opens on this machine."""
    with ExitStack() as locks:
        inputs = {(receipt.stage, receipt.unit) for receipt in step.inputs if build.graph[receipt.stage].reclaimed}
        for stage, kind in _kinds_of(build, inputs) if build.config.reclaim == "eager" else ():
            locks.enter_context(reading(build.home(stage) / stage, kind))
        before, build.kept = build.kept, deque()
        try:
            yield
        finally:
            for file in build.kept:
                file.close()
            build.kept = before


def _kinds_of(build: Build, inputs: Iterable[StepName]) -> list[StepName]:
    """(stage, kind) of the units that inputs name, each once, in order."""

    def kinds(stage: str, unit: str) -> set[str]:
        if unit != MANY:
            return {kind_of(unit)}
        every: set[str] = build.remembered(("kinds", stage), lambda: set(map(kind_of, build.units(stage))))
        return every

    return sorted({(stage, kind) for stage, unit in inputs for kind in kinds(stage, unit)})


def reclaim_after(build: Build, stage: str, unit: str) -> None:
    """Once a step has finished, delete the files of its inputs and of itself that no step needs any more."""
    if build.config.reclaim != "eager":
        return
    candidates: dict[tuple[str, str], list[str]] = {}
    for name, of in (*build.inputs(stage, unit), (stage, unit)):
        if build.graph[name].reclaimed:
            candidates.setdefault((name, kind_of(of)), []).append(of)
    for (name, kind), units in candidates.items():
        _reclaim(build, name, kind, units)


def _reclaim(build: Build, stage: str, kind: str, units: list[str]) -> None:
    try:
        readers = readers_of(build, stage)
    except StepMissingError:
        return
    gone: set[str] = build.remembered(("gone", stage), set)  # cached, because every cell has all shards as inputs
    if gone.issuperset(units):
        return
    later = build.home(stage) / stage / f"{LATER}{kind}"
    units = [unit for unit in units if unit not in gone]
    if not later.exists() and not any(_has_files(build, stage, unit) for unit in units):
        gone.update(unit for unit in units if not is_read(build, stage, unit))
        return
    settled = cache(lambda reader: is_settled(build, *reader))  # valid while no step can begin to read
    passed: dict[str, int] = build.remembered(("passed", stage), dict)  # how many of a unit's readers were settled
    freed = []
    with nobody_reading(build.home(stage) / stage, kind) as alone:
        if not alone:
            later.touch()
            return
        if later.exists():
            later.unlink()
            units = [unit for unit in build.units(stage) if kind_of(unit) == kind]
        for unit in units:
            if unit in gone:
                continue
            passed[unit] = _settled_until(settled, readers[unit], passed.get(unit, 0))
            if passed[unit] == len(readers[unit]) and all(map(settled, readers[unit])):
                if _reclaim_unit(build, stage, unit):
                    freed.append(unit)
                gone.add(unit)
    for unit in freed:
        reclaim_after(build, stage, unit)  # its inputs may have been kept only for it


def _settled_until(settled: Callable[[StepName], bool], readers: list[StepName], first: int) -> int:
    """The first of the readers, from `first` on, that is not settled; their number if there is none."""
    return next((at for at in range(first, len(readers)) if not settled(readers[at])), len(readers))


def _reclaim_unit(build: Build, stage: str, unit: str) -> bool:
    """Delete a step's reclaimable files; whether there were any."""
    if not _has_files(build, stage, unit):
        return False
    receipt = reclaim_outputs(build.step_folder(stage, unit), build.graph[stage].reclaimed)
    if receipt:
        build.note_reclaimed(receipt)
    return receipt is not None


def _has_files(build: Build, stage: str, unit: str) -> bool:
    """Whether a step has any files to reclaim, going by its receipt."""
    receipt = build.find(stage, unit)
    if receipt is None or not receipt.reclaimed:
        return True
    place = build.place(stage, unit)
    # Called for every step of an unchanged build: building a Path takes ten times as long as the call.
    return any(os.path.exists(f"{place}/{name}") for name in receipt.reclaimed)  # noqa: PTH110
