"""Which files a configuration's source paths mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from pipeline.errors import SourceError
from pipeline.storage.locations import StoredFile, safe_relative_name

GLOB = re.compile(r"[*?\[]")


def natural_order(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Sort key: digits compare as numbers (part2 before part10), ties by the plain name; the same in every locale."""
    pieces = re.split(r"([0-9]+)", name)
    return tuple((1, int(piece), "") if piece[0] in "0123456789" else (0, 0, piece) for piece in pieces if piece), name


def list_sources(paths: list[str], endings: tuple[str, ...], endpoint_url: str | None = None) -> list[StoredFile]:
    """All source files of a configuration, in the order in which their documents count.

    A path is a folder (searched recursively for names with one of `endings`), a single file, a glob, or a location in a
    bucket or on a hub.
    Order: natural order of the name relative to the path's folder, whatever the order of the paths. Every name is
    unique, because writeback delivers each file under its name. SourceError when a path matches nothing.
    """
    found = [file for path in paths for file in _list_one(path, endings, endpoint_url)]
    for name, times in Counter(file.name for file in found).items():
        if times > 1:
            places = [file.location for file in found if file.name == name]
            raise SourceError(
                "two source files have the same name below their folders",
                where="\n".join(places),
                expected="one file per name, because each is delivered under its name",
                got=name,
                next_step="list their common parent folder as the source, or drop one of them",
            )
    return sorted(found, key=lambda file: natural_order(file.name))


def _list_one(path: str, endings: tuple[str, ...], endpoint_url: str | None) -> list[StoredFile]:
    from pipeline.storage.stores import open_store

    files: Iterable[StoredFile]
    if "://" in path:
        if GLOB.search(path):
            raise SourceError(
                "a source in a bucket or on a hub cannot hold wildcards",
                where=path,
                expected="s3://bucket/prefix, gs://bucket/prefix, hf://datasets/owner/name, or one object",
                next_step="name the prefix; files of other kinds below it are passed over",
            )
        files = _list_remote(path, endpoint_url)
    elif GLOB.search(path):
        return _matches(path, endings)
    elif Path(path).is_dir():
        files = open_store(path).list_files()
    elif Path(path).is_file():
        parent, name = Path(path).parent, Path(path).name
        files = [file for file in [open_store(str(parent)).stat(name)] if file]
    else:
        raise SourceError(
            "a source does not exist",
            where=path,
            expected="a folder, a file, a glob, s3://bucket/prefix, gs://bucket/prefix or hf://datasets/owner/name",
            next_step="check source.paths; relative paths start at CORPUSMILL_ROOT or the current folder",
        )
    return _accepted(path, files, endings)


def _list_remote(path: str, endpoint_url: str | None) -> Iterator[StoredFile]:
    """The one object of exactly that key, or else what lies below the prefix."""
    from pipeline.storage.stores import open_location, open_store

    scheme, _, rest = path.partition("://")
    parts = rest.rstrip("/").split("/")
    safe_relative_name("/".join(parts), where=path)  # no empty part, no . and no .. in a location either
    if not path.endswith("/") and len(parts) > (3 if scheme == "hf" else 1):
        store, name = open_location(path, endpoint_url=endpoint_url)
        if one := store.stat(name):
            yield one
            return
    for file in open_store(path, endpoint_url=endpoint_url).iter_files():
        safe_relative_name(file.name, where=file.location)
        yield file


def _matches(pattern: str, endings: tuple[str, ...]) -> list[StoredFile]:
    """Files that match a glob; names are relative to the part of the pattern before its first wildcard."""
    from pipeline.storage.stores import open_store

    parts = PurePosixPath(pattern).parts
    fixed = next(position for position, part in enumerate(parts) if GLOB.search(part))
    folder, rest = Path(*parts[:fixed]), str(PurePosixPath(*parts[fixed:]))
    store = open_store(str(folder))
    names = [path.relative_to(folder).as_posix() for path in folder.glob(rest) if path.is_file()]
    files = [file for name in names if (file := store.stat(name))]
    return _accepted(pattern, files, endings)


def _accepted(path: str, files: Iterable[StoredFile], endings: tuple[str, ...]) -> list[StoredFile]:
    """Those with a known ending; of the others only a few names are remembered."""
    accepted, others, passed = [], [], 0
    for file in files:
        if file.name.endswith(endings) and not any(part.startswith(".") for part in file.name.split("/")):
            accepted.append(file)
        else:
            passed += 1
            others += [file.name] if passed <= 3 else []
    if not accepted:
        raise SourceError(
            "a source holds no file of a known kind",
            where=path,
            expected=f"names that end in {' '.join(endings)}",
            got=f"{passed} other files, such as {', '.join(others)}" if passed else "no files at all",
            next_step="check source.paths, or rename the files",
        )
    return accepted
