"""How this project compiles: one decorator for every numba kernel.

Before numba compiles or loads its first kernel it imports what other installed packages registered as extensions.
awkward, which gigatoken requires and no kernel here knows, takes 0.4 s of every process so; `ak.numba.register()` is
how a stage of one's own gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import entrypoints

Kernel = Callable[..., Any]

entrypoints._already_initialized = True


def kernel(function: Kernel) -> Kernel:
    """Compile a function when it is first called, and keep that on disk; it runs without the interpreter's lock."""
    compiled: Kernel = njit(nogil=True, cache=True)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """The same for what kernels call in their inner loops."""
    compiled: Kernel = njit(nogil=True, cache=True, inline="always")(function)
    return compiled
