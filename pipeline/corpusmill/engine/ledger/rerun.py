"""Reruns of finished steps: old files remain valid until new files, and then a new receipt, replace them.

A request creates the folder `.again` in the step's folder. Readers continue with the files beside it; the rerun writes
into `.again`, moves the files up by rename, writes the receipt, and removes `.again` last. So an attempt that fails, or
is killed at any moment, loses nothing and leaves the request in place.

In a bucket, the receipt records the request, too (`again`), for other machines.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from corpusmill.engine.ledger.receipt import RECEIPT_NAME, read_receipt
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
