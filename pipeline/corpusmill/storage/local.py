"""Files in a folder of this machine: walked, received, written in one piece.

One rule on links holds for every command. Links are followed, to files as to folders. Each file and folder may be
reached in one way only: a second way would read its documents twice, so it is an error. A link to a folder that
contains it is not followed: its content is read already. A dangling link is an error: its target would be silently
missing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import BinaryIO

from corpusmill.errors import (
    PermanentError,
    SourceError,
    StoreUnavailableError,
    VerificationError,
    full_device_explained,
)
from corpusmill.fingerprint import file_digest
from corpusmill.storage.checksums import Checksum
from corpusmill.storage.locations import StoredFile, natural_order, require_identity, safe_relative_name
from corpusmill.storage.retries import Traffic

EVERYTHING = ("**", "*")


def walk_files(
    root: Path, pattern: Sequence[str] = EVERYTHING, *, hidden: bool = False, special: bool = False
) -> Iterator[str]:
    """Names, relative to `root`, of the regular files below it that match a glob, given as its parts.

    Only folders that can hold a match are read. `hidden`: also names that begin with a dot. `special`: also FIFOs,
    sockets and devices. SourceError by the rule above; OSError for a folder that cannot be read.
    """
    ways: dict[str, str] = {}

    def below(folder: str, parts: tuple[str, ...], above: tuple[str, ...]) -> Iterator[str]:
        if (real := os.path.realpath(folder)) in above:
            return
        if (other := ways.setdefault(real, folder)) != folder:
            raise reached_twice(other, folder, what="folder")
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            name = (*parts, entry.name)
            is_match, may_hold = glob_matches(name, pattern), may_match_below(name, pattern)
            if not (is_match or may_hold) or (entry.name.startswith(".") and not hidden):
                continue
            if entry.is_symlink() and not Path(entry.path).exists():
                raise SourceError(
                    "source.dangling_link: a link is dangling",
                    where=entry.path,
                    expected="an existing file or folder as its target",
                    got=Path(entry.path).readlink(),
                    next_step="restore its target, or remove the link",
                )
            if may_hold and entry.is_dir():
                yield from below(entry.path, name, (*above, real))
            elif is_match and (entry.is_file() or (special and not entry.is_dir())):
                yield "/".join(name)

    if root.is_dir():
        yield from below(str(root), (), ())


def linked_folders(root: Path, pattern: Sequence[str] = EVERYTHING) -> Iterator[tuple[str, ...]]:
    """Names, as parts relative to `root`, of the links to folders below it that can hold a match of a glob, also of
    those inside linked folders. A link comes before its folder is read, and each folder is read once.
    """
    known: set[str] = set()

    def below(start: Path, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for folder, names, _ in os.walk(start):
            if (real := os.path.realpath(folder)) in known:
                names.clear()
                continue
            known.add(real)
            parts = (*above, *Path(folder).relative_to(start).parts)
            names[:] = [name for name in names if may_match_below((*parts, name), pattern) and not name.startswith(".")]
            for link in (name for name in names if Path(folder, name).is_symlink()):
                yield (*parts, link)
                yield from below(Path(folder, link), (*parts, link))

    return below(root, ())


def reached_twice(first: str, second: str, *, what: str) -> SourceError:
    """The error for a file or folder that two paths or links lead to."""
    return SourceError(
        f"source.reached_twice: a {what} is reached in two ways, so its documents would be read twice",
        where=f"{first}\n{second}",
        expected="every file by one path, through folders or links",
        next_step="name one of the two, or remove the link",
    )


SPECIAL = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def not_regular(path: str) -> SourceError:
    """The error for a FIFO, a socket or a device where a file is wanted."""
    return SourceError(
        "source.not_a_regular_file: a source is not a regular file",
        where=path,
        expected="a file whose bytes can be read again",
        got=SPECIAL.get(stat.S_IFMT(os.stat(path).st_mode), "another kind of entry"),  # noqa: PTH116
        next_step="write its output to a file, or remove it from the sources",
    )


def glob_matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a file's name match those of a glob: `*` stays inside a part, `**` is any number of them."""
    if not pattern or not name:
        return not pattern and not name
    if pattern[0] == "**":
        return len(pattern) == 1 or any(glob_matches(name[skipped:], pattern[1:]) for skipped in range(len(name)))
    return fnmatchcase(name[0], pattern[0]) and glob_matches(name[1:], pattern[1:])


