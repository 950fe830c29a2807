"""A folder takes over a file that its owner deletes next: without a copy, and no other bytes than were said."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from corpusmill.storage.local import LocalStore
from tests.raising import raises

CONTENT = b"tokens" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def test_file_that_is_taken_over_is_the_same_file_under_another_name(tmp_path: Path, source: Path) -> None:
    LocalStore(str(tmp_path / "store")).take_over(source, "deep/name", SHA256)
    taken = tmp_path / "store/deep/name"
    assert taken.samefile(source)
    source.unlink()
    assert taken.read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "store").rglob("*") if path.is_file()] == ["name"]


def test_file_that_is_taken_over_is_flushed_before_it_gets_its_name(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    LocalStore(str(tmp_path / "store")).take_over(source, "name", SHA256)
    assert flushed == [source]


def test_file_that_is_gone_is_an_error_of_its_own_and_not_of_the_destination(tmp_path: Path, source: Path) -> None:
    source.unlink()
    with pytest.raises(FileNotFoundError):
        LocalStore(str(tmp_path / "store")).take_over(source, "name", SHA256)


def test_file_that_is_taken_over_replaces_what_has_its_name(tmp_path: Path, source: Path) -> None:
    store = LocalStore(str(tmp_path / "store"))
    store.receive_bytes(b"old", "name")
    store.take_over(source, "name", SHA256)
    store.take_over(source, "name", SHA256)
    assert (tmp_path / "store/name").read_bytes() == CONTENT


def test_file_of_another_digest_is_not_taken_over(tmp_path: Path, source: Path) -> None:
    source.write_bytes(CONTENT[:-1] + b"!")
    with raises("destination.copy_differs"):
        LocalStore(str(tmp_path / "store")).take_over(source, "name", SHA256)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_file_that_cannot_be_linked_is_copied(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refused(_self: Path, _target: Path) -> None:
        raise OSError(reason, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    LocalStore(str(tmp_path / "store")).take_over(source, "name", SHA256)
    assert (tmp_path / "store/name").read_bytes() == CONTENT
    assert not (tmp_path / "store/name").samefile(source)
