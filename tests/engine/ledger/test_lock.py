"""A lock ends with the process that took it, whatever that process has started."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from corpusmill.engine.ledger import locked
from tests.raising import raises


def test_lock_of_a_process_is_free_when_it_ends_though_one_that_it_forked_lives(tmp_path: Path) -> None:
    path, (asking, answer) = tmp_path / ".lock", os.pipe()
    owner = os.fork()
    if not owner:
        with locked(path, wait=False):
            left = os.fork()
            if not left:
                os.write(answer, os.getpid().to_bytes(8))
                signal.pause()
            signal.pause()
    left = int.from_bytes(os.read(asking, 8))
    try:
        with raises("run.locked"), locked(path, wait=False):
            pass
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        with locked(path, wait=False):
            pass
    finally:
        os.kill(left, signal.SIGKILL)
