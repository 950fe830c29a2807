"""How much of a work folder in a bucket this machine keeps: outputs that were fetched or sent, and nobody reads now.

CORPUSMILL_CACHE_BYTES bounds them; without it they stay until `corpusmill gc` or somebody removes the folder. What was
opened longest ago goes first, whole steps at a time, and their receipts stay. What a step under way reads stays, too,
so a machine needs room for the inputs and outputs of its steps under way beside what it keeps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from corpusmill.errors import ConfigError, CorruptDataError
from corpusmill.ledger.blocks import BLOCKS_NAME
from corpusmill.ledger.given_back import nobody_reading
from corpusmill.ledger.lock import LOCK_NAME, LockHeldError, held
from corpusmill.ledger.receipt import RECEIPT_NAME, parse_receipt
from corpusmill.mirrored import SCHEMES, cache_folder, object_of
from corpusmill.work_folder.buckets import objects_of
from corpusmill.work_folder.moved import moved

BOUND = "CORPUSMILL_CACHE_BYTES"
KEPT_SHARE = 0.95  # of the bound is left when something had to go
LOOKED_AFTER_SHARE = 1 / 160  # so many bytes of a process: 8 of them stay within the rest
EVICTING_LOCK = ".evicting"


def cache_bound() -> int | None:
    """The bound in bytes; None without one. ConfigError for what is no number."""
    text = os.environ.get(BOUND)
    if not text:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(
            "the bound of the cache is not a number of bytes", where=BOUND, expected="1 or more", got=text
        )
    return int(text)


def let_go(work: Path) -> None:
    """Keep the cache within its bound, after a step of a work folder: what nobody reads goes."""
    bound, there = cache_bound(), object_of(work)
    if bound is None or there is None:
        return
    objects = objects_of(there[0])
    bytes_moved = moved().bytes_received + moved().bytes_sent
    if objects.looked_at and bytes_moved - objects.looked_at < bound * LOOKED_AFTER_SHARE:
        return
    objects.looked_at = bytes_moved
    with suppress(LockHeldError), held(cache_folder() / EVICTING_LOCK, wait=False):
        _evict(cache_folder(), bound)


def _evict(folder: Path, bound: int) -> None:
    """Remove outputs, those opened longest ago first, until KEPT_SHARE of the bound is left."""
    mirrors = [folder / scheme.partition(":")[0] for scheme in SCHEMES]
    steps = [(step, held_bytes(step)) for mirror in mirrors for step in _steps(mirror)]
    total = sum(size for _, size in steps)
    if total <= bound * KEPT_SHARE:
        return
    for step, size in sorted(steps, key=lambda entry: (_opened_at(entry[0]), entry[0])):
        if size and _drop(step):
            total -= size
        if total <= bound * KEPT_SHARE:
            return


def _steps(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        if RECEIPT_NAME in names:
            folders.clear()
            yield Path(parent)


def held_bytes(step: Path) -> int:
    """How much of the disk a step's folder takes here: of a file with holes, what is there."""
    return sum(Path(parent, name).lstat().st_blocks * 512 for parent, _, names in os.walk(step) for name in names)


def _opened_at(step: Path) -> float:
    try:
        return (step / BLOCKS_NAME).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _drop(step: Path) -> bool:
    """Whether a step's outputs were removed here: nobody reads or writes them."""
    with suppress(LockHeldError, FileNotFoundError, CorruptDataError), nobody_reading(step.parent) as alone:
        if alone:
            with held(step / LOCK_NAME, wait=False):
                for name in (BLOCKS_NAME, *(output.name for output in parse_receipt(step / RECEIPT_NAME).outputs)):
                    (step / name).unlink(missing_ok=True)
            return True
    return False
