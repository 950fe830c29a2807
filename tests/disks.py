"""A file system that is soon full, for tests of what is said then."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a file system of that size at `folder`, where this user may; else the test is skipped."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", folder]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Fill a small disk to its last page."""
    with suppress(OSError), (folder / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


def enlarge(folder: Path, mebibytes: int) -> None:
    """Make room on a small disk."""
    subprocess.run(["mount", "-o", f"remount,size={mebibytes}m", folder], check=True)
