"""The user's modules in memory. One counts if an import would now execute the very bytes that were executed.

A script or notebook may have imported a module of a step before, or edited it since. So modules of steps are imported
by a loader that remembers the digest of the bytes it executes and passes over bytecode, which an edit within a second
may outlive. If any module in memory came otherwise, or its file differs, is gone, or is hidden by another, all of them
are dropped, and the next import loads them anew. Extension modules, which Python cannot load twice, stay.

    sys.modules: name -> module -> Recorded(path, digest) == digest of the file that `find` finds for name?
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from pkgutil import get_importer
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from _typeshed.importlib import MetaPathFinderProtocol


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
