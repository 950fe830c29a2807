"""Where on this machine a work folder in a bucket is mirrored.

    s3://bucket/prefix/name     <cache>/s3/bucket/prefix/name

Everything that works in a work folder works in its mirror; engine/work_folder reads from the bucket and writes to it.
The cache is CORPUSMILL_CACHE, by default `.corpusmill/cache` below the root folder. Machines may have theirs under
different paths, so what is handed from one to another is an address (`address_of`), never a path.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from corpusmill.errors import InvalidValueError

CACHE = "CORPUSMILL_CACHE"
SCHEME = "s3://"


def cache_folder() -> Path:
    """The folder below which this machine mirrors work folders."""
    root = os.environ.get("CORPUSMILL_ROOT", "")
    if not os.path.isabs(root):  # noqa: PTH117
        root = os.path.join(os.getcwd(), root)  # noqa: PTH109, PTH118
    return _resolved(root, os.path.expanduser(os.environ.get(CACHE) or ".corpusmill/cache"))  # noqa: PTH111


@lru_cache(maxsize=8)
def _resolved(root: str, cache: str) -> Path:
    # Called for every receipt of a build, and following a path's links takes as long as reading a receipt.
    return Path(root).resolve() / cache


def is_bucket(address: str) -> bool:
    """Whether a work folder's address names a bucket, not a local folder."""
    return address.startswith(SCHEME)


def mirror_of(address: str) -> Path:
    """The local folder, or file, that mirrors an address in a bucket; ValueError as for `place_of`."""
    bucket, key = place_of(address)
    return cache_folder().joinpath(*bucket.split("://"), key)


def place_of(address: str) -> tuple[str, str]:
    """(``s3://bucket``, key) of an address; ValueError for one without a key, or with parts that lead elsewhere."""
    parts = address.rstrip("/").removeprefix(SCHEME).split("/")
    if not is_bucket(address) or len(parts) < 2 or not all(parts) or {".", ".."} & {*parts} or "\0" in address:
        raise InvalidValueError(
            "config.work_folder_bucket: a work folder in a bucket is s3://bucket/prefix, without empty parts, . or .."
        )
    return f"{SCHEME}{parts[0]}", "/".join(parts[1:])


def object_of(path: Path | str) -> tuple[str, str] | None:
    """(``s3://bucket``, key) of the object that a path mirrors; None if it mirrors none."""
    # Called for every receipt of a build: comparing text is ten times as fast as comparing Paths.
    text = os.fspath(path)
    if "/s3/" not in text or not text.startswith(mirror := f"{cache_folder()}/s3/"):
        return None
    bucket, _, key = text.removeprefix(mirror).partition("/")
    return f"{SCHEME}{bucket}", key


def address_of(path: Path) -> str:
    """The name of a path on every machine: the address that it mirrors, or the path itself."""
    return "/".join(object_of(path) or (str(path),))


def path_of(address: str | Path) -> Path:
    """The path on this machine of what `address_of` returned."""
    return mirror_of(address) if isinstance(address, str) and is_bucket(address) else Path(address)
