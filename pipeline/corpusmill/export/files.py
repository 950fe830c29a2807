"""Files that are complete or absent, and the error that names a byte in a file.

A killed writer must leave nothing that a reader would accept, so every file is written under a temporary name and
renamed once it is complete. The writer locks the temporary name (flock), so two runs never write one file; the kernel
frees the lock of a killed run, and the next run overwrites what it left. Nothing is synced to the device here: a
process that dies loses nothing that the kernel already has, and files count only once a receipt lists them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from corpusmill.errors import TransientError, VerificationError, full_device_explained

BUFFER_BYTES = 1 << 20
INCOMPLETE = ".incomplete"
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of flock on a file system without locks, such as Lustre without -o flock; files there are not protected."""


@contextmanager
def whole_file(path: Path, *, keep_empty: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for writing and reading back; it appears under its name only when the block ends without an error.

    An older file of that name is removed first, so that no reader pairs it with newer neighbours. An empty file is not
    kept, because no reader of the training formats can map zero bytes, unless `keep_empty`. Raises StorageFullError
    when the device or the quota is full, TransientError while another run writes `path`; other operating system errors
    pass unchanged.
    """
    partial = path.with_name(path.name + ".partial")
    what = "export.disk_full: no space left while writing an export"
    next_step = "free space on that device, then run the task again"
    with full_device_explained(what, where=path, next_step=next_step), _locked(partial) as descriptor:
        try:
            os.ftruncate(descriptor, 0)
            path.unlink(missing_ok=True)
            # A second descriptor keeps the lock when the file is closed, and only closing reports some full quotas.
            with open(os.dup(descriptor), "w+b", buffering=BUFFER_BYTES) as file:  # noqa: PTH123
                yield file
            if keep_empty or os.fstat(descriptor).st_size:
                partial.replace(path)
            else:
                partial.unlink()
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """A folder inside `folder` to write into, whose files move up into `folder` when the block ends without an error.

    They replace files of their names, in reverse order of name: `x.ds` after `x.ds.index`, a manifest after its shards.
    A failed run leaves nothing; a killed one leaves a folder `.incomplete`, which the next run empties. TransientError
    while another run writes into `folder`.
    """
    inner = folder / INCOMPLETE
    with _locked(inner, folder=True):
        try:
            for leftover in sorted(inner.iterdir()):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            yield inner
            for path in sorted(inner.iterdir(), reverse=True):
                path.rename(folder / path.name)
        finally:
            shutil.rmtree(inner)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder and those above it for the block; if it fails, those that it made and left empty are removed."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()
        raise


def hard_link(path: Path, source: Path) -> None:
    """Give the bytes of `source` the name `path`, too; a file system without hard links gets a copy."""
    try:
        path.hardlink_to(source)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        with whole_file(path) as data, source.open("rb") as opened:
            shutil.copyfileobj(opened, data, BUFFER_BYTES)


@contextmanager
def _locked(path: Path, *, folder: bool = False) -> Iterator[int]:
    """Open a file or folder, made if missing, and lock it; TransientError if another run holds it."""
    descriptor = _lock(path, folder)
    while not _is_still(descriptor, path):  # its holder renamed or removed it before it was locked
        os.close(descriptor)
        descriptor = _lock(path, folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(path: Path, folder: bool) -> int:
    if folder:
        path.mkdir(parents=True, exist_ok=True)
    # Never through a link, as in engine/ledger/lock.py: the file is emptied.
    flags = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return descriptor
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise TransientError(
            "output.being_written: another run is writing this output",
            where=path,
            expected="one run at a time",
            next_step="wait for it to end, or choose another output",
        ) from error
    return descriptor


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def file_bytes(path: Path) -> int:
    """Size of `path`; VerificationError if it is missing."""
    if not path.is_file():
        raise VerificationError(
            "export.file_missing: a file of the export is missing", where=path, expected="a file", got="nothing"
        )
    return path.stat().st_size


def fault(what: str, path: Path, offset_bytes: int, *, expected: object, got: object) -> VerificationError:
    """The error every verifier of this room raises: what is wrong, in which file, at which byte."""
    return VerificationError(
        what,
        where=f"{path}, byte {offset_bytes}",
        expected=expected,
        got=got,
        next_step="restore the file from another copy, or build it again; if the error persists, it is a bug",
    )
