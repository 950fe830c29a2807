"""Finds, identifies and imports a step's code. The plan pins its identity, and workers compare theirs.

A module is searched for on Python's path, and in the root folder (CORPUSMILL_ROOT, else the current folder). It is
identified by the content of its source file, or of all Python files of its package, and by the modules that they
import, recursively, except installed ones; if it is itself installed and not editable, by its file and the
distribution's version. Imports of computed names are not seen: raise the step's `version`.

A user's module in memory counts if an import would now execute the very bytes that were executed. A script or notebook
may have imported a module of a step before, or edited it since. So modules of steps are imported by a loader that
remembers the digest of the bytes it executes and passes over bytecode, which an edit within a second may outlive. If
any module in memory came otherwise, or its file differs, is gone, or is hidden by another, all of them are dropped, and
the next import loads them anew. Extension modules, which Python cannot load twice, stay.

    sys.modules: name -> module -> Recorded(path, digest) == digest of the file that `find` finds for name?
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from pkgutil import get_importer
from traceback import extract_tb
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any
from unicodedata import unidata_version

import xxhash

from corpusmill.config import root_folder
from corpusmill.errors import ConfigError, MissingStepError, PermanentError

if TYPE_CHECKING:
    from _typeshed.importlib import MetaPathFinderProtocol

    from corpusmill.config import StepConfig


def digest_of(data: bytes) -> str:
    """The digest of a source file's content, 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


def find(module: str) -> ModuleSpec | None:
    """Where an import would find a module, whatever is in memory. No code of its packages runs."""
    top, *parts = module.split(".")
    spec = _found_by(sys.meta_path, top, None)
    for depth, _ in enumerate(parts, 2):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = _below(".".join(module.split(".")[:depth]), list(spec.submodule_search_locations))
    return spec


def _below(module: str, folders: list[str]) -> ModuleSpec | None:
    """As PathFinder finds a module in a package's folders, but without its parents in memory."""
    importers = filter(None, map(get_importer, folders))
    specs = [spec for importer in importers if (spec := importer.find_spec(module))]
    spec = next((spec for spec in specs if spec.loader), None)
    if spec is None and specs:  # folders without __init__.py
        spec = specs[0]
        spec.submodule_search_locations = [place for part in specs for place in part.submodule_search_locations or ()]
    return spec


def _found_by(finders: Iterable[MetaPathFinderProtocol], module: str, path: Sequence[str] | None) -> ModuleSpec | None:
    specs = (finder.find_spec(module, path) for finder in finders)
    return next((spec for spec in specs if spec is not None), None)


class Recorded(SourceFileLoader):
    """Executes the bytes of a source file and keeps their digest."""

    digest = ""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        """Compile the file as it is now."""
        data = self.get_data(self.path)
        self.digest = digest_of(data)
        return self.source_to_code(data, self.path)


class _Recording(MetaPathFinder):
    """Finds modules of the user's top-level names as others do, and has `Recorded` load them."""

    tops: frozenset[str] = frozenset()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if target is not None or fullname.partition(".")[0] not in self.tops:  # a target: importlib.reload
            return None
        spec = _found_by((finder for finder in sys.meta_path if finder is not self), fullname, path)
        if spec is not None and (spec.origin or "").endswith(".py"):
            spec.loader = Recorded(fullname, str(spec.origin))
        return spec


_recording = _Recording()


def require_fresh(tops: Collection[str]) -> None:
    """Let modules of these top-level names be imported as recorded ones; drop those in memory that are not current."""
    if _recording not in sys.meta_path:
        sys.meta_path.insert(0, _recording)
    _recording.tops |= frozenset(tops)
    known = dict(_own(tops))
    if not all(_is_current(name, module) for name, module in known.items() if _is_source(module)):
        for name in known:
            del sys.modules[name]


def differing(sources: Mapping[Path, str]) -> list[Path]:
    """The files among `sources` (digest of each) of which other bytes were executed."""
    loaders = [loader for _, module in _own(()) if isinstance(loader := _loader(module), Recorded)]
    executed = {Path(loader.path): loader.digest for loader in loaders}
    return sorted(path for path, digest in sources.items() if executed.get(path, digest) != digest)


def _own(tops: Collection[str]) -> Iterator[tuple[str, ModuleType]]:
    """Modules in memory that are recorded, or of some top-level names: from source files, or folders of these."""
    for name, module in list(sys.modules.items()):
        named = name.partition(".")[0] in tops and (_is_source(module) or getattr(module, "__file__", None) is None)
        if named or isinstance(_loader(module), Recorded):
            yield name, module


def _is_source(module: ModuleType) -> bool:
    return (getattr(module, "__file__", None) or "").endswith(".py")


def _loader(module: ModuleType) -> object:
    return getattr(getattr(module, "__spec__", None), "loader", None)


def _is_current(name: str, module: ModuleType) -> bool:
    loader, spec = _loader(module), find(name)
    if not isinstance(loader, Recorded) or spec is None or spec.origin != loader.path:
        return False
    return digest_of(Path(loader.path).read_bytes()) == loader.digest


OWN = "corpusmill"
EXPECTED = "module:name of a function of one document, or of a class (docs/steps.md)"
FIX_MODULE = "fix the module"
Identity = dict[str, str]
_installed_here: dict[str, Identity] = {}  # of each installed module, when this process first loaded it
_roots: set[str] = set()  # the root folders that were put on Python's path: one at a time is there


class StepChangedError(PermanentError):
    """A step's code on this machine differs from the planned code."""


