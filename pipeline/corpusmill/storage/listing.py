"""Lists the files that a configuration's source paths match."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePosixPath

import msgspec

from corpusmill.errors import MissingSourceError, SourceError
from corpusmill.storage.conversions import conversion_of
from corpusmill.storage.local import EVERYTHING, glob_matches, not_regular, reached_twice, walk_files
from corpusmill.storage.locations import (
    StoredFile,
    file_keys,
    natural_order,
    require_no_credentials,
    safe_relative_name,
)
from corpusmill.storage.stores import open_location, open_store

GLOB = re.compile(r"[*?\[]")
WILDCARDS = re.compile(r"[*?]+|\[.[^\]]*\]")
NO_ENDING = re.compile(r"[^_.][^.]*|[^_].*\.[^.A-Za-z]*|[^_].*\.[A-Za-z]+[-_][0-9]+")
"""Names without an ending that would say what the file is, such as wiki_00, dump.2011-01 and data.part-00000."""
CACHES = re.compile(r"cache-[0-9a-f]+(_[0-9]+_of_[0-9]+)?\.arrow")
"""What `datasets` leaves beside a saved dataset's own files."""
OTHERS_NAMED = 3
LONGEST_PART_BYTES = 236  # file systems have 255, of which a part's number and the name of an arriving file take 19


Accepted = tuple[list[StoredFile], list[StoredFile]]
"""(source files, those of other kinds) of one path."""


class OtherFiles(msgspec.Struct, frozen=True):
    """Files that a folder or a pattern has, but whose endings are not those of sources: their number, and the first
    names.

    Names that begin with `.` or `_`, and files in folders with such names, do not count: `_SUCCESS` etc.
    """

    count: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.names) else ""
        files = "1 file" if self.count == 1 else f"{self.count:,} files"
        return f"{files} of other kinds skipped: {', '.join(self.names)}{more}"


def other_files(names: Iterable[str]) -> OtherFiles | None:
    """The files of these names, those that do not count left out; None if none is left."""
    others = sorted((name for name in names if not _is_hidden(name)), key=natural_order)
    first = tuple(name if name.isprintable() else ascii(name) for name in others[:OTHERS_NAMED])
    return OtherFiles(len(others), first) if others else None


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


@dataclass(frozen=True)
class Listing:
    """The source files of some paths, and those of other kinds that the paths match.

    `path_of`: location of each source file -> number of its path.
    """

    files: list[StoredFile]
    others: OtherFiles | None
    path_of: dict[str, int]


def list_sources(
    paths: list[str], endings: tuple[str, ...], endpoint_url: str | None = None, *, named: tuple[str, ...] = ()
) -> list[StoredFile]:
    """The files of `list_all`."""
    return list_all(paths, endings, endpoint_url, named=named).files


def list_all(
    paths: list[str], endings: tuple[str, ...], endpoint_url: str | None = None, *, named: tuple[str, ...] = ()
) -> Listing:
    """All source files of a configuration, in the order of their documents, and the files passed over.

    A path is a folder (searched recursively for names with one of `endings`), a single file or a glob, here, in a
    bucket or on the Hub. In a glob `*` stays inside a part of the name, and `**` is any number of parts, at its end all
    files below; a file or an object of exactly that name comes first, and `[[]` means the bracket. The case of an
    ending does not count. An ending of `named` counts only if the path itself ends with it, as in `data/*.json.gz`: a
    .json file in a folder may be anything. If there is a `named`, a path also names files without an ending
    (`dump/wiki_*`) and with any other ending that it ends with (`data/*.data`): their bytes show what they are. Beside
    files with a known ending those are passed over, as a.jsonl.1 is by `data/*.jsonl*`.
    Links are followed as local.py says. Order: natural order of the name relative to the path's folder, whatever the
    order of the paths. Names are unique and can share one folder, because writeback delivers each file under its name.
    SourceError for other names, for a file that two paths or links lead to, and if a path matches nothing.
    """
    require_no_credentials(*paths, endpoint_url)
    listed = [_list_one(path, endings, named, endpoint_url) for path in paths]
    files = [file for accepted, _ in listed for file in accepted]
    _require_read_once(files)
    _require_deliverable(files)
    other_names = {file.location: file.name for _, others in listed for file in others}
    for file in files:  # a file that one path passes over may be a source of another
        other_names.pop(file.location, None)
    return Listing(
        sorted(files, key=lambda file: natural_order(file.name)),
        other_files(other_names.values()),
        {file.location: number for number, (accepted, _) in enumerate(listed) for file in accepted},
    )


