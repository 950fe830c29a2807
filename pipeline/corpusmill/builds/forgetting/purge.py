"""Purge: removes the text of forgotten documents from everything that a dataset's builds left, then searches for it.

What is removed, once the newest build has forgotten all documents on the list:

* step folders that this build does not reach, and the reports of other builds that contain some of the text;
* every version at the destinations except the one that this build delivered;
* interrupted uploads and downloads;
* texts and fields in the index and download outputs of shards that held the documents: reclaimed, so that no step
  runs again for it. They say what to search for, so they go last, and stay if something is found: a purge that failed,
  or was interrupted, can be repeated.

What a purge cannot remove is listed: sources, versions that another dataset is built against or that no run of this
work folder delivered, destinations that refuse, deleted objects that buckets keep. Every other file and object below
the work folder and below the dataset's folder at destinations, except on the Hub, is searched, and the purge fails if
anything is found, or if a destination cannot be searched.

Of a work folder in a bucket, and of destinations there, every object is fetched once for that; of the work folder those
that this build does not need are fetched twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from corpusmill.builds.forgetting.remains import (
    HOLDS_SOURCES,
    Search,
    files_below,
    forgotten_documents,
    kept_by_bucket,
    search_for,
    search_store,
)
from corpusmill.config import FORGOTTEN
from corpusmill.engine.build import COMMON
from corpusmill.engine.garbage import abandoned_attempt, find_garbage, remove_garbage, superseded
from corpusmill.engine.ledger import reclaim_outputs
from corpusmill.engine.runs import DELIVERED, delivered_versions
from corpusmill.engine.work_folder.objects import objects_of
from corpusmill.engine.work_folder.outputs import OUTPUTS, attempt_key
from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import CorpusmillError, PermanentError
from corpusmill.sources.stages.download import ARRIVING
from corpusmill.steps.stages.applying import decisions_found
from corpusmill.storage import is_hub, is_local, open_store
from corpusmill.storage.mirrored import address_of, place_of
from corpusmill.upload.stages.description import latest_version, version_of
from corpusmill.upload.stages.manifest import UNIT
from corpusmill.upload.stages.retention import find_old_versions, places_of, remove_old_version

if TYPE_CHECKING:
    from corpusmill.engine.build import Build

VERSION_DIGITS = 12


@dataclass
class Purge:
    """What a purge did. There should be neither `remains`, files that still contain text of forgotten documents, nor
    `unsearched` destinations.
    """

    lists: list[str] = field(default_factory=list)
    documents: int = 0
    unsearchable: int = 0
    removed: list[str] = field(default_factory=list)
    reclaimed: list[str] = field(default_factory=list)
    out_of_reach: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)
    searched_files: int = 0
    searched_bytes: int = 0


def purge(build: Build) -> Purge:
    """Remove the text of forgotten documents; the dataset must be claimed. PermanentError if the build must run first.

    It may be repeated, and must be after an interruption.
    """
    _require_forgotten(build)
    done, search = Purge(), search_for(build)
    done.lists = [rows.matched_text() for rows in decisions_found(build) if rows.name == FORGOTTEN]
    done.documents, done.unsearchable = search.documents, search.unsearchable
    _remove_versions(build, done)
    _remove_steps(build, search, done)
    if is_shared(build.work):
        done.out_of_reach.append(f"mirrors of {address_of(build.work)} on other machines (remove their caches)")
    for folder, endpoint_url in _buckets(build):
        with _noted(done, folder):
            if why := kept_by_bucket(folder, endpoint_url):
                done.out_of_reach.append(f"{folder} ({why})")
    done.out_of_reach += [f"{name} (a source)" for name in sorted({place.file for place in search.places})]
    _note_references(build, search, done)
    _search_again(build, search, done)
    if not (done.remains or done.unsearched):
        _reclaim_sources(build, done)
    return done


def render_preview(build: Build) -> str:
    """In words for a terminal: all that `purge` removes, which is searched for as it does. PermanentError if the build
    must run first.
    """
    _require_forgotten(build)
    own = version_of(build.receipt("manifest", UNIT))
    search = search_for(build)
    attempts = _attempts_of_others(build, search)
    steps = {step.folder for step in find_garbage(build.work, build.graph, config=build.config)}
    steps.update(_steps_of_others(build, search, attempts), attempts)
    arriving = build.work / ARRIVING
    lines = [
        *(f"version  {old.folder}" for old in find_old_versions(build.config, keep=0, stays={own})),
        *(f"step     {address_of(folder)}" for folder in sorted(steps)),
        *([f"arriving {arriving}"] if arriving.is_dir() else ()),
        *(
            f"texts    {address_of(build.step_folder(stage, shard))}"
            for shard, _ in forgotten_documents(build)
            for stage in HOLDS_SOURCES
        ),
    ]
    return "\n".join([*lines, "can be removed, with uploads that never finished: --remove does it"])


def _require_forgotten(build: Build) -> None:
    if build.config.forget is None:
        raise PermanentError(
            "forget.no_list: there is no list of documents to forget", next_step="add `forget` to the configuration"
        )
    if not (build.plan_folder / DELIVERED).exists():
        raise PermanentError(
            "forget.version_of_other_configuration: the newest version was not built from this configuration, list and"
            " sources",
            where=build.plan_folder,
            next_step="build the dataset, which leaves the documents out; then purge",
        )


def _remove_versions(build: Build, done: Purge) -> None:
    """All versions of the dataset at destinations but the build's own."""
    own = version_of(build.receipt("manifest", UNIT))
    for folder, endpoint_url in places_of(build.config, hubs=True):
        if is_hub(folder):
            done.out_of_reach.append(f"{folder} (a hub keeps every commit)")
        with _noted(done, folder):
            if (latest := latest_version(folder, endpoint_url=endpoint_url)) not in {own, None}:
                done.out_of_reach.append(f"{folder}/{latest} (latest names it; build with this list moves that)")
    with _noted(done, "older versions at destinations"):
        for old in find_old_versions(build.config, keep=0, stays={own}):
            with _noted(done, old.folder):
                remove_old_version(old)
                done.removed.append(old.folder)
    known = {own, *delivered_versions(build.work)}
    for folder, endpoint_url in places_of(build.config):
        with _noted(done, folder):
            open_store(folder, endpoint_url=endpoint_url).remove_unfinished(keep=own)
            left = [name for name in sorted(_names_at(folder, endpoint_url) - {own}) if len(name) == VERSION_DIGITS]
            why = {True: "another dataset is built against it", False: "no run of this work folder delivered it"}
            done.out_of_reach += [f"{folder}/{name} ({why[name in known]})" for name in left]


