"""How this project compiles: one decorator for every numba kernel.

Before numba compiles or loads its first kernel it imports what other installed packages registered as extensions.
awkward, which gigatoken requires and no kernel here uses, would cost every process 0.4 s, so this is turned off; a
stage of your own that needs awkward calls `ak.numba.register()`.

The first build of an installation compiles, for half a minute in all, so that a run's progress says so (advance.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import entrypoints, event

from corpusmill.kernels import advance

Kernel = Callable[..., Any]

entrypoints._already_initialized = True


class _Listener(event.Listener):
    """Told of every kernel that is compiled; loading one from the cache is none."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        advance.note_compiling(1)

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        advance.note_compiling(-1)


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]


def kernel(function: Kernel) -> Kernel:
    """Compile a function on its first call, cache the machine code on disk, and release the GIL while it runs."""
    compiled: Kernel = njit(nogil=True, cache=True)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """The same for functions that kernels call in their inner loops."""
    compiled: Kernel = njit(nogil=True, cache=True, inline="always")(function)
    return compiled
