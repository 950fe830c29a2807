"""Locks that name their owner and cannot outlive it: the kernel frees them when the holder dies, however it dies.

And the limit of open files of a process, where every memory map counts.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import platform
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from corpusmill.errors import PermanentError, TransientError

LOCK_NAME = ".lock"  # in a step's folder: held by the process that writes into it
RUN_LOCK = ".run.lock"  # in a dataset's work folder: held by the process that builds or cleans up

LOCKED: set[IO[str]] = set()
"""The locks of this process. A process forked from it closes them at once: else they would outlive their owner."""

log = logging.getLogger(__name__)


class LockHeldError(TransientError):
    """Another process works on the same thing."""


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock file `path` (flock). If another process holds it, wait, or raise LockHeldError, which names it."""
    file = _lock(path, wait=wait)
    while not is_still(file, path):  # the holder removed the folder, so the locked file no longer has a name
        file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _lock(path, wait=wait)
    LOCKED.add(file)
    try:
        with file:
            file.truncate(0)
            file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": time.time()}))
            file.flush()
            yield
            file.truncate(0)
    finally:
        LOCKED.discard(file)


def _close_inherited() -> None:
    for file in LOCKED:
        file.close()
    LOCKED.clear()


os.register_at_fork(after_in_child=_close_inherited)


def _lock(path: Path, *, wait: bool) -> IO[str]:
    # Never through a link: the lock file is emptied, and a link could lead anywhere.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    file = open(descriptor, "a+", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(file)
        if not wait:
            file.close()
            raise LockHeldError(
                "run.locked: another run holds this dataset",
                where=path,
                got=owner,
                next_step="wait for it to end, or stop that process",
            ) from None
        log.warning("waiting for %s, held by %s", path.parent, owner)
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def is_still(file: IO[Any], path: Path) -> bool:
    """Whether an open file still has its name: it was neither removed nor replaced before it was locked."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed run left in a step's folder; the caller holds its lock."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK_NAME:
            path.unlink()


def lock_owner(path: Path) -> int:
    """The process that holds a lock file, or held it when it was killed; 0 if there is none."""
    try:
        return int(json.loads(path.read_bytes())["pid"])
    except (FileNotFoundError, ValueError):
        return 0


def _owner(file: IO[str]) -> str:
    file.seek(0)
    try:
        owner = json.loads(file.read())
    except ValueError:
        return "a process that has not registered yet"
    return f"process {owner['pid']} on {owner['host']}, for {max(0, time.time() - owner['since']):,.0f} seconds"


ENOUGH = 65_536  # the limit is not raised beyond it: some programs close every number below the limit


@contextmanager
def open_files(what: str) -> Iterator[None]:
    """Raise the process's limit as far as allowed; PermanentError if `what` needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # a kernel may have a lower limit than it states
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise PermanentError(
            f"run.too_few_open_files: {what} needs more open files than allowed",
            expected="64 or more, for any number of shards",
            got=f"a limit of {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}",
            next_step="raise it, for example with ulimit -n 1024",
        ) from error
