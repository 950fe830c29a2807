"""What may happen to a finished step: a rerun, or its outputs are freed because no step needs them.

A request for a **rerun** creates the folder `.again` in the step's folder. Readers continue with the files beside it;
the rerun writes into `.again`, moves the files up by rename, writes the receipt, and removes `.again` last. So an
attempt that fails, or is killed at any moment, loses nothing and leaves the request in place. In a bucket, the receipt
records the request, too (`again`), for other machines.

**Freed** outputs are deleted while the receipt of their step remains valid. It lists them first (`given_back`),
then they are deleted: a process killed in between leaves files that no step needs. Opening one raises DamagedStepError,
as for any missing output, and the step runs again; its new receipt lists none. A step that reads such outputs holds a
shared lock, one for each kind of unit of their stage, while it works. Freeing takes the exclusive lock; if it is taken,
the files are left for the next check.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from corpusmill.engine.ledger.lock import LOCK_NAME, LockHeldError, locked
from corpusmill.engine.ledger.receipt import RECEIPT_NAME, Receipt, read_receipt, write_receipt
from corpusmill.engine.work_folder.outputs import remove
from corpusmill.engine.work_folder.small import is_shared, put, refresh
from corpusmill.errors import CorruptDataError

RERUN = ".again"


def request_rerun(folder: Path) -> None:
    """Request a rerun of the step of this folder, if it has finished; its receipt and outputs remain until then."""
    mark = folder / RERUN
    if mark.is_symlink():
        mark.unlink()  # writes to it would follow the link
    if refresh(folder / RECEIPT_NAME):
        mark.mkdir(exist_ok=True)
        if is_shared(folder):
            _mark_receipt(folder)


def refresh_step(place: Path | str) -> None:
    """Refresh the receipt of a step in a bucket, and the mark that it is to run again."""
    if not is_shared(place):
        return
    folder = Path(place)
    mark = folder / RERUN
    if refresh(folder / RECEIPT_NAME) and _says_rerun(folder):
        mark.mkdir(exist_ok=True)
    elif mark.is_dir():
        shutil.rmtree(mark, ignore_errors=True)  # another machine has run it


def _mark_receipt(folder: Path) -> None:
    while refresh(folder / RECEIPT_NAME) and not _says_rerun(folder):
        try:
            receipt = read_receipt(folder / RECEIPT_NAME)
        except CorruptDataError:
            return  # it is not valid for any machine
        put(folder / RECEIPT_NAME, replace(receipt, again=True).text())


def _says_rerun(folder: Path) -> bool:
    try:
        return read_receipt(folder / RECEIPT_NAME).again
    except CorruptDataError:
        return False


def rerun_requested(folder: Path | str) -> bool:
    """Whether the step of this folder is to run again although it has a receipt."""
    # Called repeatedly for every step of a build: building a Path takes ten times as long as the call.
    return os.path.isdir(f"{folder}/{RERUN}") and os.path.exists(f"{folder}/{RECEIPT_NAME}")  # noqa: PTH110, PTH112


def move_up(written: Path, folder: Path) -> None:
    """Replace every old file by its rewritten one."""
    for path in sorted(written.rglob("*")):
        place = folder / path.relative_to(written)
        if path.is_dir():
            if place.is_symlink() or not place.is_dir():
                place.unlink(missing_ok=True)
                place.mkdir()
        else:
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            path.replace(place)


def remove_others(folder: Path, kept: Collection[str]) -> None:
    """Remove every file but `kept`, left by an earlier attempt, and finally the request."""
    for path in sorted(folder.rglob("*")):
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder and path.relative_to(folder).as_posix() not in kept:
            path.unlink()
    shutil.rmtree(folder / RERUN)


READING_LOCK = ".reading"
RECLAIMING_LOCK = ".giving_back"


def reclaim_outputs(folder: Path, patterns: tuple[str, ...]) -> Receipt | None:
    """Delete the outputs of a finished step whose names match; returns its updated receipt.

    Returns None and deletes nothing if another process holds the step's lock, or if the step has no receipt or is to
    run again. Raises CorruptDataError for a damaged receipt.
    """
    with suppress(LockHeldError), locked(folder / LOCK_NAME, wait=False):
        path = folder / RECEIPT_NAME
        refresh_step(folder)
        if not path.exists() or rerun_requested(folder):
            return None
        receipt = read_receipt(path)
        names = tuple(
            output.name for output in receipt.outputs if any(fnmatchcase(output.name, pattern) for pattern in patterns)
        )
        if names != receipt.reclaimed:
            receipt = replace(receipt, reclaimed=names)
            if not receipt.attempt:
                write_receipt(receipt, folder, finished_ns=path.stat().st_mtime_ns)
            elif not put(path, receipt.text()):
                return None
        for name in names:
            (folder / name).unlink(missing_ok=True)
        if receipt.attempt:
            remove(folder, receipt.attempt, names)
        return receipt
    return None


@contextmanager
def reading(stage_folder: Path, kind: str = "") -> Iterator[None]:
    """Keep the outputs of a stage's units of a kind from being reclaimed during the `with`."""
    with lock_file(stage_folder / f"{READING_LOCK}{kind}") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def nobody_reading(stage_folder: Path, kind: str = "") -> Iterator[bool]:
    """Yields whether no step reads the outputs of a stage's units of a kind; if so, none can begin to in the `with`.

    Callers wait for one another, so a reader that one of them meets will check again after it.
    """
    turn_path, lock_path = (stage_folder / f"{name}{kind}" for name in (RECLAIMING_LOCK, READING_LOCK))
    with lock_file(turn_path) as turn, lock_file(lock_path) as lock:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """A descriptor of a lock file, which is created with its folder; closing it frees the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
