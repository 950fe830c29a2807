"""One claim on a dataset: every writer into its work folder takes it first, and then holds the dataset exclusively.

**Who.** A process of the command line (build, reprocess, gc, download, upload, export, dedup, index) as long as it
works. A run of an Airflow, from its task `plan` to its task `close`: it holds the dataset even while none of its
processes runs. Commands that only read or plan take no claim.

**The file** `.run.json` in the dataset's work folder names the holder and, for a run, the plan that it builds:
`{"instance", "job", "run", "plan"}`. `instance` distinguishes equal names: an Airflow's own id, or for a process its
machine's boot id. The file's modification time is the heartbeat: the holder sets it every BEAT_SECONDS. It is compared
with the time that the same file system gives a new file, so no two clocks have to agree. In a bucket the claim is a
lease: an object that is only put over the version that was read, and times are the store's. `.run.lock` is held while
the file is read and written; a process keeps it, and the kernel releases it when the process ends. Tasks take
`.run.asking.lock` first, so that the many tasks of a cleared run wait for one another.

**When a claim is void**, in this order:

* a process of this machine: as soon as it ends, however it ends; while it lives, no other gets the lock;
* a run of the asking Airflow: when its scheduler reports that it has ended, and not before, however long it waits;
* any other: EXPIRES_SECONDS after its last heartbeat, which is longer than the longest pause between two tries.

**Who waits.** Commands fail (RunUnderWayError or LockHeldError: exit 75). Airflow tasks retry after half a minute
(corpusmill_airflow/running.py). Every task checks the claim first, because it may be cleared long after its run has
ended: it then takes the dataset again, or waits. Its plan must be the claim's, too: if only the task `plan` ran again,
one run would mix the steps of two plans.

The claim keeps two runs from building at once, and garbage collection from removing what a build needs. Correct bytes
do not depend on it: steps have their own locks, and receipts remain until new ones are written (ledger/finished.py).
"""

from __future__ import annotations

import json
import logging
import os
import platform
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from corpusmill.engine.ledger import RUN_LOCK, locked
from corpusmill.engine.work_folder.small import age_seconds, is_shared, put, refresh, require_conditions, write
from corpusmill.errors import CorpusmillError, PermanentError, TransientError
from corpusmill.storage.mirrored import object_of

CLAIM = ".run.json"
RELEASED = b"{}\n"
MIRROR = ".mirror"
ASKING_LOCK = ".run.asking.lock"
BEAT_SECONDS = 30.0
EXPIRES_SECONDS = 600.0  # a task whose disk was full is tried again after 300
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CLAIM_THREAD = "claim"
RENEWING = Lock()
"""Held while a claim is renewed. Who forks this process holds it meanwhile: no lock is then copied while in use."""

log = logging.getLogger(__name__)


class RunUnderWayError(TransientError):
    """Another run of the dataset is under way."""


class PlanChangedError(PermanentError):
    """A task was created for a plan that its run has since replaced."""


@dataclass(frozen=True)
class Holder:
    """Who has a dataset: run `run` of the DAG `job` of one Airflow, or, without a job, a process of one machine."""

    instance: str
    job: str
    run: str

    def __str__(self) -> str:
        return f"run {self.run} of {self.job}" if self.job else self.run


def this_process(work: Path) -> Holder:
    """This process, of the machine's present boot; where the work folder is in a bucket, of its mirror here."""
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node()
    return Holder(boot + _mirror(work), "", f"process {os.getpid()} on {platform.node()}")


def _mirror(work: Path) -> str:
    """A random id of this mirror, since mirrors on one machine share no lock; "" for a folder that all share."""
    if not is_shared(work):
        return ""
    name = work / MIRROR
    if not name.exists():
        with suppress(FileExistsError), name.open("x", encoding="utf-8") as file:
            file.write(f" {secrets.token_hex(8)}")
    return name.read_text(encoding="utf-8")


@contextmanager
def claimed(work: Path, *, remove_empty: bool = False) -> Iterator[None]:
    """Hold the dataset of a work folder during the `with`; for processes that build or clean up.

    A work folder that this created is removed at the end if it is still empty, because the build was refused; with
    `remove_empty`, an existing one, too.

    Raises RunUnderWayError if a run or a process of another machine holds it, LockHeldError if one of this machine
    does.
    """
    made = [folder for folder in (work, *work.parents) if not folder.exists()] or [work] * remove_empty
    work.mkdir(parents=True, exist_ok=True)
    _require_fit(work)
    me = this_process(work)
    with locked(work / RUN_LOCK, wait=False):
        _require_free(work, me, lambda _: False)
        _write(work, me)
        try:
            with beating(work, me):
                yield
        finally:
            _remove(work, me)
            _remove_unused(made, work)


def _remove_unused(made: list[Path], work: Path) -> None:
    """Remove the folders `made`, the inner ones first, if nothing but the lock, which is held, lies in `work`."""
    if made and sorted(path.name for path in work.iterdir()) == [RUN_LOCK]:
        (work / RUN_LOCK).unlink()
        with suppress(OSError):  # another process has put something there since
            for folder in made:
                folder.rmdir()


def claim_dataset(work: Path, me: Holder, is_under_way: Callable[[Holder], bool], plan: str = "") -> None:
    """Let run `me` have the dataset of a work folder, to build the plan whose folder is called `plan`, once known.

    `is_under_way` tells whether another run of the same Airflow has not ended. Raises as `claimed` does.
    """
    if _claim(work)[0] == me:
        _write(work, me, plan)
    else:
        _take(work, me, is_under_way, plan)


