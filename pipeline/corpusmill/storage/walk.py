"""Files below a folder of this machine, and globs: one rule on links for every command.

Links are followed, to files as to folders. Each file and folder may be reached in one way only: a second way would read
its documents twice, so it is an error. A link to a folder that contains it is not followed: its content
is read already. A dangling link is an error: its target would be silently missing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from corpusmill.errors import SourceError

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
        next_step="write what it gives into a file, or remove it from the sources",
    )


def glob_matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a file's name match those of a glob: `*` stays inside a part, `**` is any number of them."""
    if not pattern or not name:
        return not pattern and not name
    if pattern[0] == "**":
        return any(glob_matches(name[skipped:], pattern[1:]) for skipped in range(len(name)))
    return fnmatchcase(name[0], pattern[0]) and glob_matches(name[1:], pattern[1:])


def may_match_below(folder: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a glob can match a file somewhere below a folder, given as the parts of its name."""
    if not pattern:
        return False
    if not folder or pattern[0] == "**":
        return True
    return fnmatchcase(folder[0], pattern[0]) and may_match_below(folder[1:], pattern[1:])
