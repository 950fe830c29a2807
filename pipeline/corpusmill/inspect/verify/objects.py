"""Computes the sha256 of an object from its bytes, not from its metadata."""

from __future__ import annotations

import hashlib
from pathlib import Path

from corpusmill.storage import Checksum, Store, StoredFile, Wanted, matches_file


def object_sha256(store: Store, file: StoredFile, sha256: str, same: Path | None) -> str:
    """64 hex digits: `sha256` if the local file `same` has it and all checksums that the store itself computed of the
    object; else the sha256 of the object's bytes, which then are read.
    """
    computed = store.own_checksums(file.name, identity=file.identity)
    comparable = computed and same is not None and same.is_file() and same.stat().st_size == file.size_bytes
    if comparable and same and matches_file(same, (Checksum("sha256", sha256), *computed)):
        return sha256
    digest = hashlib.sha256()
    for first, last in Wanted(file.name, file.size_bytes, file.identity).ranges():
        digest.update(store.read_range(file.name, first, last, identity=file.identity))
    return digest.hexdigest()
