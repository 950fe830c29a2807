"""Runs a build on this machine, without Airflow: the same steps, a process per core.

Workers are forked from a process that has loaded what most steps need (loaded.py), so a worker costs next to nothing:
from this one, whose tokenizer they share, unless other threads run in it.
"""

from __future__ import annotations

import errno
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache
from itertools import chain
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from corpusmill.builds.chain import GATES, Task, find_task, needed_tasks
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset, require_same_code
from corpusmill.builds.preflight import require_tokenizer
from corpusmill.builds.processes import WorkerLostError, collect_seldom
from corpusmill.builds.progress import RunProgress
from corpusmill.config import DatasetConfig, work_of
from corpusmill.engine.claim import CLAIM_THREAD, RENEWING, claimed
from corpusmill.engine.ledger import LOCK_NAME, compared, lock_owner, peak_memory_bytes, read_receipt
from corpusmill.engine.parts import Part
from corpusmill.engine.rollup import is_unchanged, note_unchanged
from corpusmill.engine.running import RunnableBuild, log_finished
from corpusmill.engine.runs import begin_run
from corpusmill.engine.stage import StepMissingError, StepName
from corpusmill.engine.work_folder.moved import report_moved
from corpusmill.kernels import advance
from corpusmill.kernels.shared_bytes import SharedBytes
from corpusmill.report.progress import progress_view
from corpusmill.storage.mirrored import address_of, path_of

if TYPE_CHECKING:
    from corpusmill.report.progress import StageProgress

ENDING = {signal.SIGINT, signal.SIGTERM}
LOOK_SECONDS = 0.1  # between looks at how much memory workers take
STOPPED = "stopped; run the same command to resume"
SMALL_BYTES = 4 << 20  # of sources, whose steps one process finishes in the second that two take to start

Start: TypeAlias = Callable[[str, str], int]  # of a stage's unit: its slot
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
    with (
        advance.shared(progress.memory),
        worker_pool(workers, progress.slots) if several else nullcontext() as pool,
        view(progress.read),
    ):
        for steps in chain([first], waves):
            for (stage, unit), _ in (
                _run_in_pool(pool, build, steps, verify=verify, start=progress.start)
                if pool
                else _run_here(build, steps, verify=verify, start=progress.start)
            ):
                progress.end(build, stage, unit)
    if not until:
        note_unchanged(build)


def _waves_to_run(build: RunnableBuild, until: str, progress: RunProgress, *, verify: bool) -> Iterator[list[StepName]]:
    """The steps of each wave; reuses unchanged stages as a whole. No wave without steps."""
    for wave in GRAPH.waves(until):
        for stage in wave:
            progress.begin(build, stage)
        steps: list[StepName] = []
        for stage in wave:
            if not verify and GRAPH[stage].reuse and is_unchanged(build, stage):
                build.reuse_stage(stage)
                progress.reuse(build, stage)
            else:
                build.noted_stages.pop(stage, None)
                steps += [(stage, unit) for unit in build.units(stage)]
        if steps:
            yield steps


def run_watched(
    plan_receipt: Path, *, workers: int | None = None, verify: bool = False, until: str = "", quiet: bool = False
) -> RunnableBuild:
    """As run_steps, with progress bars (or lines) on standard error unless `quiet`; returns the build."""
    progress = RunProgress(GRAPH, [stage for wave in GRAPH.waves(until) for stage in wave])
    watched = {} if quiet else {"view": progress_view}
    try:
        run_steps(plan_receipt, workers=workers, verify=verify, until=until, progress=progress, **watched)
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        raise
    return open_build(plan_receipt)


def worker_count(requested: int | None, source_bytes: int = sys.maxsize) -> int:
    """The requested number of workers, else one per core, or one for small sources."""
    return requested or (1 if source_bytes <= SMALL_BYTES else os.cpu_count() or 1)


def run_part(
    plan_receipt: str | Path,
    name: str,
    part: Part,
    *,
    processes: int = 1,
    again: bool = False,
    verify: bool = False,
) -> list[Path]:
    """Run one part of a task (builds/chain.py), `processes` steps at a time; returns the paths of their receipts.

    With `again` finished steps run, too; with `verify` one is reused only if its outputs have their sha256. The caller
    must have claimed the dataset.
    """
    require_same_code(path_of(plan_receipt))
    build, task = open_build(plan_receipt), find_task(name)
    stages = task.stages(build.config, part.of)
    if again:  # all of it first: a retry keeps what the first try has finished, and does the rest again
        _ask_for_part(build, task, stages, part)
    receipts: dict[StepName, Path] = {}
    with ExitStack() as workers:
        pool = None
        for wave in GRAPH.waves():
            steps = [(stage, unit) for stage in wave if stage in stages for unit in task.units(build, stage, part)]
            if pool is None and processes > 1 and len(steps) > 1:
                pool = workers.enter_context(worker_pool(processes))
            run = _run_in_pool(pool, build, steps, verify=verify) if pool else _run_here(build, steps, verify=verify)
            receipts.update(run)
    if gate := GATES.get(task.step.name):
        with suppress(StepMissingError):  # other parts have not ended yet: the last one passes the gate
            gate(build)
    if GRAPH.names[-1] in stages:
        note_unchanged(build)
    return list(receipts.values())


def _ask_for_part(build: RunnableBuild, task: Task, stages: tuple[str, ...], part: Part) -> None:
    for stage in stages:
        with suppress(StepMissingError):  # its units depend on steps that have not finished, so none has
            for unit in task.units(build, stage, part):
                build.ask_for(stage, unit)


