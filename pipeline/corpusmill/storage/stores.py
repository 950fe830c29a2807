"""The interface of stores: one protocol with four implementations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill.storage.checksums import Checksum
from corpusmill.storage.hub import HubStore
from corpusmill.storage.local import LocalStore
from corpusmill.storage.locations import StoredFile, asked_as, is_hub, require_no_credentials
from corpusmill.storage.retries import Traffic
from corpusmill.storage.s3 import S3Store

with lazily:
    from corpusmill.storage import gcs


class Store(Protocol):
    """A place that holds files under names with ``/`` between parts. Names are relative to the store's folder."""

    folder: str
    traffic: Traffic

    def iter_files(self) -> Iterator[StoredFile]:
        """Every file below the folder, in the store's own order; one page in memory."""

    def list_files(self) -> list[StoredFile]:
        """Every file below the folder, in natural order of name; empty if there is none."""

    def stat(self, name: str) -> StoredFile | None:
        """One file, or None if there is none of that name."""

    def read_range(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        """The bytes [first, last) of a file, all of them. SourceError if it no longer has this identity."""

    def open(self, name: str) -> BinaryIO:
        """A seekable binary stream over the file's bytes, all of one identity. SourceError if there is no file."""

    def checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """The store's checksums of the whole content, possibly none. SourceError if it no longer has this identity."""

    def own_checksums(self, name: str, *, identity: str) -> tuple[Checksum, ...]:
        """Those `checksums` that the store computed from its own bytes, without those that a writer stated."""

    def digest(self, name: str) -> str | None:
        """The sha256 of the file as the store holds it, or None if there is no such file or no digest is known."""

    def holds(self, name: str, path: Path, sha256: str) -> bool:
        """Whether `name` has this sha256 and the store's own checksum of it agrees with the local file."""

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Copy a local file to `name`, whole or not at all, and verify its sha256 there."""

    def receive_bytes(self, content: bytes, name: str) -> None:
        """Write a small file, whole or not at all."""

    def copy(self, name: str, new_name: str) -> None:
        """Duplicate a file within the store, whole or not at all, without a transfer. In folders it is a hard link."""

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens if there is none."""

    def remove_unfinished(self, *, keep: str) -> int:
        """Remove remains of killed uploads of names that do not begin with `keep`; returns how many."""


def open_store(location: str, *, endpoint_url: str | None = None, traffic: Traffic | None = None) -> Store:
    """The store of a folder, an ``s3://bucket/prefix``, a ``gs://bucket/prefix`` or ``hf://datasets/owner/name``.

    Its transfers are counted in `traffic`. ConfigError for a URL with credentials, which is not quoted.
    """
    traffic = traffic or Traffic()
    require_no_credentials(location, endpoint_url)
    if location.startswith("s3://"):
        return S3Store(location, endpoint_url=endpoint_url, traffic=traffic)
    if location.startswith("gs://"):
        return gcs.GcsStore(location, endpoint_url=endpoint_url, traffic=traffic)
    if is_hub(location):
        return HubStore(location, anonymous=asked_as(endpoint_url).anonymous, traffic=traffic)
    if "://" in location:
        raise ConfigError(
            "store.unknown_kind: there is no store for this kind of location",
            where=location,
            expected="a local path, s3://bucket/prefix, gs://bucket/prefix or hf://datasets/owner/name@revision",
            next_step="mount it, or copy it to one of these",
        )
    return LocalStore(location, traffic=traffic)


def open_location(
    location: str, *, endpoint_url: str | None = None, traffic: Traffic | None = None
) -> tuple[Store, str]:
    """The store of a file's folder, and the file's name in it."""
    require_no_credentials(location)
    folder, _, name = location.rpartition("/")
    return open_store(folder or "/", endpoint_url=endpoint_url, traffic=traffic), name


def is_local(location: str) -> bool:
    """Whether a location is a local path."""
    return "://" not in location
