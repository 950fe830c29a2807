"""Download: have every source file of a shard at hand, and know its sha256.

Local files stay where they are and are read in place: they are digested here, and compared with that digest whenever
they are read later. Objects of a bucket are copied into the step's folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import SourceError, StoreUnavailableError
from pipeline.fingerprint import READ_BYTES, file_digest
from pipeline.ledger import Outcome
from pipeline.stages.stage import Stage
from pipeline.storage import StoredFile, is_local, open_location

if TYPE_CHECKING:
    from pipeline.stages.build import Build
    from pipeline.stages.plan import SourceFile

LISTING = "files.json"


@dataclass(frozen=True)
class LocalCopy:
    """A source file that can be opened: its name, where it lies, its sha256."""

    name: str
    path: Path
    size_bytes: int
    sha256: str


def local_copies(build: Build, shard: str) -> list[LocalCopy]:
    """The source files of a downloaded shard, in order."""
    folder = build.folder("download", shard)
    digests = json.loads((folder / LISTING).read_text())
    files = build.plan.shards[int(shard)]
    return [
        LocalCopy(file.name, _path(file, folder), file.size_bytes, one["sha256"])
        for file, one in zip(files, digests, strict=True)
    ]


def _path(file: SourceFile, folder: Path) -> Path:
    return Path(file.location) if is_local(file.location) else folder / "files" / file.name


def _units(build: Build) -> list[str]:
    names: list[str] = build.plan.shard_names()
    return names


def _settings(build: Build, shard: str) -> dict[str, Any]:
    files = build.plan.shards[int(shard)]
    return {"files": [{"name": file.name, "location": file.location, "identity": file.identity} for file in files]}


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    files: list[SourceFile] = build.plan.shards[int(shard)]
    listed = [
        {"name": file.name, "size_bytes": file.size_bytes, "sha256": _fetch(build, file, folder)} for file in files
    ]
    (folder / LISTING).write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    size = sum(file.size_bytes for file in files)
    return Outcome(counts={"files": len(files), "source_bytes": size, "bytes_read": size})


def _fetch(build: Build, file: SourceFile, folder: Path) -> str:
    """Make the file local if it is not; its sha256. SourceError if it is no longer what the plan saw."""
    store, name = open_location(file.location, endpoint_url=build.config.source.endpoint_url)
    _require_unchanged(file, store.stat(name))
    path = _path(file, folder)
    if not is_local(file.location):
        path.parent.mkdir(parents=True, exist_ok=True)
        with store.open(name) as reading, path.open("wb") as writing:
            while piece := reading.read(READ_BYTES):
                writing.write(piece)
    if path.stat().st_size != file.size_bytes:
        raise StoreUnavailableError(
            "a source file did not arrive whole",
            where=file.location,
            expected=f"{file.size_bytes:,} bytes",
            got=f"{path.stat().st_size:,} bytes",
            next_step="run again",
        )
    digest = file_digest(path)
    _require_unchanged(file, store.stat(name))  # not while it was read, either
    return digest


def _require_unchanged(file: SourceFile, now: StoredFile | None) -> None:
    if now is None or now.identity != file.identity:
        raise SourceError(
            "a source file changed after it was planned",
            where=file.location,
            expected=f"{file.size_bytes:,} bytes ({file.identity})",
            got="it is gone" if now is None else f"{now.size_bytes:,} bytes ({now.identity})",
            next_step="start the build again: it plans with the files as they are now",
        )


STAGE = Stage("download", units=_units, inputs=lambda _build, _unit: [], settings=_settings, run=_run)