def may_match_below(folder: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a glob can match a file somewhere below a folder, given as the parts of its name."""
    if not pattern:
        return False
    if not folder or pattern[0] == "**":
        return True
    return fnmatchcase(folder[0], pattern[0]) and may_match_below(folder[1:], pattern[1:])


COPY_BYTES = 8 << 20
IN_KERNEL_BYTES = 1 << 30
IN_THE_WAY = {
    *(errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
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


def require_writable_folder(folder: Path) -> None:
    """PermanentError if no file can be written into a folder, which need not exist yet."""
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise not_writable(existing, "a file, or a dangling link")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise not_writable(existing, "a folder without write permission")


def not_writable(where: Path, got: str) -> PermanentError:
    """The error for a place to write to with something in the way."""
    return PermanentError(
        "destination.not_writable: a destination cannot be written",
        where=where,
        expected="a place that can be written, without files or folders in the way",
        got=got,
        next_step="check what is there and its permissions, or name another destination",
    )


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


@contextmanager
def arriving_at(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, which is renamed to it if the block succeeds, and removed otherwise.

    It is unique: another process may write the same file at the same time, from another machine.
    """
    arrival = f"{path.name}\0{socket.gethostname()}\0{os.getpid()}\0{next(_arrivals)}"
    temporary = path.with_name(f".{hashlib.sha256(arrival.encode()).hexdigest()[:32]}{PARTIAL}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)  # what the caller knows
        with suppress(NotADirectoryError):
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes, *, changed_ns: int | None = None, flush: bool = True) -> None:
    """Write a small file in one piece: after a crash, too, `path` has its old content or the new one.

    Safe with concurrent writers. `changed_ns`: the time of its last change, by default now. Without `flush` a power cut
    may leave an empty file: for copies, whose original is elsewhere. OSError as the file system raises it.
    """
    with arriving_at(path) as temporary:
        with temporary.open("wb") as file:
            file.write(content)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        if changed_ns is not None:
            os.utime(temporary, ns=(changed_ns, changed_ns))


class LocalStore:
    """A folder; names are paths below it."""

    def __init__(self, folder: str, *, traffic: Traffic | None = None) -> None:
        self.folder = folder
        self.traffic = traffic or Traffic()
        self._root = Path(folder)

    def iter_files(self) -> Iterator[StoredFile]:
        """Every regular file below the folder, links followed by the rule above, without files that are still arriving.

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
            return _stored(name, path, status) if stat.S_ISREG(status.st_mode) else None

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
        with explained(self._path(name)), arriving_at(self._place_for(name)) as temporary:
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
        with explained(self._path(name)):
            write_whole(self._place_for(name), content)

    def copy(self, name: str, new_name: str) -> None:
        """See Store: a hard link, which costs no disk; a copy on file systems without hard links."""
        source = self._path(name)
        if not self._linked(source, new_name):
            self.receive(source, new_name, file_digest(source))

    def take_over(self, source: Path, name: str, sha256: str) -> None:
        """As receive, for a file that its owner deletes next: by a hard link, if the file system has them."""
        with source.open("rb") as file:
            os.fsync(file.fileno())
        if file_digest(source) != sha256 or not self._linked(source, name):
            self.receive(source, name, sha256)

    def _linked(self, source: Path, name: str) -> bool:
        with explained(self._path(name)):
            try:
                with arriving_at(self._place_for(name)) as temporary:
                    temporary.unlink(missing_ok=True)
                    temporary.hardlink_to(source)
                temporary.unlink(missing_ok=True)  # renaming one of two links to a file does nothing
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

    def _place_for(self, name: str) -> Path:
        """The path of a file that arrives, its folder made."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _stored(name: str, path: Path, status: os.stat_result) -> StoredFile:
    # No inode: network and FUSE mounts number files differently on every machine, and a replaced file has another time
    # of change.
    identity = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"
    return StoredFile(name, str(path), status.st_size, identity)
