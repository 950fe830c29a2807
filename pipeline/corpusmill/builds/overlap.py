"""A build's sources and outputs must be separate, or the next build would read this one's output as text.

Places are compared after links and `..` are resolved; a glob overlaps a place if it could match a file below it. A link
inside a source must not lead to a folder that holds a place, which may still be empty; other links are checked when the
source's files are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from corpusmill.config import DatasetConfig, absolute
from corpusmill.errors import ConfigError
from corpusmill.storage import StoredFile, is_local
from corpusmill.storage.listing import is_glob, split_glob
from corpusmill.storage.local import EVERYTHING, glob_matches, linked_folders, may_match_below
from corpusmill.storage.locations import resolved_locations

Places = list[tuple[str, str]]
"""(configuration key or command option, folder or prefix that is written to)."""


def written_places(config: DatasetConfig) -> Places:
    """Where a build writes: the dataset's own folder below the work folder and below each destination."""
    places = [
        ("work_folder", config.work_folder),
        *(("destinations", destination.path) for destination in config.destinations),
    ]
    return [(key, f"{absolute(path).rstrip('/')}/{config.name}") for key, path in places]


def require_no_overlap(sources: list[str], places: Places, *, files: bool = False) -> None:
    """ConfigError if a source (absolute) could hold a file below one of the places, or lies below it.

    `files`: the places are files, and a source must not name one of them.
    """
    split = [split_glob(source) if is_glob(source) else (PurePosixPath(source), EVERYTHING) for source in sources]
    resolved = [(key, place, _resolved(PurePosixPath(place))) for key, place in places]
    for key, place, written in resolved:
        for source, (folder, pattern) in zip(sources, split, strict=True):
            read = _resolved(folder)
            if read[: len(written)] == written and read != written:
                raise _overlap(
                    f"source.inside_output: a source is inside {key}, so it would read what the build writes",
                    key,
                    place,
                    source,
                )
            below = written[len(read) :]
            named = files and glob_matches(below, pattern)
            if written[: len(read)] == read and (named or may_match_below(below, pattern)):
                what = (
                    f"source.contains_output: {key} is inside a source, so the next build would read what this one"
                    " wrote"
                )
                raise _overlap(what, key, place, source)
    for folder, pattern in split:
        for name, target in _links_below(folder, pattern):
            for key, place, written in resolved:
                below = written[len(target) :]
                if written[: len(target)] == target and may_match_below((*name, *below), pattern):
                    what = (
                        f"source.links_to_output: a link inside a source leads to {key}, so the next build would read"
                        " what this one wrote"
                    )
                    raise _overlap(what, key, place, "/".join((str(folder), *name)))


def require_none_written(files: Iterable[StoredFile], places: Places) -> None:
    """ConfigError if a listed file lies below one of the places: a link led to it."""
    files = list(files)
    written = {os.path.realpath(place): key for key, place in places if is_local(place)}
    for file, real in zip(files, resolved_locations(file.location for file in files), strict=True):
        for place, key in written.items():
            if real.startswith(f"{place}/"):
                what = "source.file_in_output: a source file is inside what the build writes: a link leads to it"
                raise _overlap(what, key, place, file.location)


def _links_below(folder: PurePosixPath, pattern: Sequence[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(name, resolved target) of the links to folders below a source of this machine."""
    if not folder.parts[0].endswith(":"):
        for name in linked_folders(Path(folder), pattern):
            yield name, _resolved(folder.joinpath(*name))


def _resolved(location: PurePosixPath) -> tuple[str, ...]:
    """The parts of a location without links and `..`; those of a remote one are unchanged."""
    if location.parts[0].endswith(":"):
        return location.parts
    return PurePosixPath(os.path.realpath(location)).parts


def _overlap(what: str, key: str, place: str, source: str) -> ConfigError:
    return ConfigError(
        what,
        where=place,
        expected="a folder outside every source",
        got=f"source {source}",
        next_step=f"move {key} elsewhere, or list the source's subfolders",
    )
