"""Runs a build on this machine, without Airflow: the same steps, a process per core.

Workers are forked from a process that has loaded what most steps need (loaded.py), so a worker costs next to nothing:
from this one, whose tokenizer they share, unless other threads run in it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from itertools import chain
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from corpusmill.builds.plan import plan_dataset, require_same_code
from corpusmill.builds.preflight import require_tokenizer
from corpusmill.builds.processes import WorkerLostError, collect_seldom
from corpusmill.builds.progress import RunProgress
from corpusmill.config import DatasetConfig, work_of
from corpusmill.engine.claim import CLAIM_THREAD, RENEWING, claimed
from corpusmill.engine.running import RunnableBuild, log_finished
from corpusmill.engine.runs import begin_run
from corpusmill.engine.stage import StepName
from corpusmill.engine.standing import note_standings, stands
from corpusmill.errors import ConfigError
from corpusmill.ledger import LOCK_NAME, held_by, peak_memory_bytes, read_receipt
from corpusmill.ledger.compared import SharedTable
from corpusmill.mirrored import address_of, path_of
from corpusmill.stages.graph import GRAPH, open_build
from corpusmill.work_folder.moved import tell

if TYPE_CHECKING:
    from corpusmill.report.progress import StageProgress

ENDING = {signal.SIGINT, signal.SIGTERM}
LOOK_SECONDS = 0.1  # between looks at how much memory workers take
SMALL_BYTES = 4 << 20  # of sources, whose steps one process finishes in the second that two take to start

View: TypeAlias = "Callable[[Callable[[], Sequence[StageProgress]]], AbstractContextManager[Any]]"

log = logging.getLogger(__name__)


def build_dataset(config: DatasetConfig, *, workers: int | None = None, verify: bool = False) -> Path:
    """Plan and run every step of a dataset; returns the path of the plan's receipt.

    The first step that fails stops the build: running steps finish, waiting steps are dropped, and the error is raised
    unchanged. A second call reuses every finished step.
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
    progress: RunProgress | None = None,
    view: View = nullcontext,
) -> None:
    """Run every step of a dataset that this process has claimed, or those up to the stage `until`; see build_dataset.

    With `verify` a step is reused only if its outputs still have their sha256. One worker means this process.
    `progress` counts them; `view` shows what it reads, from when the first step that must run is known.
    """
    build = open_build(plan_receipt)
    if any("tokenize" in wave for wave in GRAPH.waves(until)):
        require_tokenizer(build)
    workers = worker_count(workers, build.plan.source_bytes())
    progress = progress or RunProgress(GRAPH, GRAPH.names)
    begin_run(plan_receipt)
    waves = _waves_to_run(build, until, progress, verify=verify)
    first = next(waves, [])
    # What is never reused comes last: a wave of one such step is followed by none of several.
    several = workers > 1 and (len(first) > 1 or any(GRAPH[stage].reuse for stage, _ in first))
    with worker_pool(workers) if several else nullcontext() as pool, view(progress.read):
        for steps in chain([first], waves):
            for (stage, unit), _ in (
                _run_in_pool(pool, build, steps, verify=verify) if pool else _run_here(build, steps, verify=verify)
            ):
                progress.end(build, stage, unit)
    if not until:
        note_standings(build)


def _waves_to_run(build: RunnableBuild, until: str, progress: RunProgress, *, verify: bool) -> Iterator[list[StepName]]:
    """The steps of each wave; reuses the stages that stand as a whole. No wave without steps."""
    for wave in GRAPH.waves(until):
        for stage in wave:
            progress.begin(build, stage)
        steps: list[StepName] = []
        for stage in wave:
            if not verify and GRAPH[stage].reuse and stands(build, stage):
                build.reuse_stage(stage)
                progress.reuse(build, stage)
            else:
                build.standings.pop(stage, None)
                steps += [(stage, unit) for unit in build.units(stage)]
        if steps:
            yield steps


def run_watched(
    plan_receipt: Path, *, workers: int | None = None, verify: bool = False, until: str = ""
) -> RunnableBuild:
    """As run_steps, with progress bars (or lines) on standard error; returns the build."""
    from corpusmill.report.progress import progress_view

    progress = RunProgress(GRAPH, [stage for wave in GRAPH.waves(until) for stage in wave])
    run_steps(plan_receipt, workers=workers, verify=verify, until=until, progress=progress, view=progress_view)
    return open_build(plan_receipt)


