"""The seam: one protocol, two stores."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from pipeline.errors import ConfigError
from pipeline.storage.locations import StoredFile


class Store(Protocol):
    """A place that holds files under names with ``/`` between parts. Names are relative to the store's folder."""

    folder: str

    def list_files(self) -> list[StoredFile]:
        """Every file below the folder, in natural order of name; empty if there is none."""

    def stat(self, name: str) -> StoredFile | None:
        """One file, or None if there is none of that name."""

    def open(self, name: str) -> BinaryIO:
        """A binary stream over the file's bytes."""

    def digest(self, name: str) -> str | None:
        """The sha256 of the file as the store holds it, or None if there is no such file or no digest is known."""

    def receive(self, source: Path, name: str, sha256: str) -> None:
        """Copy a local file to `name`, whole or not at all, and make sure that it has this sha256 there."""

    def receive_bytes(self, content: bytes, name: str) -> None:
        """Write a small file, whole or not at all."""


def open_store(location: str, *, endpoint_url: str | None = None) -> Store:
    """The store of a folder or of an ``s3://bucket/prefix``."""
    if location.startswith("s3://"):
        from pipeline.storage.s3 import S3Store

        return S3Store(location, endpoint_url=endpoint_url)
    if "://" in location:
        raise ConfigError(
            "there is no store for this kind of location",
            where=location,
            expected="a local path or s3://bucket/prefix",
            next_step="mount it, or copy it to one of these",
        )
    from pipeline.storage.local import LocalStore

    return LocalStore(location)


def open_location(location: str, *, endpoint_url: str | None = None) -> tuple[Store, str]:
    """The store of a file's folder, and the file's name in it."""
    folder, _, name = location.rpartition("/")
    return open_store(folder or "/", endpoint_url=endpoint_url), name


def is_local(location: str) -> bool:
    """Whether a location is a path of this machine."""
    return "://" not in location
