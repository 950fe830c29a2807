"""Outputs of steps in a bucket: sent by the writer, read block by block by any reader."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import xxhash

from corpusmill.engine.work_folder.objects import objects_of
from corpusmill.errors import PermanentError
from corpusmill.fingerprint import Algorithm
from corpusmill.storage.mirrored import object_of

OUTPUTS = "outputs"
PIECE_BYTES = 64 << 20
FILES_AT_ONCE = 2  # those above 8 MiB are sent in four parts at once: 64 MiB of memory at most


def new_attempt() -> str:
    """A random name under which no other attempt writes; no byte of an output depends on it."""
    return secrets.token_hex(8)


def send(written: Path, step_folder: Path, attempt: str, names: Iterable[str]) -> None:
    """Upload the outputs with these names below the folder `written`."""
    bucket, folder = attempt_key(step_folder, attempt)
    objects = objects_of(bucket)
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        list(pool.map(lambda name: objects.send(written / name, f"{folder}/{name}"), names))


def read(step_folder: Path, attempt: str, name: str, first: int, last: int) -> bytes:
    """The bytes [first, last) of an output; GoneError if the attempt's outputs were removed."""
    bucket, folder = attempt_key(step_folder, attempt)
    return objects_of(bucket).read(f"{folder}/{name}", first, last)


def sent(step_folder: Path, attempt: str) -> dict[str, int]:
    """The outputs of an attempt in the bucket: sizes in bytes by name."""
    bucket, folder = attempt_key(step_folder, attempt)
    return {
        stored.key.removeprefix(f"{folder}/"): stored.size_bytes for stored in objects_of(bucket).list(f"{folder}/")
    }


def sent_digest(step_folder: Path, attempt: str, name: str, size_bytes: int, algorithm: Algorithm) -> str:
    """The digest of an output in the bucket, in hex digits; reads it piece by piece."""
    digest = hashlib.sha256() if algorithm == "sha256" else xxhash.xxh3_128()
    for first in range(0, size_bytes, PIECE_BYTES):
        digest.update(read(step_folder, attempt, name, first, min(first + PIECE_BYTES, size_bytes)))
    return digest.hexdigest()


def remove(step_folder: Path, attempt: str, names: Iterable[str] | None = None) -> None:
    """Remove outputs of an attempt, by default all."""
    bucket, folder = attempt_key(step_folder, attempt)
    for name in sent(step_folder, attempt) if names is None else names:
        objects_of(bucket).delete(f"{folder}/{name}")


def abandoned(work: Path, named: Container[str], older_than_seconds: float) -> list[tuple[Path, int]]:
    """(path of its mirror, bytes) of each attempt that no receipt names, and that has not changed for this long.

    Interrupted uploads are included, without their bytes.

    named   attempts that receipts name
    """
    bucket, key = object_of(work) or ("", "")
    objects = objects_of(bucket)
    now, prefix = objects.clock(), f"{key}/{OUTPUTS}/"
    written = [(stored.key, stored.size_bytes, stored.changed_at) for stored in objects.list(prefix)]
    written += [(upload.key, 0, upload.begun_at) for upload in objects.unfinished(prefix)]
    unnamed: dict[str, list[tuple[int, float]]] = {}
    for name, size_bytes, at in written:
        fingerprint, attempt, *_ = name.removeprefix(prefix).split("/")
        if attempt not in named:
            unnamed.setdefault(f"{OUTPUTS}/{fingerprint}/{attempt}", []).append((size_bytes, at))
    return [
        (work / place, sum(size_bytes for size_bytes, _ in objects_below))
        for place, objects_below in sorted(unnamed.items())
        if max(at for _, at in objects_below) < now - older_than_seconds
    ]


def remove_abandoned(attempt: Path) -> None:
    """Remove an attempt that `abandoned` returned."""
    bucket, key = object_of(attempt) or ("", "")
    objects = objects_of(bucket)
    for upload in objects.unfinished(f"{key}/"):
        objects.abort(upload)
    for stored in list(objects.list(f"{key}/")):
        objects.delete(stored.key)


def attempt_key(step_folder: Path, attempt: str) -> tuple[str, str]:
    """(bucket, key of the folder of an attempt's outputs). Keys begin with a fingerprint below the dataset, so that a
    store's partitions share the load.
    """
    bucket, key = object_of(step_folder) or ("", "")
    dataset, _, name = key.rsplit("/", 2)
    if not attempt:
        raise PermanentError("work_folder.no_attempt: a receipt in a bucket names no attempt", where=step_folder)
    return bucket, f"{dataset}/{OUTPUTS}/{name.rpartition('-')[2]}/{attempt}"
