"""Memory that a process shares with those that it starts: a file without a name, which each of them maps."""

from __future__ import annotations

import os
import tempfile
from mmap import mmap
from multiprocessing.reduction import DupFd
from typing import IO, Any


class SharedBytes:
    """`size` bytes, zeros at first, for this process and for those that it starts with them as an argument.

    Once `file` is closed no other process can be given them; what is mapped stays.
    """

    def __init__(self, size: int, file: IO[bytes] | None = None) -> None:
        self.size = size
        self.file = file or _memory_file()
        self.file.truncate(size)

    def mapped(self) -> mmap:
        """The bytes."""
        return mmap(self.file.fileno(), self.size)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.size, DupFd(self.file.fileno()))


def _opened(size: int, duplicate: Any) -> SharedBytes:
    return SharedBytes(size, os.fdopen(duplicate.detach(), "r+b"))


def _memory_file() -> IO[bytes]:
    # Not multiprocessing's shared memory: it clears a file in /dev/shm, or else in the temporary folder, which is a
    # SIGBUS where these are full.
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("corpusmill"), "r+b")
    return tempfile.TemporaryFile()
