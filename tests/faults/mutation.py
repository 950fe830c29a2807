"""A fault planted in the program, in this process alone: a line of a module's source replaced, the module run anew."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from corpusmill.engine.stage import Graph, Schedule, Shown, Stage
from corpusmill.engine.work import EveryTime, Work
from tests.modules import every_module


def import_everything() -> None:
    """Import all of the program, so that a mutation reaches whoever imported from its module."""
    list(every_module())


def mutate(name: str, old: str, new: str) -> None:
    """Replace `old`, which the module's source holds once, by `new`. For a process that ends afterwards.

    Modules that imported something from it get the new one. Kernels are compiled anew and not from the cache, whose
    keys know nothing of constants; a kernel that calls a changed kernel of another module keeps the old one.
    """
    module = import_module(name)
    path = Path(str(module.__file__))
    source = path.read_text()
    if source.count(old) != 1:
        raise ValueError(f"{name} holds {old!r} {source.count(old)} times")
    changed = source.replace(old, new).replace("cache=True", "cache=False")
    before = dict(vars(module))
    exec(compile(changed, str(path), "exec"), module.__dict__)  # noqa: S102
    changed_things = _hand_on(module, before)
    _change_extended(module, before)
    _renew_graph(module, changed_things)
    import_module("corpusmill.tokens.tokenizer")._loaded.cache_clear()


def _hand_on(module: ModuleType, before: dict[str, object]) -> dict[int, object]:
    """Give the new things to all modules that hold the old ones, by their own name or in a table; {old id: new}."""
    changed = {id(value): vars(module)[name] for name, value in before.items() if not name.startswith("__")}
    for other in [item for name, item in sys.modules.items() if name.startswith("corpusmill.") and item is not module]:
        for name, value in list(vars(other).items()):
            if name in before and value is before[name] and not name.startswith("__"):
                setattr(other, name, vars(module)[name])
            elif isinstance(value, dict) and not name.startswith("__"):
                value.update(
                    {key: changed[id(item)] for key, item in value.items() if callable(item) and id(item) in changed}
                )
    return changed


def _change_extended(module: ModuleType, before: dict[str, object]) -> None:
    """Give the new methods to classes that other modules' classes extend."""
    for name, old in before.items():
        new = vars(module)[name]
        if old is new or not isinstance(old, type) or old.__module__ != module.__name__:
            continue
        if all(extended.__module__ == module.__name__ for extended in old.__subclasses__()):
            continue
        for attribute, value in vars(new).items():
            if callable(value) or isinstance(value, property | cached_property | staticmethod | classmethod):
                setattr(old, attribute, value)


def _renewed(value: Any, changed: dict[int, object]) -> Any:
    """A stage, or what it holds, with the new functions."""
    if isinstance(value, Stage | Work | EveryTime | Schedule | Shown):
        return replace(value, **{name: _renewed(item, changed) for name, item in vars(value).items()})
    return changed.get(id(value), value) if callable(value) else value


def _renew_graph(module: ModuleType, changed: dict[int, object]) -> None:
    """Stages hold functions of several modules, and the graph holds stages."""
    old = import_module("corpusmill.builds.graph").GRAPH
    renewed = Graph(
        module.STAGE if module.__name__.endswith(f".stages.{stage.name}") else _renewed(stage, changed) for stage in old
    )
    for other in [module for name, module in sys.modules.items() if name.startswith("corpusmill.")]:
        if getattr(other, "GRAPH", None) is old:
            other.GRAPH = renewed  # type: ignore[attr-defined]
