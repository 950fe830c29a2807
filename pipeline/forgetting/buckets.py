"""What stands in buckets: every object is fetched, searched, and removed from this machine again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from corpusmill.forgetting.remains import Search
from corpusmill.storage import Wanted, fetch, open_store

SCRATCH = ".purge"  # in the dataset's work folder: what a killed purge leaves there, the next one removes


@dataclass(frozen=True)
class SearchedObject:
    """An object, by its name below the folder that was searched, and whether text of a forgotten document is in it."""

    name: str
    size_bytes: int
    holds: bool


def search_bucket(
    folder: str, endpoint_url: str | None, search: Search, scratch: Path, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[SearchedObject]:
    """All objects below a folder in a bucket whose names are `wanted`, in order of name. Disk: the largest object.

    Raises as the store does, SourceError for an object that changes meanwhile, and as the reader of its format does for
    one that is damaged.
    """
    store = open_store(folder, endpoint_url=endpoint_url)
    try:
        for file in sorted(store.list_files(), key=lambda file: file.name):
            if wanted(file.name):
                path = scratch / "object"
                fetch(store, Wanted(file.name, file.size_bytes, file.identity), path, scratch / "partial")
                yield SearchedObject(file.name, file.size_bytes, any(True for _ in search.in_files([path])))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def kept_by_bucket(folder: str, endpoint_url: str | None) -> str:
    """Why a bucket may still have what was deleted in it; "" if it has not."""
    from corpusmill.storage.s3 import S3Store

    store = open_store(folder, endpoint_url=endpoint_url)
    if not isinstance(store, S3Store):
        return "whether the bucket keeps deleted objects is not known: look for object versions and soft delete"
    return "the bucket keeps versions of objects, deleted ones, too" if store.keeps_versions() else ""
