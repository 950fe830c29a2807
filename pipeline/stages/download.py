"""Download: makes every source file of a shard available, and records its checksum.

Local files are read in place: they are digested here, and checked against that whenever they are read later. Objects in
buckets and on the Hub are copied into the step's folder: parallel ranged requests of the planned identity, verified by
the store's checksum, resumed after an interruption (partial files wait in `<work>/arriving/`). For a part of a file
only that part is fetched; no store has a checksum of it, so it is read twice. With `source.stream` nothing is copied:
the files are read once here and checked against the store's checksum, if there is one for everything that is read;
later stages read from the store again, and check every window against this first read.

files.json lists each file's name, size in bytes and `xxh3_128:...`, for a part how the plan cut it (see
plan.SourcePart), and for streamed files the XXH3-128 of each window of 8 MiB. So the receipt's digest depends on
content: the same bytes in another bucket, or with another modification time, rerun no later step; other bytes under the
same name and size do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.fingerprint import fingerprint
from corpusmill.ledger import Outcome
from corpusmill.sources.copies import SourceCopy, count_traffic, wanted_of
from corpusmill.sources.plan import plain
from corpusmill.storage import (
    Checksum,
    Store,
    Traffic,
    digest_windows,
    fetch,
    is_local,
    open_location,
    parse_checksum,
    pieces_checksum,
    require_identity,
)

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.sources.plan import SourceFile

LISTING = "files.json"
ARRIVING = "arriving"


def local_copies(build: Build, shard: str, traffic: Traffic | None = None) -> list[SourceCopy]:
    """The source files of a downloaded shard, in order; reading streamed ones counts in `traffic`."""
    folder = build.folder("download", shard)
    listed = json.loads((folder / LISTING).read_text())
    files = build.plan.shards[int(shard)]
    counted = traffic or Traffic()
    return [_copy(build, file, folder, source, counted) for file, source in zip(files, listed, strict=True)]


def _copy(build: Build, file: SourceFile, folder: Path, listed: dict[str, Any], traffic: Traffic) -> SourceCopy:
    path, pieces = None, None
    if is_local(file.location):
        path, pieces = Path(file.location), file.part.pieces if file.part else None
    elif not build.config.source.stream:
        path = folder / "files" / file.name
    checksum, windows = parse_checksum(listed["checksum"]), tuple(listed.get("windows", ()))
    return SourceCopy(file, path, pieces, checksum, build.config.source.endpoint_url, traffic, windows)


def _units(build: Build) -> list[str]:
    names: list[str] = build.plan.shard_names()
    return names


def _settings(build: Build, shard: str) -> dict[str, Any]:
    streamed = {"stream": True} if build.config.source.stream else {}
    return {"files": [_identity(file) for file in build.plan.shards[int(shard)]], **streamed}


def _identity(file: SourceFile) -> dict[str, Any]:
    whole = {"name": file.name, "location": file.location, "identity": file.identity}
    return {**whole, "part": plain(file.part)} if file.part else whole


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
        checksum, windows = _fetch(build, file, stores[parent], folder)
        # Later steps read a part as the plan cut it: its own frames may end elsewhere while its bytes stay the same.
        part = plain(file.part) if file.part else None
        seen = {"name": file.name, "size_bytes": file.size_bytes, "checksum": str(checksum), "part": part}
        listed.append({**seen, "windows": windows} if windows is not None else seen)
    (folder / LISTING).write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    size = sum(file.size_bytes for file in files)
    counts = {"files": len(files), "source_bytes": size, "bytes_read": size}
    return Outcome(counts=counts, traffic=count_traffic(traffic))


def _fetch(build: Build, file: SourceFile, store: Store, folder: Path) -> tuple[Checksum, list[str] | None]:
    """Fetch the file unless it is local or streamed; returns its checksum, and those of its windows if it is streamed.

    SourceError if it has changed since it was planned.
    """
    wanted = wanted_of(file)
    if is_local(file.location):
        require_identity(file.location, file.identity, store.stat(wanted.name))
        checksum = pieces_checksum(Path(file.location), wanted.pieces or ((0, file.size_bytes),))
        require_identity(file.location, file.identity, store.stat(wanted.name))  # nor changed while it was read
        return checksum, None
    if build.config.source.stream:
        return digest_windows(store, wanted)
    arriving = fingerprint([file.location, file.identity, wanted.pieces])
    return fetch(store, wanted, folder / "files" / file.name, build.work / ARRIVING / arriving), None


def _in_place(build: Build, shard: str) -> bool:
    """Whether files of a shard are read in place: only their digests show reliably whether they changed."""
    return any(is_local(file.location) for file in build.plan.shards[int(shard)])


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    from corpusmill.stages.recounting import contradiction

    listed = json.loads((folder / LISTING).read_bytes())
    planned = [[file.name, file.size_bytes] for file in build.plan.shards[int(unit)]]
    got = [[file["name"], file["size_bytes"]] for file in listed]
    if got != planned:
        raise contradiction(folder / LISTING, f"{planned}, as planned", got)
    size = sum(file["size_bytes"] for file in listed)
    return Recount({"files": len(listed), "source_bytes": size, "bytes_read": size}, complete=True)


STAGE = Stage(
    "download",
    version=3,
    after=(),
    per_shard=True,
    units=_units,
    inputs=lambda _build, _unit: [],
    settings=_settings,
    run=_run,
    stores=True,
    recount=_recount,
    outside=_in_place,
    read_until="writeback",
)
