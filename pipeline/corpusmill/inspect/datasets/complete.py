"""Files of finished datasets, checked against `dataset.json` before they are merged, shuffled, mixed or shown.

A folder stands for all of its files: without this check a file that was lost, or did not arrive whole, is missing from
the result and nobody notices. Indexes are digested, too: the index of the same documents in another order adds up to
the same tokens, so no other check can tell them apart. Files outside of finished datasets are not checked here.

Price: a sha256 of the indexes, 13 ns a document for Megatron and 5 for Nanoset.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from corpusmill.errors import ConfigError, VerificationError
from corpusmill.upload.stages.description import DATASET, described

BESIDE = ("", ".bin", ".idx", ".npy", ".index", ".metadata", ".loss", ".csv.gz")
"""Endings of the files that a Megatron prefix, or a `.ds` file, stands for."""
INDEXES = (".idx", ".ds.index", ".csv.gz")


def require_complete(inputs: Iterable[Path], endings: tuple[str, ...] = ("",)) -> None:
    """VerificationError if an input lies in a finished dataset and a file of it is missing or has another size, or an
    index other bytes.

    An input is a folder, of which the files below it with one of `endings` count, a file, or a Megatron prefix.
    """
    for folder, description, name, _ in _in_datasets(inputs):
        named = {name + ending for ending in BESIDE}
        for file in description["files"]:
            below = name == "." or file["name"].startswith(f"{name}/")
            if file["name"] in named or (below and file["name"].endswith(endings)):
                require_file(folder, file)


def require_one_vocabulary(paths: Iterable[Path]) -> None:
    """ConfigError if files lie in finished datasets whose vocabularies differ.

    Vocabularies of one size have one token width, and neither Megatron's index nor a tar names its tokenizer.
    """
    _require_one(
        "merge.vocabularies_differ: parts have different vocabularies",
        paths,
        _vocabulary,
        "take only parts of one vocabulary",
    )


def require_one_version(paths: Iterable[Path]) -> None:
    """ConfigError if files lie in two versions of one finished dataset, or in two copies of a version: documents of
    both would appear twice.
    """
    first: dict[str, tuple[Path, Path]] = {}
    for folder, description, _, path in _in_datasets(paths):
        place, named = first.setdefault(description["name"], (folder.resolve(), path))
        if folder.resolve() != place:
            raise ConfigError(
                "merge.versions_differ: parts are of two versions, or copies, of one dataset: documents would appear"
                " twice",
                where=path,
                expected=f"a part of {place}, as {named}",
                got=folder,
                next_step="take parts of one version; if the versions share no document, copy the parts elsewhere",
            )


def require_one_length(tars: Iterable[Path]) -> None:
    """ConfigError if tars lie in finished datasets whose contexts have different numbers of tokens."""
    what = "reshuffle.lengths_differ: tars hold contexts of different lengths"
    _require_one(what, tars, _context, "shuffle each length separately: a loader needs one")


def _require_one(what: str, paths: Iterable[Path], stated: Callable[[dict[str, Any]], str], next_step: str) -> None:
    first: tuple[Path, str] | None = None
    for _, description, _, path in _in_datasets(paths):
        words = stated(description)
        first = first or (path, words)
        if words != first[1]:
            raise ConfigError(what, where=path, expected=f"{first[1]}, as {first[0]}", got=words, next_step=next_step)


def _vocabulary(description: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in description["vocabulary"].items())


def _context(description: dict[str, Any]) -> str:
    totals = description["formats"].get("webdataset", {})
    records, slots = totals.get("records", 0), totals.get("slots", 0)
    return f"{slots // records:,} tokens" if records else "no contexts"


def _in_datasets(paths: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any], str, Path]]:
    """(folder, description, name in it, path) of each path that is, or lies in, a finished dataset; each is read once.

    CorruptDataError for a damaged description.
    """
    read: dict[Path, dict[str, Any]] = {}
    for path in paths:
        # As it is named first: its files, or `latest`, may be links to elsewhere.
        for place in (Path(os.path.abspath(path)), path.resolve()):  # noqa: PTH100 (keeps links)
            folder = next((folder for folder in (place, *place.parents) if (folder / DATASET).is_file()), None)
            if folder is not None:
                if folder not in read and _is_ours(folder / DATASET):
                    read[folder] = described((folder / DATASET).read_bytes(), str(folder))
                if folder in read:
                    yield folder, read[folder], place.relative_to(folder).as_posix(), path
                break


def _is_ours(path: Path) -> bool:
    """Whether a dataset.json is that of a dataset, perhaps damaged; another program's is JSON of another form."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return True
    return isinstance(content, dict) and {"vocabulary", "formats", "files"} <= content.keys()


def require_file(folder: Path, file: dict[str, Any]) -> None:
    """VerificationError unless a file of a dataset's description has its size, and an index its sha256."""
    path, size_bytes = folder / file["name"], file["size_bytes"]
    got_bytes = path.stat().st_size if path.is_file() else None
    if got_bytes != size_bytes:
        what = "is missing" if got_bytes is None else "has another size"
        raise _differs(path, what, f"{size_bytes:,} bytes", "no file" if got_bytes is None else f"{got_bytes:,} bytes")
    if path.name.endswith(INDEXES):
        with path.open("rb") as opened:
            got = hashlib.file_digest(opened, "sha256").hexdigest()
        if got != file["sha256"]:
            raise _differs(path, "has other bytes", f"sha256 {file['sha256']}", f"sha256 {got}")


def _differs(path: Path, what: str, expected: str, got: str) -> VerificationError:
    return VerificationError(
        f"dataset.file_damaged: a file of a finished dataset {what}",
        where=path,
        expected=f"{expected}, as {DATASET} states",
        got=got,
        next_step="fetch it again, repair the dataset from another copy (corpusmill repair), or build it again",
    )
