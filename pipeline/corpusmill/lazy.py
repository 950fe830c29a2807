"""Modules imported at their first use, for files that must start quickly, or where a package may be missing.

    with lazily:
        import numpy as np
        from corpusmill.dedup import ranges

A module in such a block is imported when one of its attributes is first asked for, as in `ranges.union_ranges`. So it
names modules, never names out of them. That is how `corpusmill --help` and Airflow's own processes, which know every
stage, import no numpy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import local
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """Stands for a module in the file that imported it; `sys.modules` never keeps it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # so that the import system looks for what is in it, too, if it is a package

    def __getattr__(self, name: str) -> Any:
        if lazily.made is not None or name.startswith("__"):  # the import system asks
            raise AttributeError(name)
        return getattr(_real(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if lazily.made is not None or name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(_real(self), name, value)


class _Block(local):
    """What a thread made lazy in the block that it is in; None outside of one."""

    made: dict[str, _Lazy] | None = None

    def __enter__(self) -> None:
        self.made = {}

    def __exit__(self, *_error: object) -> None:
        made, self.made = self.made or {}, None
        for name, module in made.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            above, _, last = name.rpartition(".")
            if above in sys.modules and vars(sys.modules[above]).get(last) is module:
                delattr(sys.modules[above], last)  # for other files, the module itself


lazily = _Block()


class _Finder(MetaPathFinder, Loader):
    """Finds whatever a block imports, without looking for it."""

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if lazily.made is not None else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _Lazy(spec.name)
        if lazily.made is not None:
            lazily.made[spec.name] = module
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Its first attribute does it."""


sys.meta_path.insert(0, _Finder())


def _real(module: _Lazy) -> ModuleType:
    """The module itself, as it is in memory now: corpusmill_airflow/preload.py renews modules."""
    if isinstance(sys.modules.get(module.__name__), _Lazy):  # of a block that another thread is in
        del sys.modules[module.__name__]
    return import_module(module.__name__)
