"""Collecting garbage: step folders that the newest delivered plan of a dataset no longer reaches.

A step's folder is named by its fingerprint, so a build needs exactly the folders of its steps, and everything else
below the dataset's work folder was superseded by another plan, setting or version of the code. Rules:

* reached: the folder of every step of the newest plan that delivered, or of the newest K, of all begun since, and of
  the newest of the configuration that is named;
* a stage that such a build has not finished, or whose steps are unknown because of damage, keeps all its finished
  folders: the build may reuse them when it resumes;
* the plan of every run that was begun stays, and every report: they are what a run's page shows, what clearing one of
  its tasks needs, and small. A plan without a run (of a dry run, of `corpusmill plan`) goes when another has delivered;
* a folder without a receipt is garbage: its step starts from scratch in any case;
* a folder with a held lock is not garbage, nor is anything whose name is not that of a step's folder;
* what all datasets of a work folder have in common (Stage.common) is garbage when no such plan of any of them reaches
  it; in a bucket, where no lock protects readers, only once it is as old as abandoned outputs must be;
* removal takes the lock and deletes the receipt first: an interrupted removal leaves nothing that a build would read.
  Later stages go before earlier ones, so that no receipt outlives those that it was made from.

Only the work folder is touched. Versions of a dataset at its destinations are retention.py's.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from corpusmill.config import DatasetConfig
from corpusmill.config.schedule import ScheduleConfig
from corpusmill.engine.build import COMMON, Build
from corpusmill.engine.ledger import RECEIPT_NAME, LockHeldError, Receipt, locked
from corpusmill.engine.ledger.lock import LOCK_NAME
from corpusmill.engine.ledger.receipt import parse_receipt
from corpusmill.engine.running import open_build
from corpusmill.engine.runs import STARTED, begun_plans, needed_plans
from corpusmill.engine.stage import PLAN, Graph
from corpusmill.engine.work_folder.outputs import abandoned, remove_abandoned
from corpusmill.engine.work_folder.outputs import remove as remove_outputs
from corpusmill.engine.work_folder.small import age_seconds, folders_below, is_shared, refresh_all, remove, remove_all
from corpusmill.errors import CorpusmillError, CorruptDataError, PermanentError
from corpusmill.fingerprint import FOLDER_DIGITS
from corpusmill.storage.mirrored import address_of

STEP_FOLDER = re.compile(rf".+-[0-9a-f]{{{FOLDER_DIGITS}}}")
UNFINISHED = "it has no receipt: its step never finished"
HIDDEN = (CorpusmillError, ArithmeticError, LookupError, TypeError, ValueError)  # of unfinished and damaged builds
ABANDONED = "no receipt names these outputs: their worker was killed, or another finished first"
SUPERSEDED = "left over from an older build"


@dataclass(frozen=True)
class Garbage:
    """A step folder that may be removed, its size, and why; or the outputs of an attempt in a bucket."""

    folder: Path
    size_bytes: int
    reason: str
    is_attempt: bool = False


def find_garbage(
    work: Path, graph: Graph, *, keep_plans: int = 1, config: DatasetConfig | None = None
) -> list[Garbage]:
    """The garbage below one dataset's work folder (`<work_folder>/<name>`), in order of stage and name.

    The newest plan of `config` keeps its steps, too: another configuration of that name may have been built since.
    Changes nothing. PermanentError if there are folders but no plan: then it is unknown what is needed.
    """
    for stage in (PLAN, *graph.names):
        refresh_all(work / stage, RECEIPT_NAME)
    folders = [folder for stage in (PLAN, *graph.names) for folder in _step_folders(work / stage)]
    plans = needed_plans(work, keep_plans)
    if config is not None:
        plans = list(dict.fromkeys([*plans, *_newest_of(config, work, graph)]))
    if folders and not plans:
        raise PermanentError(
            "garbage.no_plan: there is no finished plan, so it is unknown which folders are still needed",
            where=work / "plan",
            next_step="check that this is a dataset's work folder; plan or build the dataset first",
        )
    reached: set[Path] = set()
    unfinished: set[str] = set()
    for plan in plans:
        folders_of_build, stages_of_build = _reached(open_build(plan, graph))
        reached |= folders_of_build
        unfinished |= stages_of_build
    longest = _longest_task_seconds(config)
    garbage = []
    for folder in folders:
        finished = (folder / RECEIPT_NAME).exists()
        needed = finished and (folder in reached or folder.parent.name in unfinished or _is_history(folder))
        if not needed and not _is_locked(folder):
            garbage.append(Garbage(folder, _size_bytes(folder), SUPERSEDED if finished else UNFINISHED))
    return [*garbage, *_common_garbage(work, graph, plans, longest), *_abandoned(work, folders, longest)]


def _common_garbage(work: Path, graph: Graph, plans: list[Path], longest: float) -> list[Garbage]:
    """The garbage of stages that all datasets share: what no needed plan of any dataset reaches; `plans`: this
    dataset's.
    """
    home = work.parent / COMMON
    stages = [stage.name for stage in graph if stage.common]
    for stage in stages:
        refresh_all(home / stage, RECEIPT_NAME)
    folders = [folder for stage in stages for folder in _step_folders(home / stage)]
    left = _abandoned(home, folders, longest)
    if not folders:
        return left
    beside = [folder for folder in folders_below(work.parent) if folder not in {work, home}]
    reached: set[Path] = set()
    for plan in [*plans, *(plan for other in beside for plan in needed_plans(other))]:
        folders_of_build, unfinished = _reached(open_build(plan, graph), stages)
        reached |= folders_of_build | {folder for folder in folders if folder.parent.name in unfinished}
    unneeded = [folder for folder in folders if folder not in reached and not _is_locked(folder)]
    if is_shared(work):
        unneeded = [folder for folder in unneeded if age_seconds(folder / RECEIPT_NAME) > longest]
    return [*(Garbage(folder, _size_bytes(folder), SUPERSEDED) for folder in unneeded), *left]


def superseded(folder: Path) -> Garbage:
    """A step folder to remove unconditionally."""
    return Garbage(folder, _size_bytes(folder), SUPERSEDED)


def abandoned_attempt(attempt: Path) -> Garbage:
    """Outputs in a bucket to remove unconditionally; their size is not looked up."""
    return Garbage(attempt, 0, ABANDONED, is_attempt=True)


def _longest_task_seconds(config: DatasetConfig | None) -> float:
    """Twice the task timeout: no running task has made, or needs, anything older."""
    return 2 * ((config and config.dag) or ScheduleConfig()).task_timeout.total_seconds()


def _abandoned(home: Path, folders: list[Path], longest: float) -> list[Garbage]:
    """Outputs in a bucket that no receipt names, and that are older than any task that could still name them."""
    if not is_shared(home):
        return []
    named = {receipt.attempt for folder in folders if (receipt := _receipt(folder))}
    left = abandoned(home, named, longest)
    return [Garbage(place, size_bytes, ABANDONED, is_attempt=True) for place, size_bytes in left]


def _receipt(folder: Path) -> Receipt | None:
    try:
        return parse_receipt(folder / RECEIPT_NAME)
    except (FileNotFoundError, CorruptDataError):
        return None


def remove_garbage(work: Path, graph: Graph, garbage: Collection[Garbage]) -> list[Garbage]:
    """Remove what find_garbage found; returns what was removed, without folders that were locked since.

    PermanentError, before anything is removed, for a folder that is not a step folder below `work`.
    """
    order = (PLAN, *graph.names)
    wanted = [item for item in garbage if not item.is_attempt]
    attempts = [item for item in garbage if item.is_attempt]
    for item in wanted:
        _require_inside(work, item.folder, order)
    wanted.sort(key=lambda item: (-order.index(item.folder.parent.name), item.folder.name))
    removed = [item for item in wanted if _remove(item.folder)]
    for item in attempts:
        remove_abandoned(item.folder)
    return [*removed, *attempts]


def render_garbage(garbage: list[Garbage], *, removed: bool) -> str:
    """In words for a terminal: a line per folder, and the total."""
    if not garbage:
        return "nothing is left over"
    width = max(len(f"{item.size_bytes:,}") for item in garbage)
    lines = [f"{item.size_bytes:>{width},}  {address_of(item.folder)}  {item.reason}" for item in garbage]
    total = sum(item.size_bytes for item in garbage)
    outcome = "removed" if removed else "can be removed: --remove does it"
    return "\n".join([*lines, f"{total:>{width},}  bytes in {len(garbage):,} folders {outcome}"])


def _newest_of(config: DatasetConfig, work: Path, graph: Graph) -> list[Path]:
    """The plan of a configuration that was begun last, if any was."""
    beside = {
        key: getattr(config, key) for key in ("lock", "dag", "keep_versions", "reclaim")
    }  # no step depends on them
    for plan in begun_plans(work):
        with suppress(CorpusmillError, OSError, ValueError):
            if open_build(plan, graph).config.model_copy(update=beside) == config:
                return [plan]
    return []


def _is_history(folder: Path) -> bool:
    """Whether a finished step's folder is a run's plan or report."""
    return folder.parent.name == "report" or (folder / STARTED).exists()


def _reached(build: Build, stages: Collection[str] = ()) -> tuple[set[Path], set[str]]:
    """(folders of the build's steps, stages that are unfinished or whose steps are unknown), of `stages` or of all."""
    _require_readable(build)
    reached, unfinished = {build.plan_folder}, set()
    for stage in stages or build.graph.names:
        try:
            for unit in build.units(stage):
                reached.add(build.step(stage, unit).folder(build.home(stage)))
                if build.find(stage, unit) is None:
                    unfinished.add(stage)
        except HIDDEN:
            unfinished.add(stage)
    return reached, unfinished


def _require_readable(build: Build) -> None:
    try:
        _ = build.config, build.plan
    except (CorpusmillError, OSError, ValueError) as error:
        raise PermanentError(
            "garbage.plan_not_readable: a needed plan cannot be read, so it is unknown which folders are still needed",
            where=build.plan_folder,
            got=error,
            next_step="build the dataset, which plans it again; then collect again",
        ) from error


def _step_folders(parent: Path) -> list[Path]:
    """Folders below a stage's folder that are named like a step's; links are not followed."""
    if parent.is_symlink() or not parent.is_dir():
        return []
    named = (path for path in parent.iterdir() if STEP_FOLDER.fullmatch(path.name))
    return sorted(path for path in named if path.is_dir() and not path.is_symlink())


def _is_locked(folder: Path) -> bool:
    """Whether the folder's lock is held; tries a shared lock and writes nothing."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # no lock, or a link: it cannot be held
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _size_bytes(folder: Path) -> int:
    """Size of all files below a folder, links not followed; in a bucket, the size of its outputs."""
    if is_shared(folder):
        receipt = _receipt(folder)
        return (
            sum(output.size_bytes for output in receipt.outputs if output.name not in receipt.reclaimed)
            if receipt
            else 0
        )
    return sum(Path(parent, name).lstat().st_size for parent, _, names in os.walk(folder) for name in names)


def _require_inside(work: Path, folder: Path, stages: tuple[str, ...]) -> None:
    home = folder.parent.parent
    inside = home in {work, work.parent / COMMON}
    inside = inside and folder.parent.name in stages and STEP_FOLDER.fullmatch(folder.name) is not None
    if not inside or folder.is_symlink() or folder.resolve() != home.resolve() / folder.parent.name / folder.name:
        raise PermanentError(
            "garbage.not_a_step_folder: only step folders of this dataset can be removed",
            where=folder,
            expected=f"{work}/<stage>/<unit>-<{FOLDER_DIGITS} hex digits>, none of it a link",
        )


def _remove(folder: Path) -> bool:
    """Remove one folder while its lock is held, the receipt first, the lock last; False if it is locked or gone."""
    if not folder.is_dir():
        return False
    if (folder / LOCK_NAME).is_symlink():
        (folder / LOCK_NAME).unlink()  # taking the lock would write to what it points to
    try:
        with locked(folder / LOCK_NAME, wait=False):
            receipt = _receipt(folder)
            remove(folder / RECEIPT_NAME)
            remove_all(folder)
            if receipt and receipt.attempt:
                remove_outputs(folder, receipt.attempt)
            for path in sorted(folder.iterdir()):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != LOCK_NAME:
                    path.unlink()
            shutil.rmtree(folder)
    except LockHeldError:
        return False
    return True
