"""Freed outputs: deleted because no step needs them, while the receipt of their step remains valid.

The receipt names them first (`given_back`), then they are deleted: whoever is killed in between leaves files that
nobody misses. Whoever opens one gets DamagedStepError, as for any other output that is gone, and the step runs again:
its new receipt names none.

A step that reads such outputs holds the lock `.reading` of their stage, shared, while it works. Nothing is given back
but by whoever holds that lock alone, and who finds it taken leaves the files to the next that asks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from corpusmill.ledger.again import asked_again, look
from corpusmill.ledger.lock import LOCK_NAME, LockHeldError, held
from corpusmill.ledger.receipt import RECEIPT_NAME, Receipt, read_receipt, write_receipt
from corpusmill.work_folder.outputs import remove
from corpusmill.work_folder.small import put

READING_LOCK = ".reading"
GIVING_LOCK = ".giving_back"


def give_back(folder: Path, patterns: tuple[str, ...]) -> Receipt | None:
    """Delete the outputs of a finished step whose names match; its receipt as it is then.

    None, and nothing is deleted, if another process has the step's lock, or if the step has no receipt or is to run
    again. Raises CorruptDataError for a damaged receipt.
    """
    with suppress(LockHeldError), held(folder / LOCK_NAME, wait=False):
        path = folder / RECEIPT_NAME
        look(folder)
        if not path.exists() or asked_again(folder):
            return None
        receipt = read_receipt(path)
        names = tuple(
            output.name for output in receipt.outputs if any(fnmatchcase(output.name, pattern) for pattern in patterns)
        )
        if names != receipt.given_back:
            receipt = receipt.model_copy(update={"given_back": names})
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
def reading(stage_folder: Path) -> Iterator[None]:
    """Keep the outputs of a stage from being given back while the body of the `with` runs."""
    with _lock_file(stage_folder / READING_LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def nobody_reading(stage_folder: Path) -> Iterator[bool]:
    """Whether no step reads the outputs of a stage; if so, none begins to while the body of the `with` runs.

    Whoever asks waits for others that do: whom this tells of a reader, that reader comes here after.
    """
    with _lock_file(stage_folder / GIVING_LOCK) as turn, _lock_file(stage_folder / READING_LOCK) as lock:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
