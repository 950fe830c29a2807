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

from msgspec import UNSET, UnsetType

from corpusmill.engine.ledger import Outcome
from corpusmill.engine.plan import plain
from corpusmill.engine.stage import Recount, Schedule, Stage
from corpusmill.engine.work import Identity, Input, Inputs, Resources, Sources, Work
from corpusmill.fingerprint import fingerprint
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.sources.copies import SourceCopy, count_traffic, wanted_of
from corpusmill.sources.parts import shard_sources
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

with lazily:
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import SourceFile

LISTING = "files.json"
ARRIVING = "arriving"


class Settings(Identity, frozen=True, kw_only=True):
    """`files`: name, location, identity and part of each; `stream`: they are read from their store."""

    files: list[dict[str, Any]]
    stream: bool | UnsetType = UNSET


def local_copies(downloaded: Input, sources: Sources, traffic: Traffic | None = None) -> list[SourceCopy]:
    """The source files of a downloaded shard, in order; reading streamed ones counts in `traffic`."""
    folder = downloaded.folder()
    listed = json.loads((folder / LISTING).read_text())
    counted = traffic or Traffic()
    copies = []
    for file, seen in zip(sources.files, listed, strict=True):
        path, pieces = None, None
        if is_local(file.location):
            path, pieces = Path(file.location), file.part.pieces if file.part else None
        elif "windows" not in seen:
            path = folder / "files" / file.name
        checksum, windows = parse_checksum(seen["checksum"]), tuple(seen.get("windows", ()))
        copies.append(SourceCopy(file, path, pieces, checksum, sources.endpoint_url, counted, windows))
    return copies


def shard_copies(build: Build, shard: str) -> list[SourceCopy]:
    """The same of a shard of a build."""
    (sources,) = shard_sources(build, shard)
    return local_copies(Input(build, ("download", shard)), sources)


def _units(build: Build) -> list[str]:
    names: list[str] = build.plan.shard_names()
    return names


def _identity(build: Build, shard: str) -> Settings:
    files = [_identified(file) for file in build.plan.shards[int(shard)]]
    return Settings(files=files, stream=build.config.source.stream or UNSET)


def _identified(file: SourceFile) -> dict[str, Any]:
    whole = {"name": file.name, "location": file.location, "identity": file.identity}
    return {**whole, "part": plain(file.part)} if file.part else whole


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    files, endpoint_url = inputs.source.files, inputs.source.endpoint_url
    arriving = resources.steps_folder.with_name(ARRIVING)
    traffic = Traffic()
    stores: dict[str, Store] = {}
    listed = []
    advance.begin(sum(file.size_bytes for file in files))
    for file in files:
        parent = file.location.rpartition("/")[0]
        if parent not in stores:
            stores[parent], _ = open_location(file.location, endpoint_url=endpoint_url, traffic=traffic)
        checksum, windows = _fetch(file, stores[parent], folder, None if settings.stream else arriving)
        # Later steps read a part as the plan cut it: its own frames may end elsewhere while its bytes stay the same.
        part = plain(file.part) if file.part else None
        seen = {"name": file.name, "size_bytes": file.size_bytes, "checksum": str(checksum), "part": part}
        listed.append({**seen, "windows": windows} if windows is not None else seen)
    (folder / LISTING).write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n")
    size = sum(file.size_bytes for file in files)
    counts = {"files": len(files), "source_bytes": size, "bytes_read": size}
    return Outcome(counts=counts, traffic=count_traffic(traffic))


def _fetch(file: SourceFile, store: Store, folder: Path, arriving: Path | None) -> tuple[Checksum, list[str] | None]:
    """Fetch the file unless it is local or streamed; returns its checksum, and those of its windows if it is streamed.

    `arriving`: where partial files wait; None to stream. SourceError if the file has changed since it was planned.
    """
    wanted = wanted_of(file)
    if is_local(file.location):
        require_identity(file.location, file.identity, store.stat(wanted.name))
        checksum = pieces_checksum(Path(file.location), wanted.pieces or ((0, file.size_bytes),))
        require_identity(file.location, file.identity, store.stat(wanted.name))  # nor changed while it was read
        return checksum, None
    if arriving is None:
        return digest_windows(store, wanted)
    partial = arriving / fingerprint([file.location, file.identity, wanted.pieces])
    return fetch(store, wanted, folder / "files" / file.name, partial), None


def _in_place(build: Build, shard: str) -> bool:
    """Whether files of a shard are read in place: only their digests show reliably whether they changed."""
    return any(is_local(file.location) for file in build.plan.shards[int(shard)])


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    listed = json.loads((folder / LISTING).read_bytes())
    planned = [[file.name, file.size_bytes] for file in build.plan.shards[int(unit)]]
    got = [[file["name"], file["size_bytes"]] for file in listed]
    if got != planned:
        raise recounting.contradiction(folder / LISTING, f"{planned}, as planned", got)
    size = sum(file["size_bytes"] for file in listed)
    return Recount({"files": len(listed), "source_bytes": size, "bytes_read": size}, complete=True)


STAGE = Stage(
    "download",
    version=3,
    after=(),
    per_shard=True,
    units=_units,
    work=Work(Settings, _identity, lambda _build, _unit: {}, _run, shard_sources),
    recount=_recount,
    outside=_in_place,
    read_until="writeback",
    schedule=Schedule(stores=True),
)