@dataclass(frozen=True)
class _Code:
    """The identity of a step's code, the digest of each of its files, and the user's top-level names among them."""

    identity: Identity
    sources: dict[Path, str]
    tops: frozenset[str]


def identity_of(step: StepConfig) -> Identity:
    """The identity of a step's code: its source, its distribution, and Python's Unicode version.

    ConfigError if its module has no source file.
    """
    return _code_of(step).identity


def _code_of(step: StepConfig) -> _Code:
    module = step.use.partition(":")[0]
    top = module.partition(".")[0]
    with _root_on_path():
        spec = find(module)
        if spec is None or not (spec.origin or "").endswith(".py"):
            next_step = f"put the module into {root_folder()}, or install its package on every worker"
            raise _missing(step, f"no source file of a module {module}", next_step)
        tops, paths = _own_code(top)
    sources = {path: path.read_bytes() for path in paths or [Path(str(spec.origin))]}
    digest = xxhash.xxh3_128()
    for path, data in sources.items():
        digest.update(f"{path.name} {len(data)}\n".encode())
        digest.update(data)
    version = {"distribution": _version(top)} if top in _installed() and top != OWN else {}
    identity = {"source": f"xxh3_128:{digest.hexdigest()}", "unicode": unidata_version, **version}
    return _Code(identity, {path: digest_of(data) for path, data in sources.items()}, tops)


def _own_code(top: str) -> tuple[frozenset[str], list[Path]]:
    """The user's top-level names among a module's own and those that it imports, recursively; all their files.

    The files are in an order that is the same in whatever folder they are.
    """
    tops, sources, waiting = set[str](), dict[Path, tuple[str, ...]](), [top]
    while waiting:
        name = waiting.pop()
        if name in tops or name == OWN or name in sys.stdlib_module_names or name in _installed():
            continue
        if (spec := find(name)) is None:
            continue
        tops.add(name)
        folders = [*map(Path, spec.submodule_search_locations or ())]
        own = {
            path: (name, *path.relative_to(folder).parts) for folder in folders for path in sorted(folder.rglob("*.py"))
        }
        if not folders and (spec.origin or "").endswith(".py"):
            own = {Path(str(spec.origin)): (Path(str(spec.origin)).name,)}
        waiting += [imported for path in own for imported in _imports(path)]
        sources |= own
    return frozenset(tops), sorted(sources, key=lambda path: (sources[path], path))


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
    """The name of the distribution of every installed package, except editable ones."""
    return {
        package: names[0]
        for package, names in packages_distributions().items()
        if '"editable": true' not in (distribution(names[0]).read_text("direct_url.json") or "")
    }


def _version(top: str) -> str:
    """Name and version of the distribution of an installed package, as it is now."""
    return f"{_installed()[top]} {distribution(_installed()[top]).version}"


def load(step: StepConfig, planned: Identity | None = None) -> Any:
    """The function or class that a step uses: what is executed is what its files hold now.

    ConfigError if it cannot be imported, or does not take the step's settings; StepChangedError if the code here
    differs from `planned`, changes while it is loaded, or is an installed package that changed in this process.
    """
    code = _code_of(step)
    if planned is not None and code.identity != planned:
        raise StepChangedError(
            "custom_step.other_code: a step's code differs from the planned code",
            where=step.use,
            expected=", ".join(planned.values()),
            got=", ".join(code.identity.values()),
            next_step="install the same code on every worker, and start a new run",
        )
    module, _, name = step.use.partition(":")
    if not code.tops and (first := _installed_here.setdefault(module, code.identity)) != code.identity:
        raise StepChangedError(
            "custom_step.installed_again: a step's package was installed again while this process has it in memory",
            where=step.use,
            expected=", ".join(first.values()),
            got=", ".join(code.identity.values()),
            next_step="restart Python",
        )
    with _root_on_path():
        require_fresh(code.tops)
        try:
            imported = import_module(module)
        except ModuleNotFoundError as error:
            got = f"{in_code(error)}: no module {error.name}"
            raise _unusable(step, got, f"install {error.name} on every worker, or fix the module") from None
        except Exception as error:
            raise _unusable(step, f"{in_code(error)} where {module} was imported", FIX_MODULE) from None
    if different := differing(code.sources):
        raise StepChangedError(
            "custom_step.changed_while_loaded: a step's code changed while it was loaded",
            where=different[0],
            next_step="leave its files alone until the build has begun, and start it again",
        )
    try:
        loaded = getattr(imported, name)
    except AttributeError:
        next_step = "fix the name in `use`, or fix the module"
        raise _missing(step, f"no {name} in module {module}", next_step) from None
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


@contextmanager
def _root_on_path() -> Iterator[None]:
    """Search the root folder last. No bytecode is written: it would hide an edit within the same second."""
    root, kept = str(root_folder()), sys.dont_write_bytecode
    if others := _roots - {root}:  # another may have modules of the same names, and whoever kept a path sets it again
        sys.path[:] = [entry for entry in sys.path if entry not in others]
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


def _missing(step: StepConfig, got: str, next_step: str) -> MissingStepError:
    return MissingStepError(
        "custom_step.missing: there is no such step",
        where=f"steps: use: {step.use}",
        expected=EXPECTED,
        got=got,
        next_step=next_step,
    )


def _unusable(step: StepConfig, got: str, next_step: str) -> ConfigError:
    return ConfigError(
        "custom_step.unusable: a step cannot be used",
        where=f"steps: use: {step.use}",
        expected=EXPECTED,
        got=got,
        next_step=next_step,
    )