def worker_count(requested: int | None, source_bytes: int = sys.maxsize) -> int:
    """The requested number of workers, else one per core, or one for small sources."""
    return requested or (1 if source_bytes <= SMALL_BYTES else os.cpu_count() or 1)


def run_task(
    plan_receipt: str | Path, stage: str, task: str, *, processes: int = 1, again: bool = False, verify: bool = False
) -> list[Path]:
    """Run the steps of one task (see engine/groups.py), `processes` at a time; returns the paths of their receipts.

    The caller must have claimed the dataset.
    """
    require_same_code(path_of(plan_receipt))
    build = open_build(plan_receipt)
    name = _task_name(build, stage, task)
    if name is None:
        return []
    units = build.units_of_task(stage, name)
    if min(processes, len(units)) <= 1:
        paths = build.run_task(stage, name, again=again, verify=verify)
    else:
        if again:
            build.ask_for_task(stage, name)
        with worker_pool(min(processes, len(units))) as pool:
            receipts = dict(_run_in_pool(pool, build, [(stage, unit) for unit in units], verify=verify))
        paths = [receipts[stage, unit] for unit in units]
    if stage == GRAPH.names[-1]:
        note_standings(build)
    return paths


def run_claimed(config: DatasetConfig, command: list[str]) -> int:
    """Claim a dataset, plan it, and run a program that has all tasks run elsewhere; returns its exit code.

    The program gets the plan's receipt as CORPUSMILL_PLAN and the stages, in order, as CORPUSMILL_ORDER.
    RunUnderWayError or LockHeldError if another run of the dataset is under way.
    """
    with claimed(work_of(config)):
        plan_receipt = begin_run(plan_dataset(config, to_build=True))
        variables = {"CORPUSMILL_PLAN": address_of(plan_receipt), "CORPUSMILL_ORDER": " ".join(GRAPH.names)}
        return subprocess.run(command, env=os.environ | variables, check=False).returncode


def _task_name(build: RunnableBuild, stage: str, task: str) -> str | None:
    """The name of a task that is given by its name or as `3/16`; None if the stage has fewer tasks than that."""
    number, slash, most = task.partition("/")
    if not slash:
        return task
    if not (number.isdecimal() and most.isdecimal() and 0 < int(number) <= int(most)):
        raise ConfigError("there is no such task", got=task, expected="<number>/<how many>, such as 3/16")
    names = build.tasks(stage, int(most), least=int(most))
    return names[int(number) - 1] if int(number) <= len(names) else None


@contextmanager
def worker_pool(number: int) -> Iterator[ProcessPoolExecutor]:
    """Processes for steps. If this process forks them, it has forked all of them when the `with` begins."""
    others = set(multiprocessing.active_children())
    table = SharedTable()
    table.use()
    with (
        table.file,
        ProcessPoolExecutor(number, mp_context=_context(), initializer=_begin_worker, initargs=(table,)) as pool,
    ):
        try:
            # Signals wait until all workers are forked, and in each until it has begun: Python drops what a handler
            # raises in the middle of a fork, and the pool waits forever for a worker that ends so early.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            try:
                with RENEWING:
                    pool.submit(int)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield pool
        finally:
            # No step runs any more. Workers are terminated because on a normal exit they would wait forever for the
            # queue's lock if one of them was killed while it held it.
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()


def _context() -> BaseContext:
    """How workers begin. A fork copies only the thread that forks: what other threads have locked would stay locked.
    So a process with other threads, a library's included, is not forked. The claim's may run: see RENEWING.
    """
    ours = {threading.current_thread().name, CLAIM_THREAD} & {thread.name for thread in threading.enumerate()}
    if sys.platform == "linux" and threading.active_count() == len(ours):
        import corpusmill.builds.loaded  # noqa: F401 (numpy may start threads, too)

        if len(os.listdir("/proc/self/task")) == len(ours):  # noqa: PTH208
            return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["corpusmill.builds.loaded"])
    return context


def _run_here(build: RunnableBuild, steps: list[StepName], *, verify: bool) -> Iterator[tuple[StepName, Path]]:
    """Run steps one after the other; yields each, with its receipt's path, when it has ended."""
    for stage, unit in steps:
        yield (stage, unit), build.run(stage, unit, verify=verify)