def run_claimed(config: DatasetConfig, command: list[str]) -> int:
    """Claim a dataset, plan it, and run a program that has all tasks run elsewhere; returns its exit code.

    The program gets the plan's receipt as CORPUSMILL_PLAN and the tasks, in order, as CORPUSMILL_ORDER.
    RunUnderWayError or LockHeldError if another run of the dataset is under way.
    """
    with claimed(work_of(config)):
        plan_receipt = begin_run(plan_dataset(config, to_build=True))
        variables = {
            "CORPUSMILL_PLAN": address_of(plan_receipt),
            "CORPUSMILL_ORDER": " ".join(task.name for task in needed_tasks(config)),
        }
        return subprocess.run(command, env=os.environ | variables, check=False).returncode


@contextmanager
def worker_pool(number: int, slots: SharedBytes | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes for steps. If this process forks them, it has forked all of them when the `with` begins.

    `slots`: where steps count how far they are (advance.py).
    """
    others = set(multiprocessing.active_children())
    table = SharedBytes(compared.TABLE_BYTES)
    compared.use(table.mapped())
    with (
        table.file,
        ProcessPoolExecutor(
            number, mp_context=_context(), initializer=_begin_worker, initargs=(table, slots, dict(os.environ))
        ) as pool,
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


def forks() -> bool:
    """Whether workers are forked from this process. A fork copies only the thread that forks: what other threads have
    locked would stay locked. So a process with other threads, a library's included, is not forked. The claim's may run:
    see RENEWING.
    """
    ours = {threading.current_thread().name, CLAIM_THREAD} & {thread.name for thread in threading.enumerate()}
    if sys.platform != "linux" or threading.active_count() != len(ours):
        return False
    import corpusmill.builds.loaded  # noqa: F401 (numpy may start threads, too)

    return len(os.listdir("/proc/self/task")) == len(ours)  # noqa: PTH208


def _context() -> BaseContext:
    if forks():
        return multiprocessing.get_context("fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["corpusmill.builds.loaded"])
    return context


def _unseen(_stage: str, _unit: str) -> int:
    return advance.NO_SLOT


def _run_here(
    build: RunnableBuild, steps: list[StepName], *, verify: bool, start: Start = _unseen
) -> Iterator[tuple[StepName, Path]]:
    """Run steps one after the other; yields each, with its receipt's path, when it has ended."""
    for stage, unit in steps:
        advance.use(start(stage, unit))
        yield (stage, unit), build.run(stage, unit, verify=verify)


def _run_in_pool(
    pool: ProcessPoolExecutor, build: RunnableBuild, steps: list[StepName], *, verify: bool, start: Start = _unseen
) -> Iterator[tuple[StepName, Path]]:
    """Run steps that may run at the same time; yields each, with its receipt's path, when it has ended."""
    running: dict[Future[Path], StepName] = {}
    try:
        for stage, unit in steps:
            if (not verify and build.need_not_run(stage, unit)) or len(steps) == 1:
                # Quicker here than a worker could read what this process knows.
                yield from _run_here(build, [(stage, unit)], verify=verify, start=start)
            else:
                slot = start(stage, unit)
                running[_submitted(pool, _run_step, str(build.plan_receipt), stage, unit, verify, slot)] = stage, unit
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
    """`pool.submit`, which raises an OSError without a number, or EBADF, if the pool breaks, and closes its queue and
    pipes, meanwhile.
    """
    try:
        return pool.submit(call, *arguments)
    except OSError as error:
        if error.errno not in {None, errno.EBADF}:
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
    ran = {name: killed[pid] for name, lock in locks.items() if (pid := lock_owner(lock)) in killed}
    peak = f"; peak at least {', '.join(f'{peak:,}' for peak in ran.values())} bytes" if ran else ""
    return WorkerLostError(
        "run.worker_died: a worker died while it ran"
        f" {' and '.join(ran) or ' '.join(steps[0]) + ' or a concurrent step'}",
        got=f"killed, most likely because memory ran out{peak}",
        next_step="run again: finished steps are reused; if it dies again, use fewer --workers",
    )


def _run_step(plan_receipt: str, stage: str, unit: str, verify: bool, slot: int) -> Path:
    advance.use(slot)
    try:
        return _opened(plan_receipt).run(stage, unit, verify=verify)
    finally:
        report_moved()


@lru_cache(maxsize=1)
def _opened(plan_receipt: str) -> RunnableBuild:
    # One build per worker: the receipts it has read stay valid while this run lasts.
    return open_build(plan_receipt)


def _begin_worker(table: SharedBytes, slots: SharedBytes | None, environment: dict[str, str]) -> None:
    os.environ.clear()  # a fork server has that of its first pool: other credentials
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not what it means to a program that builds
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    if RENEWING.locked():  # copied from the parent, which forked
        RENEWING.release()
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()  # a forked worker would print what the build's process prints
    compared.use(table.mapped())
    if slots:
        advance.share(slots.mapped())
    collect_seldom()
    threading.Thread(target=_end_with_build, daemon=True).start()


def _end_with_build() -> None:
    """Kill this worker when the build's process dies. A fork server would not: workers keep its lifeline open."""
    build = multiprocessing.parent_process()
    if build is not None:
        build.join()
        signal.raise_signal(signal.SIGKILL)
