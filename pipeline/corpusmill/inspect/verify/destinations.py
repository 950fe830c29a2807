"""Checks a destination against the upload: every file, its size and sha256, no other file, and nothing forgotten.

Documents on the list of `forget` are searched by id, or file and line, in the texts from which all formats are made;
other checks show that the formats hold exactly these texts. Independently, spans of the forgotten texts are searched
for in every file of the build, and of its version at every destination. Objects in buckets and on the Hub are streamed
for that, once each. A file that could not be searched is a finding.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpusmill.builds.forgetting.remains import (
    ForgottenPlace,
    Search,
    files_of_build,
    kept_in_spite,
    search_for,
    search_object,
)
from corpusmill.config import absolute, dataset_folder, version_folder
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import OutputFile
from corpusmill.errors import CorpusmillError
from corpusmill.inspect.verify.finding import DAMAGE, ELSEWHERE, Finding, finding_of
from corpusmill.report.figures import counted
from corpusmill.storage import Checksum, Store, StoredFile, Wanted, is_local, matches_file, open_store
from corpusmill.upload.stages.description import DATASET, version_of
from corpusmill.upload.stages.manifest import UNIT
from corpusmill.upload.stages.upload import is_index_cache

THREADS = 4
DELIVERING = ("export", "writeback", "manifest")

Listing = dict[str, tuple[int, str]]
"""Name -> (size in bytes, sha256)."""


def check_destination(build: Build, unit: str, folder: Path, whole: bool) -> tuple[list[Finding], int, int]:
    """Findings, and files and bytes read; `whole`: the upload's own listing matches its receipt.

    Files in folders are digested again. Of objects in a bucket the checksums that the store computed are compared with
    those of the work folder's files; an object without any, or with different ones, is read (object_sha256).

    Content is not read a second time here: for a file with the sha256 of its export's receipt, that export's own check
    (exports.py) has compared it with dataset.json, and any other file is already a finding.
    """
    wanted = build.config.destinations[int(unit)]
    manifest = build.find("manifest", UNIT)
    if manifest is None:
        return [], 0, 0  # without its version the dataset's location is unknown; the missing step is a finding
    location = version_folder(dataset_folder(absolute(wanted.path), build.config.name), version_of(manifest))
    findings: list[Finding] = []
    sent, delivered = _sent(folder) if whole else None, _delivered(build)
    listed = {name: (description.size_bytes, description.sha256) for name, (description, _) in delivered.items()}
    if sent and listed and sent != listed:
        odd = sorted(name for name in sent.keys() | listed.keys() if sent.get(name) != listed.get(name))
        what = "the uploaded files differ from the dataset's receipts"
        findings.append(Finding(what, str(folder / "uploaded.json"), "the same files", f"{odd[:3]} differ"))
    expected = sent or listed
    if not expected:
        return findings, 0, 0
    local = is_local(location)
    try:
        store = open_store(location, endpoint_url=wanted.endpoint_url)
        there = {file.name: file for file in store.list_files() if not is_index_cache(file.name)}
        present = [name for name in expected if name in there and there[name].size_bytes == expected[name][0]]

        def digest(name: str) -> str | None:
            if local:
                return store.digest(name)
            same = delivered[name][1] if name in delivered and delivered[name][1].exists() else None
            return object_sha256(store, there[name], expected[name][1], same)

        with ThreadPoolExecutor(THREADS) as pool:
            digests = dict(zip(present, pool.map(digest, present), strict=True))
    except DAMAGE as error:
        return [*findings, finding_of(error, "a destination cannot be read", location)], 0, 0
    findings += compare_files(location, expected, there, digests)
    read = [expected[name][0] for name in present] if local else []
    return findings, len(read), sum(read)


def _sent(folder: Path) -> Listing:
    return {
        load["name"]: (load["size_bytes"], load["sha256"])
        for load in json.loads((folder / "uploaded.json").read_bytes())
    }


def _delivered(build: Build) -> dict[str, tuple[OutputFile, Path]]:
    """Name in the dataset -> its output and path; empty while a receipt is missing."""
    try:
        steps = [(stage, unit) for stage in DELIVERING for unit in build.units(stage)]
        folders = [(build.receipt(*step), build.step_folder(*step)) for step in steps]
    except ELSEWHERE:
        return {}
    return {output.name: (output, folder / output.name) for receipt, folder in folders for output in receipt.outputs}


def compare_files(
    location: str, expected: Listing, there: dict[str, StoredFile], digests: dict[str, str | None]
) -> list[Finding]:
    """Compare the expected files of a location with its listing and digests; without a digest only sizes count."""
    if not there:
        what = "a destination has nothing of this version"
        return [Finding(what, location, f"{DATASET} and the files that it lists", "no file")]
    findings = []
    for name, (size, sha256) in sorted(expected.items()):
        path = f"{location}/{name}"
        if name not in there:
            findings.append(
                Finding("a file is missing at a destination", path, f"{size:,} bytes, sha256 {sha256}", "nothing")
            )
        elif there[name].size_bytes != size:
            got = there[name].size_bytes
            what = "a file at a destination has another size"
            findings.append(Finding(what, f"{path}, byte {min(got, size)}", f"{size:,} bytes", f"{got:,} bytes"))
        elif digests.get(name, sha256) != sha256:
            what = "a file at a destination differs from the one that was sent"
            findings.append(Finding(what, path, f"sha256 {sha256}", f"sha256 {digests[name] or 'unknown'}"))
    what = "a file at a destination is not part of the dataset"
    return findings + [
        Finding(what, f"{location}/{name}", "nothing", name) for name in sorted(there.keys() - expected.keys())
    ]


def object_sha256(store: Store, file: StoredFile, sha256: str, same: Path | None) -> str:
    """64 hex digits: `sha256` if the local file `same` has it and all checksums that the store itself computed of the
    object; else the sha256 of the object's bytes, which then are read.
    """
    computed = store.own_checksums(file.name, identity=file.identity)
    comparable = computed and same is not None and same.is_file() and same.stat().st_size == file.size_bytes
    if comparable and same and matches_file(same, (Checksum("sha256", sha256), *computed)):
        return sha256
    digest = hashlib.sha256()
    for first, last in Wanted(file.name, file.size_bytes, file.identity).ranges():
        digest.update(store.read_range(file.name, first, last, identity=file.identity))
    return digest.hexdigest()


IN_SPITE = "a document that must be forgotten is in the dataset"
UNKNOWN = "it is unknown whether forgotten documents are gone"


def check_forgotten(build: Build) -> list[Finding]:
    """Remains of documents that must be forgotten. Damage is left to the checks that report it."""
    if build.config.forget is None:
        return []
    try:
        search = search_for(build)
        findings = [*_remains(build, search)]
        manifest = build.find("manifest", UNIT)
    except ELSEWHERE:
        return []
    except DAMAGE as error:
        return [finding_of(error, UNKNOWN, build.work)]
    if manifest is None:
        return findings  # without its version the dataset's location is unknown; the missing step is a finding
    for destination in build.config.destinations:
        folder = version_folder(dataset_folder(absolute(destination.path), build.config.name), version_of(manifest))
        findings += _at_destination(folder, destination.endpoint_url, search)
    return findings


def _remains(build: Build, search: Search) -> Iterator[Finding]:
    for place in kept_in_spite(build):
        yield Finding(IN_SPITE, str(place), "no document of the list", "its id, or its file and line")
    for path, places in search.in_files(files_of_build(build)):
        yield _text_of(places, path)


def _at_destination(folder: str, endpoint_url: str | None, search: Search) -> Iterator[Finding]:
    """Remains in the files of a version at a destination; if one cannot be read, the number of files not searched."""
    left: deque[StoredFile] = deque()
    try:
        store = open_store(folder, endpoint_url=endpoint_url)
        left += store.list_files()
        while left:
            if places := search_object(store, left[0], search):
                yield _text_of(places, f"{folder}/{left[0].name}")
            left.popleft()
    except DAMAGE as error:
        why = error.what if isinstance(error, CorpusmillError) else type(error).__name__
        got = f"{why}; {counted(len(left), 'file')} not searched" if left else f"{why}; nothing searched"
        yield Finding(UNKNOWN, f"{folder}/{left[0].name}" if left else folder, "every file searched", got)


def _text_of(places: list[ForgottenPlace], where: object) -> Finding:
    named = ", ".join(map(str, places[:3]))
    return Finding(IN_SPITE, str(where), "nothing of its text", f"text of {len(places):,} documents: {named}")
