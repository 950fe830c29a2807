"""The modules of the program."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import corpusmill

NEEDS_TORCH = "corpusmill.inspect.datasets.for_torch"  # which is not installed where these are imported


def every_module() -> Iterator[ModuleType]:
    """Each one, imported."""
    for module in pkgutil.walk_packages(corpusmill.__path__, "corpusmill."):
        if module.name != NEEDS_TORCH:
            yield import_module(module.name)
