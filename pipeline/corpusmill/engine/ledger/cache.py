"""Bounds this machine's cache of a work folder in a bucket: outputs that were fetched or sent.

CORPUSMILL_CACHE_BYTES is the bound; without it files stay until `corpusmill gc` or a person removes them. Space is
freed before an input block is fetched, and before a step commits, whose outputs count once they are written: files that
no process has open are removed, of the least recently opened steps first. Receipts stay.

Readers hold a file open with a shared lock for as long as they read it or have it mapped (Blocks.open). Eviction takes
the exclusive lock and skips a file that it cannot lock. So a file that a step has read and closed may be removed while
the step runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corpusmill.engine.ledger.finished import lock_file
from corpusmill.engine.ledger.lock import LOCK_NAME, LockHeldError, locked, remove_unfinished
from corpusmill.engine.ledger.receipt import BLOCKS_NAME, RECEIPT_NAME, parse_receipt
from corpusmill.engine.work_folder.objects import objects_of
from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.storage.mirrored import cache_folder, object_of

BOUND = "CORPUSMILL_CACHE_BYTES"
KEPT_SHARE = 0.95  # of the bound remains after an eviction
UNSEEN_SHARE = (
    1 / 160
)  # of the bound: what a process may add before it checks, and at once; 8 processes together a tenth
DISK_BLOCK_BYTES = 4096
EVICTING_LOCK = ".evicting"

log = logging.getLogger(__name__)
_growing: list[bool] = []  # not empty while a command of this process reads a whole build: the cache is unbounded


def cache_bound() -> int | None:
    """The bound in bytes; None without one. ConfigError for anything but a number."""
    text = os.environ.get(BOUND)
    if not text or _growing:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(
            "cache.bound: the bound of the cache is not a number of bytes", where=BOUND, expected="1 or more", got=text
        )
    return int(text)


@contextmanager
def growing() -> Iterator[None]:
    """Lift the bound during the `with`, for commands that read the files of a whole build by name."""
    _growing.append(True)
    try:
        yield
    finally:
        _growing.pop()


def fetched_at_once(most: int, block_bytes: int) -> int:
    """How many blocks may be fetched at once, of `most`."""
    bound = cache_bound()
    return most if bound is None else max(1, min(most, int(bound * UNSEEN_SHARE) // block_bytes))


def make_room(place: Path, coming_bytes: int, *, here: bool = False) -> None:
    """Keep the cache within its bound when `coming_bytes` are about to be added, or were added already (`here`)."""
    bound, there = cache_bound(), object_of(place)
    if bound is None or there is None:
        return
    objects = objects_of(there[0])
    coming_bytes += -coming_bytes % DISK_BLOCK_BYTES
    objects.unseen += coming_bytes
    if objects.unseen >= bound * UNSEEN_SHARE:
        objects.unseen = 0
        objects.most_kept = max(objects.most_kept, _evict(bound, 0 if here else coming_bytes))


def evict_excess(work: Path) -> None:
    """After a step that exceeded the bound: warn how much its open files took, and evict them."""
    bound, there = cache_bound(), object_of(work)
    if bound is None or there is None:
        return
    objects = objects_of(there[0])
    if objects.most_kept > bound:
        log.warning(
            "the cache %s had to hold %s bytes, which steps had open or wrote at once, and its bound %s is %s:"
            " raise it, run fewer tasks at a time on this machine, or make source.shard_bytes smaller",
            cache_folder(),
            f"{objects.most_kept:,}",
            BOUND,
            f"{bound:,}",
        )
        _evict(bound, 0)
    objects.most_kept = 0


def _evict(bound: int, coming_bytes: int) -> int:
    """Evict until the cache plus `coming_bytes` takes KEPT_SHARE of the bound; returns that sum."""
    folder = cache_folder()
    with lock_file(folder / EVICTING_LOCK) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        steps = [(step, disk_bytes(step)) for step in _steps(folder / "s3")]
        total = coming_bytes + sum(size for _, size in steps)
        if total > bound * KEPT_SHARE:
            for step, _ in sorted(steps, key=lambda entry: (_opened_at(entry[0]), entry[0])):
                total -= _drop(step)
                if total <= bound * KEPT_SHARE:
                    break
        return total


def _steps(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        if {RECEIPT_NAME, LOCK_NAME} & {*names}:
            folders.clear()
            yield Path(parent)


def disk_bytes(step: Path) -> int:
    """Disk space of a step's folder on this machine; holes in files do not count."""
    total = 0
    for parent, _, names in os.walk(step):
        for name in names:
            with suppress(FileNotFoundError):  # another process changes the folder
                total += Path(parent, name).lstat().st_blocks * 512
    return total


def _opened_at(step: Path) -> float:
    try:
        return (step / BLOCKS_NAME).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _drop(step: Path) -> int:
    """Remove a step's local outputs that no process has open, or those that a killed step left; returns the freed
    bytes.
    """
    freed, kept = 0, False
    with suppress(LockHeldError, FileNotFoundError, CorruptDataError), locked(step / LOCK_NAME, wait=False):
        if not (step / RECEIPT_NAME).exists():
            freed = disk_bytes(step)
            remove_unfinished(step)
            return freed - disk_bytes(step)
        for output in parse_receipt(step / RECEIPT_NAME).outputs:
            try:
                freed += _remove(step / output.name)
            except BlockingIOError:
                kept = True
        freed += 0 if kept else _remove(step / BLOCKS_NAME)
    return freed


def _remove(path: Path) -> int:
    """Remove a file unless a process has it open (BlockingIOError); returns the freed bytes."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return 0
    with file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return os.fstat(file.fileno()).st_blocks * 512
