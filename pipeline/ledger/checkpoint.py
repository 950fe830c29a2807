"""How far a long step has come: shown while it runs, and where a second try of it goes on.

A scheduler that keeps something for a task between its tries gives it to us as `Checkpoints`; without one nothing is
kept, and a step that was cut off starts from clean. What is kept is a few lines of JSON:

    {"stage", "unit", "fingerprint", "done_bytes", "total_bytes", "files": {name: [size_bytes, xxh3_128]}}

`files` are those that the step writes from front to back. A second try goes on behind them only if the fingerprint is
its own and every file still begins with bytes of that digest; else everything is removed and done from the start. So a
checkpoint that is stale, of another configuration, or of a folder that somebody touched can cost time, but no byte.

Price: a save reads back what the files have grown by (from the page cache, some GB/s), at most every SAVE_SECONDS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import xxhash

SAVE_SECONDS = 3.0  # a scheduler's store answers in 6 to 100 ms
READ_BYTES = 1 << 20


class Checkpoints(Protocol):
    """What one task keeps between its tries; a scheduler's own store stands behind it."""

    def load(self) -> dict[str, Any] | None:
        """What was saved last, by this try or an earlier one."""

    def save(self, state: dict[str, Any]) -> None:
        """Keep `state` (JSON) in the place of what was saved before."""


_store: ContextVar[Checkpoints | None] = ContextVar("checkpoints", default=None)


class Checkpoint:
    """The checkpoint of one step. `kept`: {file name: bytes of it that an earlier try wrote and that still stand}."""

    def __init__(self, stage: str, unit: str, fingerprint: str, folder: Path) -> None:
        self._about = {"stage": stage, "unit": unit, "fingerprint": fingerprint}
        self._folder = folder
        self._store = _store.get()
        self._read: dict[str, tuple[int, Any]] = {}
        self._saved_at = time.monotonic()
        self.kept = self._standing()

    def save(self, done_bytes: int, total_bytes: int, files: tuple[str, ...] = ()) -> None:
        """Say how far the step is. `files` must be flushed; without any, a second try starts from clean.

        Call it as often as you like: it does something every SAVE_SECONDS.
        """
        if self._store is None or time.monotonic() - self._saved_at < SAVE_SECONDS:
            return
        digests = {name: self._grown(name) for name in files}
        self._store.save({**self._about, "done_bytes": done_bytes, "total_bytes": total_bytes, "files": digests})
        self._saved_at = time.monotonic()

    def start_over(self) -> None:
        """Count nothing as kept; for a step that cannot go on from there."""
        self.kept = {}
        self._read = {}

    def _standing(self) -> dict[str, int]:
        state = self._store.load() if self._store else None
        if not state or any(state.get(key) != value for key, value in self._about.items()):
            return {}
        kept = {}
        for name, (size, digest) in state.get("files", {}).items():
            self._read[name] = (0, xxhash.xxh3_128())
            if self._grown(name, size) != [size, digest]:
                self._read = {}
                return {}
            kept[name] = size
        return kept

    def _grown(self, name: str, size: int | None = None) -> list[Any]:
        """[size, digest] of a file up to `size` bytes or its end; reads only what was not read before."""
        done, digest = self._read.get(name) or (0, xxhash.xxh3_128())
        path = self._folder / name
        if path.is_file():
            with path.open("rb") as file:
                file.seek(done)
                while piece := file.read(READ_BYTES if size is None else min(READ_BYTES, size - done)):
                    digest.update(piece)
                    done += len(piece)
        self._read[name] = (done, digest)
        return [done, digest.hexdigest()]


_running: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)


@contextmanager
def checkpoints_in(store: Checkpoints) -> Iterator[None]:
    """Keep the checkpoints of the steps that run inside in `store`."""
    token = _store.set(store)
    try:
        yield
    finally:
        _store.reset(token)


@contextmanager
def running(checkpoint: Checkpoint) -> Iterator[None]:
    """Make `checkpoint` the one that the step's body finds."""
    token = _running.set(checkpoint)
    try:
        yield
    finally:
        _running.reset(token)


def current_checkpoint() -> Checkpoint:
    """The checkpoint of the step that runs now; one that keeps nothing outside of any."""
    return _running.get() or Checkpoint("", "", "", Path())
