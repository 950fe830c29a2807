"""Files in a folder of this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from corpusmill.errors import PermanentError, StoreUnavailableError, VerificationError, full_device_explained
from corpusmill.fingerprint import file_digest
from corpusmill.storage.addresses import natural_order
from corpusmill.storage.checksums import Checksum
from corpusmill.storage.locations import StoredFile, require_identity, safe_relative_name
from corpusmill.storage.retries import Traffic
from corpusmill.storage.walk import walk_files

COPY_BYTES = 8 << 20
IN_KERNEL_BYTES = 1 << 30
IN_THE_WAY = {
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOENT,
}
NOT_IN_KERNEL = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
"""Errors of copy_file_range between file systems that it cannot copy between, and in kernels and sandboxes without it.
"""
PARTIAL = ".partial"  # ends the temporary name of a file that is arriving
ARRIVING = re.compile(r"\.[0-9a-f]{32}\.partial")
FORGOTTEN_SECONDS = 86_400
_arrivals = count()


@contextmanager
def explained(path: Path, verb: str = "write to a destination") -> Iterator[None]:
    """Translate errors of a file system while `path` is used: device full, path obstructed, or transient."""
    next_step = "free space there, then run again: files that arrived are not sent again"
    try:
        with full_device_explained(
            "destination.disk_full: no space left at the destination", where=path, next_step=next_step
        ):
            yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        if error.errno in IN_THE_WAY:
            raise PermanentError(
                f"files.refused: cannot {verb}",
                where=path,
                expected="accessible folders and files, no file where a folder is needed or vice versa",
                got=why,
                next_step="check what is there and who owns it, then run again",
            ) from error
        raise StoreUnavailableError(f"files.unavailable: cannot {verb}", where=path, got=why) from error


def _copy(source: Path, target: Path) -> None:
    """Copy a file and flush it: within the kernel, which shares the blocks if the file system can (reflink).

    Never a hard link: a write to one name would change both.
    """
    with source.open("rb", buffering=0) as reading, target.open("wb") as writing:
        try:
            while os.copy_file_range(reading.fileno(), writing.fileno(), IN_KERNEL_BYTES):
                pass
        except AttributeError:  # not Linux
            pass
        except OSError as error:
            if error.errno not in NOT_IN_KERNEL:
                raise
        shutil.copyfileobj(reading, writing, COPY_BYTES)  # the rest
        writing.flush()
        os.fsync(writing.fileno())


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


class LocalStore:
    """A folder; names are paths below it."""

    def __init__(self, folder: str, *, traffic: Traffic | None = None) -> None:
        self.folder = folder
        self.traffic = traffic or Traffic()
        self._root = Path(folder)

    def iter_files(self) -> Iterator[StoredFile]:
        """Every regular file below the folder, links followed as in walk.py, without files that are still arriving.

        A folder that cannot be read is an error, so that nothing is silently missing.
        """
        with explained(self._root, "list a folder"):
            for name in walk_files(self._root, hidden=True):
                if not name.endswith(PARTIAL):
                    path = self._path(name)
                    yield _stored(name, path, path.stat())

    def list_files(self) -> list[StoredFile]:
        """See Store."""
        return sorted(self.iter_files(), key=lambda file: natural_order(file.name))

    def stat(self, name: str) -> StoredFile | None:
        """See Store."""
        path = self._path(name)
        with explained(path, "look up a file"):
            try:
                status = path.stat()
            except OSError as error:
                if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                    return None
                raise
            return _stored(name, path, status) if S_ISREG(status.st_mode) else None

    def open(self, name: str) -> BinaryIO:
        """See Store."""
        with explained(self._path(name), "read a file"):
            return self._path(name).open("rb")

    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """See Store."""
        require_identity(str(self._path(name)), identity, self.stat(name))
        with self.open(name) as file, explained(self._path(name), "read a file"):
            file.seek(first)
            return file.read(last - first)

    def checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """None: a file system keeps no checksums of files."""
        require_identity(str(self._path(name)), identity, self.stat(name))
        return ()

    def own_checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """See Store."""
        return self.checksums(name, identity=identity)

    def digest(self, name: str) -> str | None:
        """See Store; reads the whole file."""
        path = self._path(name)
        with explained(path, "read a file"):
            return file_digest(path) if path.is_file() else None

    def holds(self, name: str, path: Path, sha256: str) -> bool:
        """See Store; reads the whole file."""
        there = self.stat(name)
        return there is not None and there.size_bytes == path.stat().st_size and self.digest(name) == sha256

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Copy through a temporary name, flush, compare the sha256 of what the disk now holds, rename."""
        with explained(self._path(name)), self._arriving(name) as temporary:
            _copy(source, temporary)
            got = file_digest(temporary)
            if got != sha256:
                raise VerificationError(
                    "destination.copy_differs: a copied file differs from its receipt",
                    where=source,
                    expected=f"sha256 {sha256}",
                    got=f"sha256 {got}",
                    next_step="the source changed after it was written: remove its folder and run again",
                )

    def receive_bytes(self, content: bytes, name: str) -> None:
        """See Store."""
        with explained(self._path(name)), self._arriving(name) as temporary, temporary.open("wb") as writing:
            writing.write(content)
            writing.flush()
            os.fsync(writing.fileno())

    def copy(self, name: str, new_name: str) -> None:
        """See Store: a hard link, which costs no disk; a copy on file systems without hard links."""
        source = self._path(name)
        if not self._linked(source, new_name):
            self.receive(source, new_name, file_digest(source))

    def take_over(self, source: Path, name: str, sha256: str) -> None:
        """As receive, for a file that its owner deletes next: by a hard link, if the file system has them."""
        _flush(source)
        if file_digest(source) != sha256 or not self._linked(source, name):
            self.receive(source, name, sha256)

    def _linked(self, source: Path, name: str) -> bool:
        with explained(self._path(name)):
            try:
                with self._arriving(name) as temporary:
                    temporary.unlink(missing_ok=True)
                    temporary.hardlink_to(source)
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}:
                    raise
                return False
        return True

    def delete(self, name: str) -> None:
        """See Store."""
        with explained(self._path(name), "delete a file"):
            self._path(name).unlink(missing_ok=True)

    def remove_unfinished(self, *, keep: str) -> int:  # noqa: ARG002 - files in use are known by their age
        """See Store: temporary files of arrivals, not written to for a day, whatever their final name."""
        left = 0
        with explained(self._root):
            for path in sorted(self._root.rglob(f".*{PARTIAL}")):
                with suppress(FileNotFoundError):  # it arrived, or another upload removes the same
                    if ARRIVING.fullmatch(path.name) and time.time() - path.lstat().st_mtime > FORGOTTEN_SECONDS:
                        path.unlink()
                        left += 1
        return left

    def _path(self, name: str) -> Path:
        return self._root / safe_relative_name(name, where=self.folder)

    @contextmanager
    def _arriving(self, name: str) -> Iterator[Path]:
        """A temporary name that is renamed to `name` if the block succeeds, and removed otherwise.

        It is unique: another upload may deliver the same file at the same time, from another machine.
        """
        path = self._path(name)
        arrival = f"{path.name}\0{socket.gethostname()}\0{os.getpid()}\0{next(_arrivals)}"
        temporary = path.with_name(f".{hashlib.sha256(arrival.encode()).hexdigest()[:32]}{PARTIAL}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            temporary.replace(path)
        finally:
            with suppress(NotADirectoryError):
                temporary.unlink(missing_ok=True)


def _stored(name: str, path: Path, status: os.stat_result) -> StoredFile:
    # No inode: network and FUSE mounts number files differently on every machine, and a replaced file has another time
    # of change.
    identity = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"
    return StoredFile(name, str(path), status.st_size, identity)
