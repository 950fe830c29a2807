"""A store of each kind with the same objects, reached through a proxy that does harm."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corpusmill.storage import Store, Traffic, Wanted, fetch, open_store
from tests.faults.proxy import FaultyProxy
from tests.gcs_front import GcsFront
from tests.hub import COMMIT, Hub

DATA = hashlib.shake_128(b"far").digest(100_000)
OBJECTS = {"a.jsonl": DATA, "b.jsonl": DATA[::-1], "c.jsonl": b"{}\n", "d.jsonl": b""}
FOLDERS = {"s3": "s3://corpus", "gcs": "gs://corpus", "hub": f"hf://datasets/owner/name@{COMMIT}"}


class Far:
    """A store of one kind; its transfers are counted in `traffic`."""

    def __init__(self, kind: str, target: str, monkeypatch: pytest.MonkeyPatch, hub: Hub | None = None) -> None:
        self.kind, self._target, self._monkeypatch, self._hub = kind, target, monkeypatch, hub
        self.traffic = Traffic()

    def at(self, endpoint: str) -> Store:
        """The store at another address."""
        self._monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        self._monkeypatch.setenv("HF_ENDPOINT", endpoint)
        if self._hub:
            self._hub.endpoint = endpoint
        return open_store(FOLDERS[self.kind], endpoint_url=endpoint, traffic=self.traffic)

    def store(self) -> Store:
        """The store itself, of GCS the emulator, which knows one generation of an object."""
        return self.at(self._target)

    @contextmanager
    def behind(self, **faults: Any) -> Iterator[tuple[FaultyProxy, Store]]:
        """(a proxy, the store behind it)."""
        with (GcsFront if self.kind == "gcs" else FaultyProxy)(self._target, **faults) as proxy:
            yield proxy, self.at(proxy.endpoint)


@contextmanager
def far_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str) -> Iterator[Far]:
    """A store of a kind that has OBJECTS."""
    if kind == "hub":
        with Hub(dict(OBJECTS)) as hub:
            yield Far("hub", hub.endpoint, monkeypatch, hub)
        return
    server = request.getfixturevalue("rclone" if kind == "s3" else "gcs")
    far = Far(kind, server.endpoint if kind == "s3" else server.target.geturl(), monkeypatch)
    with far.behind() as (_, store):
        for name, data in OBJECTS.items():
            store.receive_bytes(data, name)
    yield far


def wanted(store: Store, name: str = "a.jsonl", pieces: Any = None) -> Wanted:
    """A file as it is now."""
    there = store.stat(name)
    assert there is not None
    return Wanted(name, there.size_bytes, there.identity, pieces)


def download(store: Store, name: str, folder: Path) -> bytes:
    """A file, fetched by way of `folder`/partial."""
    fetch(store, wanted(store, name), folder / "got", folder / "partial")
    return (folder / "got").read_bytes()


def big_file(folder: Path) -> tuple[Path, str]:
    """A file of three parts, and its sha256."""
    data = hashlib.shake_128(b"big").digest(17 << 20)
    (folder / "big").write_bytes(data)
    return folder / "big", hashlib.sha256(data).hexdigest()