def _names_at(folder: str, endpoint_url: str | None) -> set[str]:
    """The folders below a dataset's folder at a destination; links in a local folder are left out."""
    if is_local(folder):
        return {path.name for path in Path(folder).iterdir() if path.is_dir() and not path.is_symlink()}
    return {file.name.partition("/")[0] for file in open_store(folder, endpoint_url=endpoint_url).iter_files()}


def _buckets(build: Build) -> list[tuple[str, str | None]]:
    """(folder, endpoint) of everything to search in buckets: the dataset's work folder, its folders at destinations."""
    work = [(address_of(build.work), None)] if is_shared(build.work) else []
    return [*work, *(place for place in places_of(build.config) if not is_local(place[0]))]


def _remove_steps(build: Build, search: Search, done: Purge) -> None:
    """Superseded step folders, and those of other builds that still hold some of the text."""
    removed = remove_garbage(build.work, build.graph, find_garbage(build.work, build.graph, config=build.config))
    if is_shared(build.work):
        bucket, key = place_of(address_of(build.work))
        for upload in objects_of(bucket).unfinished(f"{key}/"):
            objects_of(bucket).abort(upload)
    attempts = _attempts_of_others(build, search)
    folders = _steps_of_others(build, search, attempts)
    removed += remove_garbage(build.work, build.graph, [superseded(folder) for folder in folders])
    removed += remove_garbage(build.work, build.graph, [abandoned_attempt(attempt) for attempt in attempts])
    done.removed += [address_of(step.folder) for step in removed]
    if (arriving := build.work / ARRIVING).is_dir():  # parts of sources, without their names
        shutil.rmtree(arriving)
        done.removed.append(str(arriving))


def _steps_of_others(build: Build, search: Search, attempts: list[Path]) -> list[Path]:
    """Step folders that are not this build's and hold some of the text, here or in one of `attempts`."""
    mine = {build.step_folder(stage, unit) for stage in build.graph.names for unit in build.units(stage)}
    holding = {
        build.work.joinpath(*path.relative_to(build.work).parts[:2])
        for path, _ in search.in_files(files_below(build.work))
    }
    for attempt in attempts:
        holding |= {*build.work.glob(f"*/*-{attempt.parent.name}")}
    return sorted(folder for folder in holding - mine if folder.is_dir() and folder.parent.name in build.graph)