def _run_in_pool(
    pool: ProcessPoolExecutor, build: RunnableBuild, steps: list[StepName], *, verify: bool
) -> Iterator[tuple[StepName, Path]]:
    """Run steps that may run at the same time; yields each, with its receipt's path, when it has ended."""
    running: dict[Future[Path], StepName] = {}
    try:
        for stage, unit in steps:
            if (not verify and build.need_not_run(stage, unit)) or len(steps) == 1:
                # Quicker here than a worker could read what this process knows.
                yield from _run_here(build, [(stage, unit)], verify=verify)
            else:
                running[_submitted(pool, _run_step, str(build.plan_receipt), stage, unit, verify)] = stage, unit
        _submitted(pool, int)  # makes the pool watch its workers: it would not notice one that has died before
        # Asked once: this call takes the exit codes of the dead, which the pool's thread does, too, when one has died,
        # and the second to ask for a code gets 255.
        peaks = dict.fromkeys(multiprocessing.active_children(), 0)
        while running:
            done, _ = wait(running, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
            for worker, peak in peaks.items():
                peaks[worker] = max(peak, peak_memory_bytes(worker.pid or 0))
            for future in done:
                path = _require_done(future, pool, build, list(running.values()), peaks)
                if log.isEnabledFor(logging.INFO):  # the worker has no handler
                    log_finished(read_receipt(path))
                yield running.pop(future), path
    except BrokenProcessPool as error:  # it was broken before all steps were submitted
        raise _lost(build, steps, {}) from error
    except BaseException:
        for future in running:
            future.cancel()  # after an interrupt, too, no waiting step may start
        wait(running)
        raise


def _submitted(pool: ProcessPoolExecutor, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """`pool.submit`, which raises an OSError without a number if the pool breaks, and closes its queue, meanwhile."""
    try:
        return pool.submit(call, *arguments)
    except OSError as error:
        if error.errno is not None:
            raise
        raise BrokenProcessPool from error


def _require_done(
    step: Future[Path],
    pool: ProcessPoolExecutor,
    build: RunnableBuild,
    steps: list[StepName],
    peaks: dict[BaseProcess, int],
) -> Path:
    """The path of a step's receipt; its error if it failed."""
    try:
        return step.result()
    except BrokenProcessPool as error:
        for worker in peaks:
            worker.terminate()
        pool.shutdown()  # from here on every worker has an exit code
        raise _lost(build, steps, peaks) from error


def _lost(build: RunnableBuild, steps: list[StepName], peaks: dict[BaseProcess, int]) -> WorkerLostError:
    """The error for killed workers, with the steps they ran: a step's lock names the process that held it."""
    killed = {worker.pid: peak for worker, peak in peaks.items() if worker.exitcode == -signal.SIGKILL}
    locks = {f"{stage} {unit}": build.step(stage, unit).folder(build.home(stage)) / LOCK_NAME for stage, unit in steps}
    ran = {name: killed[pid] for name, lock in locks.items() if (pid := held_by(lock)) in killed}
    peak = f"; peak at least {', '.join(f'{peak:,}' for peak in ran.values())} bytes" if ran else ""
    return WorkerLostError(
        f"a worker died while it ran {' and '.join(ran) or ' '.join(steps[0]) + ' or a concurrent step'}",
        got=f"killed, most likely because memory ran out{peak}",
        next_step="run again: finished steps are reused; if it dies again, use fewer --workers",
    )


def _run_step(plan_receipt: str, stage: str, unit: str, verify: bool) -> Path:
    try:
        return _opened(plan_receipt).run(stage, unit, verify=verify)
    finally:
        tell()


@lru_cache(maxsize=1)
def _opened(plan_receipt: str) -> RunnableBuild:
    # One build per worker: the receipts it has read stay valid while this run lasts.
    return open_build(plan_receipt)


def _begin_worker(table: SharedTable) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not what it means to a program that builds
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if RENEWING.locked():  # copied from the parent, which forked
        RENEWING.release()
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()  # a forked worker would print what the build's process prints
    table.use()
    collect_seldom()
    threading.Thread(target=_end_with_build, daemon=True).start()


def _end_with_build() -> None:
    """Kill this worker when the build's process dies. A fork server would not: workers keep its lifeline open."""
    build = multiprocessing.parent_process()
    if build is not None:
        build.join()
        signal.raise_signal(signal.SIGKILL)
