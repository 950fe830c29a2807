"""Two copies of one dataset version compared file by file, and each repaired from the other.

A copy is `<destination>/<name>/<version>`, or `<destination>/<name>`, whose latest.json names the version. Either
copy's dataset.json states every file's sha256, if it hashes to the version in the folder's name (delivered.py). Neither
work folder nor configuration is needed: a copy may be all that is left.

Files in folders are read and digested. An object is intact if an intact file at the other place has the checksum that
the store computed for the object (md5 of an ETag, crc32c); every other object is read, whatever sha256 its metadata
states. A file that is damaged at both places cannot be repaired.

Price: one or two passes over every file in a folder, and over objects where no folder has the same file; what is
repaired passes through this machine once.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corpusmill.config import named_version, version_folder
from corpusmill.errors import CorruptDataError, MissingSourceError, SourceError, VerificationError
from corpusmill.inspect.verify.delivered import describe, read_card, read_file
from corpusmill.inspect.verify.destinations import object_sha256
from corpusmill.storage import Store, Wanted, fetch, is_hub, is_local, open_store
from corpusmill.upload.stages.description import DATASET, LATEST, SUMS, VERSION, latest_version

THREADS = 4


@dataclass(frozen=True)
class Copy:
    """One place that holds a version; `digests`: the sha256 of each file of the version here, None if it is missing."""

    store: Store
    version: str
    digests: dict[str, str | None]


@dataclass(frozen=True)
class Compared:
    """The sha256 that every file must have, and the files wrong or missing at the first and at the second place."""

    first: Copy
    second: Copy
    sums: dict[str, str]
    wrong_first: tuple[str, ...]
    wrong_second: tuple[str, ...]

    @property
    def wrong_at_both(self) -> list[str]:
        """Files that are intact at neither place."""
        return sorted(set(self.wrong_first) & set(self.wrong_second))


def compare_copies(
    first: str, second: str, *, first_endpoint_url: str | None = None, second_endpoint_url: str | None = None
) -> Compared:
    """Digest both copies.

    SourceError if one is missing, VerificationError if they are of different versions or neither dataset.json is
    intact.
    """
    stores = [version_store(first, first_endpoint_url), version_store(second, second_endpoint_url)]
    versions = [named_version(store.folder) for store in stores]
    if versions[0] != versions[1]:
        raise VerificationError(
            "repair.versions_differ: the two places hold different versions",
            where=stores[1].folder,
            expected=versions[0],
            got=versions[1],
        )
    wanted = _sums(stores, versions[0])
    copies = [
        Copy(store, versions[0], _digests(store, other, wanted))
        for store, other in zip(stores, reversed(stores), strict=True)
    ]
    wrong = [tuple(sorted(name for name in wanted if copy.digests[name] != wanted[name])) for copy in copies]
    return Compared(copies[0], copies[1], wanted, *wrong)


def repair_copies(compared: Compared) -> tuple[int, int]:
    """Repair each place from the other; returns (files repaired at the first, at the second).

    VerificationError, before anything is written, if a file is wrong at both.
    """
    if lost := compared.wrong_at_both:
        raise VerificationError(
            "repair.damaged_everywhere: files are wrong or missing at both places",
            where=lost[0],
            expected=f"sha256 {compared.sums[lost[0]]} at one of them",
            got=f"{len(lost)} such files",
            details=tuple(("file", name) for name in lost[:20]),
            next_step="build the dataset again: the same version has the same bytes",
        )
    first = _give(compared.second.store, compared.first, compared.wrong_first, compared.sums)
    second = _give(compared.first.store, compared.second, compared.wrong_second, compared.sums)
    return first, second


def version_store(location: str, endpoint_url: str | None) -> Store:
    """The store of a version's folder, or of the version that latest.json names; SourceError if there is none."""
    location = location.rstrip("/") if "://" in location else str(Path(location).resolve())
    store = open_store(location, endpoint_url=endpoint_url)
    if not VERSION.fullmatch(named_version(location)) and (is_hub(location) or store.stat(DATASET) is None):
        version = latest_version(location, endpoint_url=endpoint_url)
        store = open_store(version_folder(location, version), endpoint_url=endpoint_url) if version else store
    if store.stat(SUMS) is None and store.stat(DATASET) is None:
        raise MissingSourceError(
            "repair.no_copy: there is no copy of a dataset here",
            where=location,
            expected=f"{SUMS} and {DATASET}, or a {LATEST} that names the version",
            got="neither",
            next_step="name <destination>/<name>, or a version's folder in it",
        )
    return store


