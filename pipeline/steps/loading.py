"""Finds, identifies and imports a step's code. The plan pins its identity, and workers compare theirs.

A module is searched for on Python's path, and in the root folder (CORPUSMILL_ROOT, else the current folder). It is
identified by the content of its source file, or of all Python files of its package, and by the modules beside it that
they import, recursively; if it is installed and not editable, by its file and the distribution's version. Imports of
computed names are not seen: raise the step's `version`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any
from unicodedata import unidata_version

import xxhash

from corpusmill.config import root_folder
from corpusmill.errors import ConfigError, PermanentError

if TYPE_CHECKING:
    from corpusmill.config import StepConfig

OWN = "corpusmill"
FIX_MODULE = "fix the module"
Identity = dict[str, str]
_imported: dict[str, str] = {}  # the source of each top-level package when it was imported here
_roots: set[str] = set()  # the root folder that is on Python's path: one at a time


class StepChangedError(PermanentError):
    """A step's code on this machine differs from the planned code."""


def identity_of(step: StepConfig) -> Identity:
    """The identity of a step's code: its source, its distribution, and Python's Unicode version.

    ConfigError if its module has no source file.
    """
    module = step.use.partition(":")[0]
    top = module.partition(".")[0]
    with _root_on_path():
        try:
            spec = find_spec(module)
        except Exception as error:
            raise _unusable(step, f"{in_code(error)} where module {module} was looked for", FIX_MODULE) from None
    if spec is None or not (spec.origin or "").endswith(".py"):
        next_step = f"put the module into {root_folder()}, or install its package on every worker"
        raise _unusable(step, f"no source file of a module {module}", next_step)
    installed = _installed().get(top, "")
    digest = xxhash.xxh3_128()
    for path in _sources(spec, top, whole=not installed and top != OWN):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)}\n".encode())
        digest.update(data)
    version = {"distribution": installed} if installed and top != OWN else {}
    return {"source": f"xxh3_128:{digest.hexdigest()}", "unicode": unidata_version, **version}


def _sources(spec: ModuleSpec, top: str, *, whole: bool) -> list[Path]:
    origin = Path(spec.origin or "")
    if not whole:
        return [origin]
    depth = spec.name.count(".") + (origin.name == "__init__.py")
    beside, sources, waiting = origin.parents[depth], set[Path](), [top]
    while waiting:
        name = waiting.pop()
        own = {beside / f"{name}.py"} if (beside / f"{name}.py").is_file() else {*sorted((beside / name).rglob("*.py"))}
        waiting += [imported for path in own - sources for imported in _imports(path)]
        sources |= own
    return sorted(sources | {origin})


def _imports(path: Path) -> set[str]:
    """The top-level names of all modules that a source file imports, at any depth; empty if it is not valid Python."""
    try:
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
    except (SyntaxError, ValueError):
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module}
    return {name.partition(".")[0] for name in names}


@cache
def _installed() -> dict[str, str]:
    """Name and version of the distribution of every installed package, except editable ones."""
    return {
        package: f"{names[0]} {distribution(names[0]).version}"
        for package, names in packages_distributions().items()
        if '"editable": true' not in (distribution(names[0]).read_text("direct_url.json") or "")
    }


def load(step: StepConfig, planned: Identity | None = None) -> Any:
    """The function or class that a step uses, imported again if its source changed since this process imported it.

    ConfigError if it cannot be imported, or does not take the step's settings; StepChangedError if the code here
    differs from `planned`.
    """
    here = identity_of(step)
    if planned is not None and here != planned:
        raise StepChangedError(
            "a step's code differs from the planned code",
            where=step.use,
            expected=", ".join(planned.values()),
            got=", ".join(here.values()),
            next_step="install the same code on every worker, and start a new run",
        )
    module, _, name = step.use.partition(":")
    top = module.partition(".")[0]
    if top != OWN and _imported.get(top, here["source"]) != here["source"]:
        _forget(top)
    _imported[top] = here["source"]
    with _root_on_path():
        try:
            imported = import_module(module)
        except ModuleNotFoundError as error:
            got = f"{in_code(error)}: no module {error.name}"
            raise _unusable(step, got, f"install {error.name} on every worker, or fix the module") from None
        except Exception as error:
            raise _unusable(step, f"{in_code(error)} where {module} was imported", FIX_MODULE) from None
    try:
        loaded = getattr(imported, name)
    except AttributeError:
        raise _unusable(step, f"no {name} in module {module}", "fix the name in `use`, or fix the module") from None
    _require_settings(step, loaded)
    return loaded


def _require_settings(step: StepConfig, loaded: Any) -> None:
    if not callable(loaded):
        raise _unusable(step, f"an object of type {type(loaded).__name__}", FIX_MODULE)
    before = () if inspect.isclass(loaded) else ("document",)
    try:
        inspect.signature(loaded).bind(*before, **step.settings)
    except TypeError as error:
        raise _unusable(
            step, f"its parameters do not fit `with`: {error}", "fix `with` (--set), or the module"
        ) from None
    if inspect.isclass(loaded) and not (hasattr(loaded, "batch") or "__call__" in dir(loaded)):
        raise _unusable(step, "a class without __call__ and without batch", FIX_MODULE)


def _forget(top: str) -> None:
    for known in [module for module in sys.modules if module.partition(".")[0] == top]:
        del sys.modules[known]
    _imported.pop(top, None)


@contextmanager
def _root_on_path() -> Iterator[None]:
    """Search the root folder last. No bytecode is written: it would hide an edit within the same second."""
    root, kept = str(root_folder()), sys.dont_write_bytecode
    if _roots - {root}:  # another root may have modules of the same names
        sys.path[:] = [entry for entry in sys.path if entry not in _roots]
        _roots.clear()
        for top in set(_imported) - {OWN}:
            _forget(top)
    if root not in sys.path:
        sys.path.append(root)
        _roots.add(root)
    sys.dont_write_bytecode = True
    invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = kept


def in_code(error: BaseException) -> str:
    """An exception without its words, which may quote a text: its type, and the last line of code that it left."""
    name = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{name} at {Path(error.filename).name}:{error.lineno}"
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen ")]
    return f"{name} at {Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name}" if frames else name


def _unusable(step: StepConfig, got: str, next_step: str) -> ConfigError:
    return ConfigError(
        "a step cannot be used",
        where=f"steps: use: {step.use}",
        expected="module:name of a function of one document, or of a class (docs/steps.md)",
        got=got,
        next_step=next_step,
    )
