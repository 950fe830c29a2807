"""Freed outputs: deleted because no step needs them, while the receipt of their step remains valid.

The receipt lists them first (`given_back`), then they are deleted: a process killed in between leaves files that no
step needs. Opening one raises DamagedStepError, as for any missing output, and the step runs again; its new receipt
lists none.

A step that reads such outputs holds a shared lock, one for each kind of unit of their stage, while it works. Reclaiming
takes the exclusive lock; if it is taken, the files are left for the next check.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from corpusmill.engine.ledger.lock import LOCK_NAME, LockHeldError, locked
from corpusmill.engine.ledger.receipt import RECEIPT_NAME, Receipt, read_receipt, write_receipt
from corpusmill.engine.ledger.rerun import refresh_step, rerun_requested
from corpusmill.engine.work_folder.outputs import remove
from corpusmill.engine.work_folder.small import put

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