def _sums(stores: list[Store], version: str) -> dict[str, str]:
    """Name to sha256 of every file of the version, by the dataset.json of either place."""
    described = [describe(read_file(store, DATASET), version, read_card(store)) for store in stores]
    if trusted := [checksums for checksums in described if checksums]:
        with_card = max(trusted, key=lambda checksums: len(checksums.expected))
        return {name: sha256 for name, (_, sha256) in with_card.expected.items()}
    raise VerificationError(
        f"repair.no_description: no {DATASET} is intact",
        where=" and ".join(store.folder for store in stores),
        expected=f"one whose sha256 begins with {version}, at one of them",
        got=f"no {DATASET} of this version",
        next_step="build the dataset again: the same version has the same bytes",
    )


def _digests(store: Store, other: Store, wanted: dict[str, str]) -> dict[str, str | None]:
    with ThreadPoolExecutor(THREADS) as pool:
        digests = pool.map(lambda name: _digest(store, other, name, wanted[name]), wanted)
        return dict(zip(wanted, digests, strict=True))


def _digest(store: Store, other: Store, name: str, sha256: str) -> str | None:
    """The sha256 of a file or object; None if it does not exist."""
    if is_local(store.folder):
        return store.digest(name)
    file = store.stat(name)
    same = Path(other.folder, name) if is_local(other.folder) else None
    return object_sha256(store, file, sha256, same) if file else None


def _give(source: Store, target: Copy, names: tuple[str, ...], sums: dict[str, str]) -> int:
    """Copy files from one place to the other, dataset.json last; content that the target has is copied in place."""
    name_of = {sha256: name for name, sha256 in target.digests.items() if sha256 == sums[name]}
    for name in sorted(names, key=lambda name: (name == DATASET, name)):
        sha256 = sums[name]
        if sha256 in name_of:
            target.store.copy(name_of[sha256], name)
        elif is_local(source.folder):
            target.store.receive(Path(source.folder, name), name, sha256)
        else:
            _carry(source, target.store, name, sha256)
        if _digest(target.store, source, name, sha256) != sha256:
            raise CorruptDataError(
                "repair.content_differs: a repaired file has the wrong content", where=f"{target.store.folder}/{name}"
            )
        name_of[sha256] = name
    return len(names)


def _carry(source: Store, target: Store, name: str, sha256: str) -> None:
    """Copy from one store to another through this machine's disk."""
    file = source.stat(name)
    if file is None:
        raise SourceError(
            "repair.file_vanished: a file vanished while it was copied for a repair", where=f"{source.folder}/{name}"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        fetch(source, Wanted(name, file.size_bytes, file.identity), path, Path(folder, "partial"))
        target.receive(path, name, sha256)


def render_compared(compared: Compared) -> str:
    """What is wrong where, a line a file; one line if nothing is."""
    lines = [f"version {compared.first.version}: {len(compared.sums):,} files"]
    for copy, wrong in ((compared.first, compared.wrong_first), (compared.second, compared.wrong_second)):
        lines.append(f"{copy.store.folder}: " + (f"{len(wrong):,} wrong or missing" if wrong else "no errors found"))
        for name in wrong:
            got = copy.digests[name]
            what = f"sha256 {got}, expected {compared.sums[name]}" if got else "missing"
            lines.append(f"  {name}: {what}")
    return "\n".join(lines)
