"""A finished step that runs again: its old files remain valid until new files, and then a new receipt, replace them.

Whoever asks for it makes the folder `.again` in the step's folder. Readers go on reading what is beside it; whoever
runs the step writes into `.again`, moves the files up by rename, writes the receipt, and removes `.again` last. So a
try that fails, or is killed at any moment, has lost nothing and leaves the step asked for.

Of a work folder in a bucket the receipt says it, too (`again`), for every other machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from corpusmill.errors import CorruptDataError
from corpusmill.ledger.receipt import RECEIPT_NAME, read_receipt, sync_folder
from corpusmill.work_folder.small import is_shared, put, refresh

AGAIN = ".again"


def ask_again(folder: Path) -> None:
    """Have the step of this folder run again, if it has finished; its receipt and its outputs stand until it has."""
    mark = folder / AGAIN
    if mark.is_symlink():
        mark.unlink()  # what is written there would go wherever it leads
    if refresh(folder / RECEIPT_NAME):
        mark.mkdir(exist_ok=True)
        if is_shared(folder):
            _tell_others(folder)


def look(place: Path | str) -> None:
    """Bring the receipt of a step in a bucket here, and whether the step is to run again."""
    if not is_shared(place):
        return
    folder = Path(place)
    mark = folder / AGAIN
    if refresh(folder / RECEIPT_NAME) and _says_again(folder):
        mark.mkdir(exist_ok=True)
    elif mark.is_dir():
        shutil.rmtree(mark, ignore_errors=True)  # another machine has run it


def _tell_others(folder: Path) -> None:
    while refresh(folder / RECEIPT_NAME) and not _says_again(folder):
        try:
            receipt = read_receipt(folder / RECEIPT_NAME)
        except CorruptDataError:
            return  # nobody takes it for valid
        put(folder / RECEIPT_NAME, receipt.model_copy(update={"again": True}).text())


def _says_again(folder: Path) -> bool:
    try:
        return read_receipt(folder / RECEIPT_NAME).again
    except CorruptDataError:
        return False


def asked_again(folder: Path | str) -> bool:
    """Whether the step of this folder is to run again although it has a receipt."""
    # Asked of every step of a build again and again: a Path takes ten times as long as the call.
    return os.path.isdir(f"{folder}/{AGAIN}") and os.path.exists(f"{folder}/{RECEIPT_NAME}")  # noqa: PTH110, PTH112


def move_up(written: Path, folder: Path) -> None:
    """Put every file that a step wrote again in the place of the old one, and flush the new names to the device."""
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
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.is_dir() and not path.is_symlink():
            sync_folder(path)


def remove_others(folder: Path, kept: Collection[str]) -> None:
    """Remove every file but `kept`, which an earlier try left, and at last the mark that asked for the step."""
    for path in sorted(folder.rglob("*")):
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder and path.relative_to(folder).as_posix() not in kept:
            path.unlink()
    shutil.rmtree(folder / AGAIN)
