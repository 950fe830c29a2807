"""A finished step that runs again: what it wrote before stands until new files, and then a new receipt, replace it.

Whoever asks for it makes the folder `.again` in the step's folder. Readers go on reading what is beside it; whoever
runs the step writes into `.again`, moves the files up by rename, writes the receipt, and removes `.again` last. So a
try that fails, or is killed at any moment, has lost nothing and leaves the step asked for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from corpusmill.ledger.receipt import RECEIPT_NAME, sync_folder

AGAIN = ".again"


def ask_again(folder: Path) -> None:
    """Have the step of this folder run again, if it has finished; its receipt and its outputs stand until it has."""
    mark = folder / AGAIN
    if mark.is_symlink():
        mark.unlink()  # what is written there would go wherever it leads
    if (folder / RECEIPT_NAME).exists():
        mark.mkdir(exist_ok=True)


def asked_again(folder: Path) -> bool:
    """Whether the step of this folder is to run again although it has a receipt."""
    # Asked of every step of a build again and again: a Path takes ten times as long as the call.
    return os.path.isdir(f"{folder}/{AGAIN}") and (folder / RECEIPT_NAME).exists()  # noqa: PTH112


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
