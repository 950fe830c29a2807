"""How our processes end with the one that started them, how they collect garbage, and the error when one is lost."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import sys

from corpusmill.errors import TransientError

PR_SET_PDEATHSIG = 1
GARBAGE_THRESHOLD = 50_000  # objects; at Python's 700, garbage collection takes a tenth of a small job's time


class WorkerLostError(TransientError):
    """A worker process died: killed, or out of memory."""


def collect_seldom() -> None:
    """Collect garbage seldom, and never look at what is loaded by now again: that would take 65 ms each time, and 0.4 s
    when a build ends.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    atexit.register(gc.freeze)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, so that no orphan keeps writing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_task() -> None:
    """In a program that a scheduler's task started: end when the task's process (CORPUSMILL_TASK) does, or has."""
    if task := os.environ.get("CORPUSMILL_TASK"):
        end_with_parent()
        if os.getppid() != int(task):  # it has ended already
            raise SystemExit(1)