def hold_dataset(
    plan_receipt: Path, me: Holder, is_under_way: Callable[[Holder], bool], run_plan: Callable[[], str]
) -> None:
    """For a task after `plan`: check that run `me` holds the dataset; a void claim is taken again.

    `run_plan` then returns the folder name of the run's plan. Raises as claim_dataset does, and PlanChangedError if the
    run has another plan than the task.
    """
    work, plan = plan_receipt.parents[2], plan_receipt.parent.name
    if _claim(work)[0] != me:
        _take(work, me, is_under_way, run_plan())
    claimed_plan = _claim(work)[1]
    if claimed_plan != plan:
        raise PlanChangedError(
            "run.planned_again: the run was planned again after this task was created, so it would mix two plans",
            where=work,
            expected=f"plan {claimed_plan or 'none: the task plan has not finished'}",
            got=f"plan {plan}",
            next_step="clear the task plan together with everything downstream of it",
        )


def release_dataset(work: Path, me: Holder) -> None:
    """Release the dataset if run `me` still holds it. Raises LockHeldError if a process holds it by now."""
    if _claim(work)[0] == me:
        with _asking(work):
            _remove(work, me)


@contextmanager
def beating(work: Path, me: Holder, every_seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Renew `me`'s claim during the `with`."""
    stop = Event()

    def beat() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # they are the main thread's
        while not stop.is_set():
            with RENEWING:
                try:
                    if not _touch(work, me):
                        log.warning("%s has lost its claim on %s: it was silent for too long", me, work)
                        return
                except (OSError, CorpusmillError) as error:  # a short outage of disk or bucket does not lose the claim
                    log.warning("the claim of %s could not be renewed: %s", work, error)
            stop.wait(every_seconds)

    thread = Thread(target=beat, name=CLAIM_THREAD, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _take(work: Path, me: Holder, is_under_way: Callable[[Holder], bool], plan: str) -> None:
    work.mkdir(parents=True, exist_ok=True)
    _require_fit(work)
    with _asking(work):
        _require_free(work, me, is_under_way)
        if _claim(work)[0] != me:  # else another task of the run has just taken it
            _write(work, me, plan)


@contextmanager
def _asking(work: Path) -> Iterator[None]:
    """For a run: keep others from changing the claim. Tasks wait for one another, which takes a moment; LockHeldError
    if a process holds the dataset.
    """
    with locked(work / ASKING_LOCK, wait=True), locked(work / RUN_LOCK, wait=False):
        yield


def _require_free(work: Path, me: Holder, is_under_way: Callable[[Holder], bool]) -> None:
    """RunUnderWayError if another holds the dataset. Call it with the lock held."""
    idle = abs(age_seconds(work / CLAIM))
    other, _ = _read(work)  # from the same read: the next write is put over this version
    here = this_process(work).instance
    if other is None or other == me or (not other.job and other.instance == here):
        return
    own = bool(me.job) and other.instance == me.instance
    if not (is_under_way(other) if own else idle < EXPIRES_SECONDS):
        return
    elsewhere = ", of another Airflow" if me.job and other.job and not own else ""
    raise RunUnderWayError(
        f"run.under_way: another run of the dataset {work.name} is in progress",
        where=work,
        got=f"{other}{elsewhere}" if own else f"{other}{elsewhere}, last renewed {idle:,.0f} seconds ago",
        next_step="wait: this run continues when that one has ended; or mark that one as failed"
        if own
        else f"wait for it to end; if it died, its claim expires {EXPIRES_SECONDS:.0f} s after its last renewal",
    )


def _claim(work: Path) -> tuple[Holder | None, str]:
    """(holder of the dataset, its plan); (None, "") if there is none, or if a power failure truncated the file."""
    refresh(work / CLAIM, again=True)
    return _read(work)


def _read(work: Path) -> tuple[Holder | None, str]:
    try:
        claim = json.loads((work / CLAIM).read_text(encoding="utf-8"))
        return Holder(str(claim.get("instance", "")), str(claim["job"]), str(claim["run"])), str(claim.get("plan", ""))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None, ""


def _write(work: Path, me: Holder, plan: str = "") -> None:
    """Write a claim over the one that was read; RunUnderWayError if another machine was faster."""
    path, content = work / CLAIM, f"{json.dumps(asdict(me) | {'plan': plan})}\n".encode()
    if not is_shared(path):
        write(path, content)
        return
    while not put(path, content):
        if (other := _claim(work)[0]) not in {None, me}:
            raise RunUnderWayError(
                f"run.just_begun: another run of the dataset {work.name} has just begun", where=work, got=other
            )


def _touch(work: Path, me: Holder) -> bool:
    """Whether the claim is still `me`'s, and was touched."""
    if _claim(work)[0] != me:
        return False
    with suppress(FileNotFoundError):
        if not is_shared(work):
            os.utime(work / CLAIM, follow_symlinks=False)
        elif not put(work / CLAIM, (work / CLAIM).read_bytes()):
            return _claim(work)[0] == me  # another task of the run has just touched it
    return True


def _remove(work: Path, me: Holder) -> None:
    if _claim(work)[0] == me:
        if is_shared(work):
            put(work / CLAIM, RELEASED)  # not every store removes on a condition
        else:
            (work / CLAIM).unlink(missing_ok=True)


def _require_fit(work: Path) -> None:
    """StoreUnfitError if the work folder is in a bucket whose store ignores conditions."""
    if there := object_of(work):
        require_conditions(*there)
