"""Searches stores: every object is streamed once and searched meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import cast

from corpusmill.builds.forgetting.remains import ForgottenPlace, Search
from corpusmill.storage import Store, StoredFile, Wanted, open_once, open_store
from corpusmill.storage.s3 import S3Store

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class SearchedObject:
    """An object, named below the searched folder, and the forgotten documents whose text it contains."""

    name: str
    size_bytes: int
    places: list[ForgottenPlace]


def search_store(
    folder: str, endpoint_url: str | None, search: Search, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[SearchedObject]:
    """Search all objects below a folder in a bucket or on the Hub whose names are `wanted`, in order of name.

    Each is checked against the store's own checksum, or read twice where there is none. Raises as the store does,
    SourceError for an object that changes meanwhile, and UnsearchableError for a damaged one.
    """
    store = open_store(folder, endpoint_url=endpoint_url)
    for file in sorted(store.list_files(), key=lambda file: file.name):
        if wanted(file.name):
            yield SearchedObject(file.name, file.size_bytes, search_object(store, file, search))


def search_object(store: Store, file: StoredFile, search: Search) -> list[ForgottenPlace]:
    """The forgotten documents whose text one object contains. Raises as search_store does."""
    with open_once(store, Wanted(file.name, file.size_bytes, file.identity)) as stream:
        places = search.in_stream(cast(BufferedReader, stream), where=f"{store.folder}/{file.name}")
        while stream.read(READ_BYTES):  # bytes behind an archive's end are part of the checksum
            pass
    return places


def kept_by_bucket(folder: str, endpoint_url: str | None) -> str:
    """Why a bucket may still have objects that were deleted; "" if it has not."""
    store = open_store(folder, endpoint_url=endpoint_url)
    if not isinstance(store, S3Store):
        return "whether the bucket keeps deleted objects is not known: look for object versions and soft delete"
    return "the bucket keeps versions of objects, deleted ones, too" if store.keeps_versions() else ""