def _require_read_once(files: list[StoredFile]) -> None:
    """SourceError if two files are the same."""
    first: dict[str, str] = {}
    for file, real in zip(files, file_keys(file.location for file in files), strict=True):
        if real in first:
            raise reached_twice(first[real], file.location, what="source file")
        first[real] = file.location


def _require_deliverable(files: list[StoredFile]) -> None:
    """SourceError unless the names can be those of files in one folder, in which each is delivered under its name."""
    times = Counter(file.name for file in files)
    for file in files:
        parts = file.name.split("/")
        folders = [name for name in accumulate(parts[:-1], "{}/{}".format) if name in times]
        if times[file.name] > 1:
            raise SourceError(
                "source.name_twice: two source files have the same name below their folders",
                where="\n".join(listed.location for listed in files if listed.name == file.name),
                expected="one file per name, because each is delivered under its name",
                got=file.name,
                next_step="list their common parent folder as the source, or drop one of them",
            )
        if folders:
            raise SourceError(
                "source.name_of_folder: a source has the same name as a folder with another source in it",
                where=file.location,
                expected="names that can share one folder, because each file is delivered under its name",
                got=folders[0],
                next_step="list the two as separate sources, or rename one of them",
            )
        if "\n" in file.name or max(len(part.encode(errors="surrogateescape")) for part in parts) > LONGEST_PART_BYTES:
            raise _no_file_name(file)
        try:
            file.name.encode()
        except UnicodeEncodeError as error:
            raise _no_file_name(file) from error


def _no_file_name(file: StoredFile) -> SourceError:
    return SourceError(
        "source.name_not_deliverable: a source's name cannot be that of a delivered file",
        where=file.location.encode(errors="backslashreplace").decode(),
        expected=f"UTF-8, no line break, at most {LONGEST_PART_BYTES} bytes between two /",
        got=ascii(file.name),
        next_step="rename it",
    )


def _list_one(path: str, endings: tuple[str, ...], named: tuple[str, ...], endpoint_url: str | None) -> Accepted:
    files: Iterable[StoredFile]
    is_folder = False
    if "://" in path:
        files, is_folder = _remote_files(path, endpoint_url)
    elif is_glob(path):
        files = _local_files(*split_glob(path))
    elif Path(path).is_dir():
        files, is_folder = _local_files(PurePosixPath(path), EVERYTHING), True
    elif Path(path).is_file():
        parent, name = Path(path).parent, Path(path).name
        files = [file for file in [open_store(str(parent)).stat(name)] if file]
    elif Path(path).exists():
        raise not_regular(path)
    else:
        raise MissingSourceError(
            "source.missing: a source does not exist",
            where=path,
            expected="a folder, a file, a glob, s3://bucket/prefix, gs://bucket/prefix or hf://datasets/owner/name",
            next_step=f"{_nearest(path)}check the path; a relative one starts at the current folder, or in a"
            " configuration at CORPUSMILL_ROOT if it is set",
        )
    return _accepted(path, files, endings, named if not is_folder else ())


def _nearest(path: str) -> str:
    """`did you mean data/news.jsonl? `, if the folder of a path has such a name."""
    folder, name = Path(path).parent, Path(path).name
    names = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {folder / near[0]}? Else " if near else ""


def _remote_files(location: str, endpoint_url: str | None) -> tuple[Iterable[StoredFile], bool]:
    """(files of a location, whether it is a folder): the object of exactly that key, those that match a glob, or all
    below a prefix. Names are relative to the part of a glob that is fixed, below which all are listed.
    """
    scheme, _, rest = location.partition("://")
    parts = rest.rstrip("/").split("/")
    safe_relative_name("/".join(parts), where=location)  # refuses empty parts, . and ..
    root = 3 if scheme == "hf" else 1  # how many parts name the bucket or the hub's repository
    fixed = next((position for position, part in enumerate(parts) if GLOB.search(part)), None)
    if fixed is not None and fixed < root:
        raise SourceError(
            "source.wildcard_in_bucket: the name of a bucket or of a hub's dataset cannot hold wildcards",
            where=location,
            expected="hf://datasets/owner/name/*.jsonl" if scheme == "hf" else f"{scheme}://bucket/prefix/*.jsonl",
            next_step="list one source for each of them",
        )
    if not location.endswith("/") and len(parts) > root:
        store, name = open_location(location, endpoint_url=endpoint_url)
        if listed := store.stat(name):
            return [listed], False
    if fixed is None:
        return open_store(location, endpoint_url=endpoint_url).iter_files(), True
    folder = open_store(f"{scheme}://{'/'.join(parts[:fixed])}", endpoint_url=endpoint_url)
    return (file for file in folder.iter_files() if glob_matches(file.name.split("/"), parts[fixed:])), False


