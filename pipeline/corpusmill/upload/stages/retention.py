"""Finds and removes old versions at a dataset's destinations.

A version may be removed if a run of this work folder delivered it (`.delivered`, see runs.py) and no rule below keeps
it. Versions that no run here delivered belong to others, and stay. Kept are

* what `latest` names at any of the destinations;
* the newest K that were delivered, by the number of their run, not by time;
* what another dataset is built against: a plan that it needs (runs.py), in a work folder beside this one, reads sources
  or a reference (`dedup.against`) from that version's folder; and a version that this dataset itself uses as a
  reference. Training runs and mixtures leave no trace here, so they can rely only on the newest K.

`gc --destinations --remove` removes them; with `keep_versions` in the configuration, so does every run that has
delivered and moved `latest`. An experiment and a task cleared in an old run remove nothing, and no form sets the key.
`gc --everything` removes a dataset altogether, what `latest` names and the work folder, too.

On the Hub a version is a commit of a history, and nothing of it is removed here.

Removal deletes `dataset.json` first: a folder without it is not a version, so an interrupted removal leaves nothing
that looks complete, and the next one continues. Links are removed, never followed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.config import DatasetConfig, absolute, dataset_folder, version_folder, work_of
from corpusmill.engine.build import Build
from corpusmill.engine.claim import CLAIM
from corpusmill.engine.ledger.lock import RUN_LOCK
from corpusmill.engine.plan import read_plan
from corpusmill.engine.runs import delivered_versions, needed_plans, why_latest_stays
from corpusmill.engine.stage import PLAN
from corpusmill.engine.work_folder.objects import objects_of
from corpusmill.engine.work_folder.small import folders_below, is_shared, remove, remove_all
from corpusmill.errors import CorpusmillError, PermanentError
from corpusmill.storage import is_hub, is_local, open_store
from corpusmill.storage.mirrored import address_of, place_of
from corpusmill.upload.stages.description import DATASET, LATEST, latest_version

if TYPE_CHECKING:
    from corpusmill.engine.plan import Plan

LOCK_FILES = {RUN_LOCK, CLAIM}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OldVersion:
    """A version at one destination that may be removed: its folder, number of files, and their size."""

    folder: str
    endpoint_url: str | None
    files: int
    size_bytes: int


def find_old_versions(config: DatasetConfig, keep: int, stays: Collection[str] = ()) -> list[OldVersion]:
    """The removable versions, without the newest `keep` and those in `stays`, by destination, the newest first.

    Changes nothing. PermanentError if a destination's latest.json, or a plan of another dataset beside this one,
    cannot be read: then it is unknown what is in use.
    """
    work = work_of(config)
    places = places_of(config, hubs=True)
    kept = {*stays, *(latest_version(folder, endpoint_url=endpoint_url) for folder, endpoint_url in places)}
    versions = [version for version in delivered_versions(work)[keep:] if version not in kept]
    sources = _sources_of_others(work) | _references_of(work) if versions else set()
    removable = []
    for folder, endpoint_url in places_of(config):
        for version in versions:
            old = _measured(version_folder(folder, version), endpoint_url)
            if old.files and not any(_is_below(source, old.folder) for source in sources):
                removable.append(old)
    return removable


def find_every_version(config: DatasetConfig) -> list[OldVersion]:
    """All versions that runs of this work folder delivered, those in use too, by destination. Changes nothing.

    PermanentError if a plan of another dataset beside this one reads one of them, or cannot be read; or if the work
    folder has files, but no plan.
    """
    work = work_of(config)
    _require_work_folder(work)
    sources = _sources_of_others(work)
    versions = [
        version
        for folder, endpoint_url in places_of(config)
        for name in delivered_versions(work)
        if (version := _measured(version_folder(folder, name), endpoint_url)).files
    ]
    for version in versions:
        if any(_is_below(source, version.folder) for source in sources):
            raise PermanentError(
                "retention.version_in_use: another dataset is built against a version of this one",
                where=version.folder,
                next_step="remove that dataset first, or build it from other sources",
            )
    return versions


def remove_dataset(config: DatasetConfig) -> None:
    """Remove every version, the pointers to the latest, and the work folder except its claim, which is held."""
    versions = find_every_version(config)
    for folder, endpoint_url in places_of(config):
        open_store(folder, endpoint_url=endpoint_url).delete(LATEST)
        if is_local(folder):
            (Path(folder) / "latest").unlink(missing_ok=True)
    for version in versions:
        remove_old_version(version)
    for folder, _ in places_of(config):
        if is_local(folder):
            with suppress(OSError):  # files of others stay
                Path(folder).rmdir()
    work = work_of(config)
    for path in sorted(_inside(work), key=lambda path: (path.name == PLAN, path)):  # required, so last
        remove_all(path)  # from a bucket
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in LOCK_FILES:
            remove(path)


def keep_newest(build: Build) -> None:
    """Remove older versions once a run has delivered, if `keep_versions` is set and the run moved `latest`.

    A failure does not fail the run, which has delivered: it is logged, and the next run tries again.
    """
    keep = build.config.keep_versions
    if keep is None or why_latest_stays(build.plan_receipt):
        return
    try:
        for old in find_old_versions(build.config, keep):
            remove_old_version(old)
            log.info("removed the old version %s (keep_versions: %d)", old.folder, keep)
    except (CorpusmillError, OSError, ValueError) as error:
        log.warning("old versions of %s are kept: %s", build.config.name, error)


def remove_old_version(old: OldVersion) -> None:
    """Remove what find_old_versions found."""
    store = open_store(old.folder, endpoint_url=old.endpoint_url)
    store.delete(DATASET)
    if is_local(old.folder):
        shutil.rmtree(old.folder)
        return
    for file in store.list_files():
        store.delete(file.name)


def render_dataset(config: DatasetConfig, *, removed: bool) -> str:
    """In words for a terminal: all that remove_dataset removes, rendered before it does."""
    work = work_of(config)
    measured = _measured(address_of(work) if is_shared(work) else os.path.realpath(work), None)
    return render_old_versions([*find_every_version(config), measured], removed=removed)


def render_old_versions(versions: list[OldVersion], *, removed: bool) -> str:
    """In words for a terminal: a line per version, and the total."""
    if not versions:
        return "no version can be removed"
    width = max(len(f"{version.size_bytes:,}") for version in versions)
    lines = [f"{version.size_bytes:>{width},}  {version.folder}  {version.files:,} files" for version in versions]
    outcome = "removed" if removed else "can be removed: --remove does it"
    return "\n".join([*lines, f"{sum(version.size_bytes for version in versions):>{width},}  bytes {outcome}"])


def places_of(config: DatasetConfig, *, hubs: bool = False) -> list[tuple[str, str | None]]:
    """(folder of the dataset, endpoint) at each destination from which versions are removed; or on hubs, too."""
    wanted = [place for place in config.destinations if hubs or not is_hub(place.path)]
    return [(dataset_folder(absolute(place.path), config.name), place.endpoint_url) for place in wanted]


def _require_work_folder(work: Path) -> None:
    """PermanentError if a folder has files of others: whatever a build writes there, its plan is written first."""
    inside = _inside(work)
    if work / PLAN not in inside and any(not path.name.startswith(".") for path in inside):
        raise PermanentError(
            "retention.not_a_work_folder: the folder has files but no plan, so they belong to something else",
            where=work,
            next_step="fix work_folder or name in the configuration, or remove the folder by hand",
        )


def _inside(work: Path) -> set[Path]:
    """The files and folders directly below a work folder, those of its bucket among them."""
    there = {*work.iterdir()}
    if is_shared(work):
        bucket, key = place_of(address_of(work))
        there |= {
            work / stored.key.removeprefix(f"{key}/").partition("/")[0] for stored in objects_of(bucket).list(f"{key}/")
        }
    return there


def _measured(folder: str, endpoint_url: str | None) -> OldVersion:
    """A version at a destination; without files if it does not exist, or if its folder is a link."""
    if is_local(folder):
        walked = [] if Path(folder).is_symlink() else os.walk(folder)
        sizes = [Path(parent, name).lstat().st_size for parent, _, names in walked for name in sorted(names)]
    else:
        sizes = [file.size_bytes for file in open_store(folder, endpoint_url=endpoint_url).list_files()]
    return OldVersion(folder, endpoint_url, len(sizes), sum(sizes))


def _sources_of_others(work: Path) -> set[str]:
    """Where the source files lie that plans of the other datasets beside `work` need."""
    others = [path for path in folders_below(work.parent) if path != work]
    plans = [_readable_plan(plan) for other in others for plan in needed_plans(other)]
    return {file.location for plan in plans for file in (*plan.files(), *plan.files_of_references())}


def _references_of(work: Path) -> set[str]:
    """Where the files of references lie that this dataset's needed plans name, which may be versions of its own."""
    return {file.location for plan in needed_plans(work) for file in _readable_plan(plan).files_of_references()}


def _readable_plan(receipt: Path) -> Plan:
    """The plan of another dataset; PermanentError if it is damaged: it may need any version."""
    try:
        return read_plan(receipt)
    except (CorpusmillError, OSError, ValueError) as error:
        raise PermanentError(
            "retention.plan_not_readable: a plan of another dataset cannot be read, so it is unknown which versions it"
            " is built against",
            where=receipt.parent,
            got=error if isinstance(error, CorpusmillError) else type(error).__name__,
            next_step="build that dataset, which plans it again, or remove its work folder if it is no longer "
            "used; then collect again",
        ) from error


def _is_below(location: str, folder: str) -> bool:
    if is_local(location) and is_local(folder):
        return Path(os.path.realpath(location)).is_relative_to(os.path.realpath(folder))
    return location.startswith(f"{folder}/")
