"""Processes that end with the one that started them, and the error when one of them ends by itself."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from corpusmill.errors import TransientError

PR_SET_PDEATHSIG = 1


class WorkerLostError(TransientError):
    """A worker process died: killed, or out of memory."""


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