def is_glob(path: str) -> bool:
    """Whether a path has wildcards; an existing local path is taken literally, even if its name has wildcards."""
    return bool(GLOB.search(path)) and ("://" in path or not Path(path).exists())


def split_glob(path: str) -> tuple[PurePosixPath, tuple[str, ...]]:
    """(path before the first part with a wildcard, that part and the rest)."""
    parts = PurePosixPath(path).parts
    fixed = next(position for position, part in enumerate(parts) if GLOB.search(part))
    return PurePosixPath(*parts[:fixed]), parts[fixed:]


def _local_files(folder: PurePosixPath, pattern: Sequence[str]) -> Iterator[StoredFile]:
    """Files below a folder that match a glob; a file that disappears during the listing is left out.

    FIFOs and other special files have no identity.
    """
    store = open_store(str(folder))
    for name in walk_files(Path(folder), pattern, special=True):
        if file := store.stat(name):
            yield file
        elif (path := Path(folder, name)).exists():
            yield StoredFile(name, str(path), 0, "")


def _names_files(path: str) -> bool:
    """Whether the last part of a path has more than wildcards: `wiki_*` names files, `*` and `**` do not."""
    return bool(WILDCARDS.sub("", path.rstrip("/").rpartition("/")[2]))


def _states_its_kind(name: str, path: str, endings: tuple[str, ...], named: tuple[str, ...]) -> bool:
    """Whether a file has an ending that a path asks for; see `list_all`."""
    base, last = (whole.lower().rpartition("/")[2] for whole in (name, path))
    stated = any(base.endswith(ending) and last.endswith(ending) for ending in named) and _names_files(path)
    return not CACHES.fullmatch(base) and (base.endswith(endings) or stated)


def _may_be_source(name: str, path: str, named: tuple[str, ...]) -> bool:
    """Whether a path asks for a file whose bytes alone can show what it is; see `list_all`."""
    base, last = (whole.lower().rpartition("/")[2] for whole in (name, path))
    if not named or not _names_files(path) or base.endswith(named) or CACHES.fullmatch(base):
        return False
    return NO_ENDING.fullmatch(base) is not None or last.endswith(f".{base.rpartition('.')[2]}")


def _accepted(path: str, files: Iterable[StoredFile], endings: tuple[str, ...], named: tuple[str, ...]) -> Accepted:
    """SourceError if no file has a known ending, or one with a known ending is a special file, or has a name that would
    leave its folder.

    Names of other objects are not checked: a bucket may hold names that no file system can.
    """
    accepted, unstated, others = [], [], []
    for file in files:
        parts = file.name.split("/")
        leaves = not {".", ".."}.isdisjoint(parts)
        visible = leaves or not any(part.startswith(".") for part in parts)
        if visible and _states_its_kind(file.name, path, endings, named):
            accepted.append(file)
        elif visible and _may_be_source(file.name, path, named):
            unstated.append(file)
        elif not _is_hidden(file.name):
            others.append(file)
    if accepted:
        others += [file for file in unstated if not _is_hidden(file.name)]
    else:
        accepted = unstated
    for file in accepted:
        safe_relative_name(file.name, where=file.location)
        if not file.identity:
            raise not_regular(file.location)
    if not accepted:
        such = f"{len(others):,} other files, such as {', '.join(file.name for file in others[:OTHERS_NAMED])}"
        convertible = next((found for file in others if (found := conversion_of(file.name))), None)
        raise MissingSourceError(
            "source.no_known_files: a source has no file of a known kind",
            where=path,
            expected=f"names that end in {' '.join(endings)} and do not begin with a dot",
            got=such if others else "no files at all",
            next_step=convertible[1]
            if convertible
            else "check the path, rename the files, or give their ending in a pattern, such as data/*.json.gz",
        )
    return accepted, others
