"""Runs a build on this machine, without Airflow: the same steps, a process per core.

Workers are forked from a server that has loaded what most steps need (loaded.py), so one more costs next to nothing.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from corpusmill.builds.plan import plan_dataset, require_same_code
from corpusmill.config import DatasetConfig, work_of
from corpusmill.engine.claim import claimed
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begin_run
from corpusmill.errors import ConfigError, TransientError
from corpusmill.mirrored import address_of, path_of
from corpusmill.stages.graph import GRAPH, open_build
from corpusmill.work_folder.moved import tell

PR_SET_PDEATHSIG = 1
SMALL_BYTES = 4 << 20  # of sources, whose steps one process finishes in the second that two take to start

log = logging.getLogger(__name__)


class WorkerLostError(TransientError):
    """A worker process died: killed, or out of memory."""


def build_dataset(config: DatasetConfig, *, workers: int | None = None, verify: bool = False) -> Path:
    """Plan and run every step of a dataset; returns the path of the plan's receipt.

    The first step that fails stops the build: steps that run are let finish, those that wait are dropped, and the
    error is raised as it was. A second call reuses every step that had finished.
    """
    with claimed(work_of(config)):
        plan_receipt = plan_dataset(config, to_build=True)
        run_steps(plan_receipt, workers=workers, verify=verify)
    return plan_receipt


def run_build(
    plan_receipt: Path,
    *,
    workers: int | None = None,
    verify: bool = False,
    until: str = "",
) -> None:
    """Claim a planned dataset and run every step, or those up to the stage `until`; see build_dataset.

    RunUnderWayError or LockHeldError if another run of the dataset is under way.
    """
    with claimed(plan_receipt.parents[2]):
        run_steps(plan_receipt, workers=workers, verify=verify, until=until)


def run_steps(
    plan_receipt: Path,
    *,
    workers: int | None = None,
    verify: bool = False,
    until: str = "",
) -> None:
    """Run every step of a dataset that this process has claimed, or those up to the stage `until`; see build_dataset.

    With `verify` a step is reused only if its outputs still have their sha256. One worker means this process.
    """
    build = open_build(plan_receipt)
    workers = worker_count(workers, build.plan.source_bytes())
    begin_run(plan_receipt)
    if workers == 1:
        for stage in (stage for wave in GRAPH.waves(until) for stage in wave):
            for unit in build.units(stage):
                build.run(stage, unit, verify=verify)
    else:
        _run_in_workers(build, workers, GRAPH.waves(until), verify=verify)


def run_watched(
    plan_receipt: Path, *, workers: int | None = None, verify: bool = False, until: str = ""
) -> RunnableBuild:
    """As run_steps, with progress bars (or lines) on standard error; returns the build."""
    from corpusmill.report.progress import progress_view

    build = open_build(plan_receipt)
    stages = {stage for wave in GRAPH.waves(until) for stage in wave}
    with progress_view(
        lambda: [progress for progress in build.progress() if progress.stage in stages and progress.units_total != 0]
    ):
        run_steps(plan_receipt, workers=workers, verify=verify, until=until)
    return open_build(plan_receipt)


def worker_count(asked: int | None, source_bytes: int = sys.maxsize) -> int:
    """As many workers as were asked for, else one per core, or one alone for little text."""
    return asked or (1 if source_bytes <= SMALL_BYTES else os.cpu_count() or 1)


def _run_in_workers(build: RunnableBuild, workers: int, waves: tuple[tuple[str, ...], ...], *, verify: bool) -> None:
    with worker_pool(workers) as pool:
        for wave in waves:
            _run_in_pool(pool, build, [(stage, unit) for stage in wave for unit in build.units(stage)], verify=verify)


def run_task(
    plan_receipt: str | Path, stage: str, task: str, *, processes: int = 1, again: bool = False, verify: bool = False
) -> list[Path]:
    """Run the steps of one task (see engine/groups.py), `processes` at the same time; their receipts' paths.

    Whoever calls it has claimed the dataset.
    """
    require_same_code(path_of(plan_receipt))
    build = open_build(plan_receipt)
    name = _task_called(build, stage, task)
    if name is None:
        return []
    if processes == 1:
        return build.run_task(stage, name, again=again, verify=verify)
    if again:
        build.ask_for_task(stage, name)
    units = build.units_of_task(stage, name)
    with worker_pool(min(processes, len(units))) as pool:
        _run_in_pool(pool, build, [(stage, unit) for unit in units], verify=verify)
    return [build.run(stage, unit) for unit in units]  # each is there: what counts is checked, nothing is done


def run_claimed(config: DatasetConfig, command: list[str]) -> int:
    """Claim a dataset, plan it, and run a program that has all tasks run elsewhere; the program's exit code.

    It finds the receipt of the plan as CORPUSMILL_PLAN and the stages, in order, as CORPUSMILL_ORDER.
    RunUnderWayError or LockHeldError if another run of the dataset is under way.
    """
    with claimed(work_of(config)):
        plan_receipt = begin_run(plan_dataset(config, to_build=True))
        told = {"CORPUSMILL_PLAN": address_of(plan_receipt), "CORPUSMILL_ORDER": " ".join(GRAPH.names)}
        return subprocess.run(command, env=os.environ | told, check=False).returncode


def _task_called(build: RunnableBuild, stage: str, task: str) -> str | None:
    """The name of a task, given as `3/16`, too; None if so many tasks are more than the stage has units."""
    number, of, most = task.partition("/")
    if not of:
        return task
    if not (number.isdecimal() and most.isdecimal() and 0 < int(number) <= int(most)):
        raise ConfigError("there is no such task", got=task, expected="<number>/<how many>, such as 3/16")
    names = build.tasks(stage, int(most))
    return names[int(number) - 1] if int(number) <= len(names) else None


@contextmanager
def worker_pool(number: int) -> Iterator[ProcessPoolExecutor]:
    # Forked from a server, not from here: the parent may run threads (a progress view), whose locks would be copied.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["corpusmill.builds.loaded"])
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(number, mp_context=context, initializer=_begin_worker) as pool:
        try:
            yield pool
        finally:
            # No step runs any more. Asked to end by themselves, workers would wait forever for the queue's lock if one
            # of them was killed while it held it.
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()


def _run_in_pool(
    pool: ProcessPoolExecutor, build: RunnableBuild, steps: list[tuple[str, str]], *, verify: bool
) -> None:
    """Run steps that may run at the same time."""
    running: dict[Future[Path], tuple[str, str]] = {}
    for stage, unit in steps:
        if (not verify and build.need_not_run(stage, unit)) or len(steps) == 1:
            build.run(stage, unit, verify=verify)  # quicker here than a worker could read what this process knows
        else:
            running[pool.submit(_run_step, str(build.plan_receipt), stage, unit, verify)] = stage, unit
    try:
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _require_done(future, *running.pop(future))
    except BaseException:
        for future in running:
            future.cancel()  # an interrupt, too, must not start what still waits
        wait(running)
        raise


def _require_done(step: Future[Path], stage: str, unit: str) -> None:
    """Raise the error of a step that has ended with one."""
    try:
        step.result()
    except BrokenProcessPool as error:
        raise WorkerLostError(
            f"a worker died while it ran {stage} {unit} or a concurrent step",
            got="killed, most likely because memory ran out",
            next_step="run again: finished steps are reused; if it dies again, use fewer --workers",
        ) from error


def _run_step(plan_receipt: str, stage: str, unit: str, verify: bool) -> Path:
    try:
        return _opened(plan_receipt).run(stage, unit, verify=verify)
    finally:
        tell()


@lru_cache(maxsize=1)
def _opened(plan_receipt: str) -> RunnableBuild:
    # One build per worker: the receipts it has read stay valid while this run lasts.
    return open_build(plan_receipt)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies: no process keeps writing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_task() -> None:
    """In a program that a scheduler's task started: end with the process of the task (CORPUSMILL_TASK), or now."""
    if task := os.environ.get("CORPUSMILL_TASK"):
        end_with_parent()
        if os.getppid() != int(task):  # it ended before
            raise SystemExit(1)


def _begin_worker() -> None:
    threading.Thread(target=_end_with_build, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means


def _end_with_build() -> None:
    """Kill this process when the build dies. Its server would outlive it: every worker holds the server's lifeline."""
    build = multiprocessing.parent_process()
    if build is not None:
        build.join()
        signal.raise_signal(signal.SIGKILL)