def _attempts_of_others(build: Build, search: Search) -> list[Path]:
    """Mirror paths of outputs in a work folder's bucket that no step of this build names and that hold some of the
    text; none where it is in no bucket. The dataset is claimed, so no receipt is about to name one.
    """
    if not is_shared(build.work):
        return []
    address = address_of(build.work)
    own = {
        f"{'/'.join(attempt_key(build.step_folder(receipt.stage, receipt.unit), receipt.attempt))}/"
        for stage in build.graph.names
        for receipt in build.receipts(stage)
    }

    def of_others(name: str) -> bool:
        return name.startswith(f"{OUTPUTS}/") and not f"{address}/{name}".startswith(tuple(own))

    return sorted(
        {
            build.work.joinpath(*PurePosixPath(attempt.name).parts[:3])
            for attempt in search_store(address, None, search, of_others)
            if attempt.places
        }
    )


def _note_references(build: Build, search: Search, done: Purge) -> None:
    """List references of the work folder's datasets (`dedup.against`) that hold some of the text, too."""
    common = build.work.parent / COMMON
    if common.is_dir():
        files = (path for path, _ in search.in_files(files_below(common)))
        holding = {common.joinpath(*path.relative_to(common).parts[:2]) for path in files}
        done.out_of_reach += [f"{folder} (text of a reference)" for folder in sorted(holding)]


def _reclaim_sources(build: Build, done: Purge) -> None:
    """Reclaim the sources' texts in the work folder, of the shards that held forgotten documents."""
    for shard, _ in forgotten_documents(build):
        for stage, patterns in HOLDS_SOURCES.items():
            folder = build.step_folder(stage, shard)
            receipt = reclaim_outputs(folder, patterns)
            if receipt is None:
                done.out_of_reach.append(f"{folder} (in use)")
            else:
                done.reclaimed += [str(folder / name) for name in receipt.reclaimed]


def _with_sources(build: Build) -> set[str]:
    """The files that `_reclaim_sources` removes: paths here, and addresses in a bucket."""
    names = set[str]()
    for shard, _ in forgotten_documents(build):
        for stage, patterns in HOLDS_SOURCES.items():
            folder, receipt = build.step_folder(stage, shard), build.receipt(stage, shard)
            places = [str(folder), *(["/".join(attempt_key(folder, receipt.attempt))] if receipt.attempt else [])]
            outputs = [output.name for output in receipt.outputs]
            reclaimed = [name for name in outputs if any(fnmatchcase(name, pattern) for pattern in patterns)]
            names.update(f"{place}/{name}" for place in places for name in reclaimed)
    return names


def _outside(places: set[str], folder: str) -> Callable[[str], bool]:
    return lambda name: f"{folder}/{name}" not in places


def _search_again(build: Build, search: Search, done: Purge) -> None:
    going = _with_sources(build)
    folders = [build.work, *(Path(folder) for folder, _ in places_of(build.config) if is_local(folder))]
    files = [path for folder in folders for path in files_below(folder) if str(path) not in going]
    done.searched_files, done.searched_bytes = len(files), sum(path.stat().st_size for path in files)
    done.remains = [str(path) for path, _ in search.in_files(files)]
    for folder, endpoint_url in _buckets(build):
        try:
            for item in search_store(folder, endpoint_url, search, _outside(going, folder)):
                done.searched_files += 1
                done.searched_bytes += item.size_bytes
                done.remains += [f"{folder}/{item.name}"] if item.places else []
        except PermanentError as error:
            if folder == address_of(build.work):
                raise  # nothing would be proven
            done.unsearched.append(f"{folder} ({error.what})")


@contextmanager
def _noted(done: Purge, where: str) -> Iterator[None]:
    """List what cannot be reached, with the reason, and continue."""
    try:
        yield
    except (CorpusmillError, OSError, ValueError) as error:
        why = error.what if isinstance(error, CorpusmillError) else type(error).__name__
        done.out_of_reach.append(f"{where} ({why})")


def render_purge(done: Purge) -> str:
    """In words for a terminal; no text is quoted."""
    lines = [f"purged {done.documents:,} forgotten documents", *(f"list: {text}" for text in done.lists)]
    for title, names in (
        ("removed", done.removed),
        ("reclaimed", done.reclaimed),
        ("not removed", done.out_of_reach),
        ("still contains their text", done.remains),
        ("not searched", done.unsearched),
    ):
        lines += [f"{title}  {name}" for name in names]
    lines.append(
        f"{done.searched_files:,} files, {done.searched_bytes:,} bytes searched: {len(done.remains)} contain text"
    )
    if done.unsearchable:
        lines.append(
            f"{done.unsearchable:,} documents have no text of their own to search for: short, or also in others"
        )
    return "\n".join(lines)
