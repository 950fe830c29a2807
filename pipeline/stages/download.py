"""Download: have every source file of a shard at hand, and know its checksum.

Local files stay where they are and are read in place: they are digested here, and compared with that whenever they are
read later. Objects of buckets and hubs are copied into the step's folder: parallel ranged parts of the planned
identity, verified by the checksum that the store keeps, gone on with after a break (what has arrived waits in
`<work>/arriving/`). Of a part of a file only that part is fetched; the store has no checksum of it. With
`source.stream` nothing is copied: later stages read from the store, each time of the planned identity.

files.json lists of each file name, size in bytes, checksum (`xxh3_128:...` of what lies on this machine, `sha256:...`
of what is streamed if the store knows it, null if not) and, of a part, how the plan cut it (see plan.SourcePart).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.fingerprint import fingerprint
from pipeline.ledger import Outcome
from pipeline.stages.sources import SourceCopy, count_traffic
from pipeline.stages.stage import Stage
from pipeline.storage import (
    Checksum,
    Store,
    Traffic,
    Wanted,
    fetch,
    is_local,
    open_location,
    parse_checksum,
    pieces_checksum,
    require_identity,
)

if TYPE_CHECKING:
    from pipeline.stages.build import Build
    from pipeline.stages.plan import SourceFile

LISTING = "files.json"
ARRIVING = "arriving"


def local_copies(build: Build, shard: str, traffic: Traffic | None = None) -> list[SourceCopy]:
    """The source files of a downloaded shard, in order; reading streamed ones counts in `traffic`."""
    folder = build.folder("download", shard)
    listed = json.loads((folder / LISTING).read_text())
    checksums = [parse_checksum(one["checksum"]) if one["checksum"] else None for one in listed]
    files = build.plan.shards[int(shard)]
    counted = traffic or Traffic()
    return [_copy(build, file, folder, one, counted) for file, one in zip(files, checksums, strict=True)]


def _copy(build: Build, file: SourceFile, folder: Path, checksum: Checksum | None, traffic: Traffic) -> SourceCopy:
    path, pieces = None, None
    if is_local(file.location):
        path, pieces = Path(file.location), file.part.pieces if file.part else None
    elif not build.config.source.stream:
        path = folder / "files" / file.name
    return SourceCopy(file, path, pieces, checksum, build.config.source.endpoint_url, traffic)


def _units(build: Build) -> list[str]:
    names: list[str] = build.plan.shard_names()
    return names


def _settings(build: Build, shard: str) -> dict[str, Any]:
    streamed = {"stream": True} if build.config.source.stream else {}
    return {"files": [_identity(file) for file in build.plan.shards[int(shard)]], **streamed}


def _identity(file: SourceFile) -> dict[str, Any]:
    whole = {"name": file.name, "location": file.location, "identity": file.identity}
    return {**whole, "part": file.part.model_dump(mode="json")} if file.part else whole


def _run(build: Build, shard: str, folder: Path) -> Outcome:
    files: list[SourceFile] = build.plan.shards[int(shard)]
    traffic = Traffic()
    stores: dict[str, Store] = {}
    listed = []
    for file in files:
        parent = file.location.rpartition("/")[0]
        if parent not in stores:
            stores[parent], _ = open_location(
                file.location, endpoint_url=build.config.source.endpoint_url, traffic=traffic
            )
        checksum = _fetch(build, file, stores[parent], folder)
        said = str(checksum) if checksum else None
        # Later steps read a part as the plan cut it: its own frames may end elsewhere while its bytes stay the same.
        part = file.part.model_dump(mode="json") if file.part else None
        listed.append({"name": file.name, "size_bytes": file.size_bytes, "checksum": said, "part": part})
    (folder / LISTING).write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    size = sum(file.size_bytes for file in files)
    counts = {"files": len(files), "source_bytes": size, "bytes_read": size}
    return Outcome(counts=counts, traffic=count_traffic(traffic))


def _fetch(build: Build, file: SourceFile, store: Store, folder: Path) -> Checksum | None:
    """Make the file local if it is not; its checksum. SourceError if it is no longer what the plan saw."""
    name = file.location.rpartition("/")[2]
    pieces = file.part.pieces if file.part else None
    if is_local(file.location):
        require_identity(file.location, file.identity, store.stat(name))
        checksum = pieces_checksum(Path(file.location), pieces or ((0, file.size_bytes),))
        require_identity(file.location, file.identity, store.stat(name))  # not while it was read, either
        return checksum
    if build.config.source.stream:
        require_identity(file.location, file.identity, store.stat(name))
        sha256 = store.digest(name) if pieces is None else None
        return Checksum("sha256", sha256) if sha256 else None
    arriving = fingerprint([file.location, file.identity, pieces])
    wanted = Wanted(name, file.size_bytes, file.identity, pieces)
    return fetch(store, wanted, folder / "files" / file.name, build.work / ARRIVING / arriving)


STAGE = Stage("download", units=_units, inputs=lambda _build, _unit: [], settings=_settings, run=_run)
