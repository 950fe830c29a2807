"""Verifies a delivered version on its own, from its destinations, without work folder or plan.

The sha256 of dataset.json is the version, so it guarantees the list: names, sizes, sha256, and the content of each file
of tokens. SHA256SUMS and the `exp_data` references, which it cannot list, follow from it byte by byte. One whole
dataset.json at any destination is enough to check them all.

Files of tokens are then read by exports.py's independent readers, except files with a wrong sha256: one fault is one
finding. Objects in a bucket are fetched into a temporary folder, one output at a time for each worker, and are
compared with the store's own checksum as they arrive.

Price: every file once for its sha256, files of tokens once more for their content (exports.py); on disk, of remote
destinations, one output for each worker.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.config import (
    DatasetConfig,
    DestinationConfig,
    FramingConfig,
    absolute,
    dataset_folder,
    named_version,
    version_folder,
)
from corpusmill.errors import SourceError
from corpusmill.export.formats.base import Readable
from corpusmill.fingerprint import file_digest
from corpusmill.inspect.verify.destinations import Listing, compare_files
from corpusmill.inspect.verify.exports import file_content
from corpusmill.inspect.verify.finding import DAMAGE, Finding, difference, finding_of
from corpusmill.inspect.verify.verification import Verification, render
from corpusmill.report.card import CROISSANT, README, card_texts, figures_in
from corpusmill.storage import Store, StoredFile, Wanted, fetch, is_local, open_store
from corpusmill.upload.stages.description import (
    DATASET,
    HELD,
    LATEST,
    SUMS,
    VERSION,
    VERSION_DIGITS,
    latest_version,
    reference_text,
    sums_text,
)
from corpusmill.upload.stages.upload import is_index_cache

NEXT = (
    "corpusmill repair restores one destination from another; corpusmill upload resends what differs if the work "
    "folder still has it; else build again: the same version has the same bytes"
)
PART = re.compile(
    r"\.(bin|idx|ds|ds\.index|ds\.metadata|ds\.loss|npy|csv\.gz|offsets)$"
)  # files of one output differ in it


Card = dict[str, bytes]
"""Name -> content of the file: README.md and croissant.json."""


@dataclass(frozen=True)
class Place:
    """The files of one version at one destination; `text` is its dataset.json, if there is one."""

    store: Store
    version: str
    files: dict[str, StoredFile]
    text: bytes | None
    card: Card


@dataclass(frozen=True)
class Described:
    """A dataset.json that matches its version: its content, size and sha256 of every file, and its entry for each."""

    version: str
    content: dict[str, Any]
    expected: Listing
    stated: dict[str, dict[str, Any]]


def verify_version(config: DatasetConfig, version: str, *, workers: int = 1) -> Verification:
    """Verify a version (12 digits, or "latest") at every destination of a configuration. Damage never raises."""
    findings: list[Finding] = []
    places: list[Place] = []
    for destination in config.destinations:
        folder = dataset_folder(absolute(destination.path), config.name)
        try:
            places.append(_open_destination(destination, folder, version))
        except DAMAGE as error:
            findings.append(finding_of(error, "a destination cannot be read", version_folder(folder, version)))
    return _verify(places, findings, len(config.destinations), workers)


def verify_copy(store: Store, *, workers: int = 1) -> Verification:
    """Verify the version in one folder, which may have any name, without a configuration. Damage never raises.

    In a folder that is not named as a version dataset.json is believed, and SHA256SUMS, which follows from it, is not.
    """
    try:
        return _verify([_open(store, named_version(store.folder))], [], 1, workers)
    except DAMAGE as error:
        return Verification(1, 0, 0, (finding_of(error, "a copy cannot be read", store.folder),))


def _verify(places: list[Place], findings: list[Finding], wanted: int, workers: int) -> Verification:
    """Verify all places, with the dataset.json of any; `findings`: of those of the `wanted` that cannot be opened."""
    versions = {place.version for place in places}
    if len(versions) > 1:
        where = ", ".join(place.store.folder for place in places)
        what = "latest is not the same version at every destination"
        findings.append(Finding(what, where, "one version", ", ".join(sorted(versions))))
    whole = [
        described_place for place in places if (described_place := describe(place.text, place.version, place.card))
    ]
    described = {
        described_place.version: described_place
        for described_place in sorted(whole, key=lambda described_place: README in described_place.expected)
    }
    files = read_bytes = 0
    with ThreadPoolExecutor(workers) as pool:
        for place in places:
            try:
                wrong, sizes = _check(place, described.get(place.version), pool)
            except DAMAGE as error:
                wrong, sizes = [finding_of(error, "a destination cannot be read", place.store.folder)], []
            findings += wrong
            files, read_bytes = files + len(sizes), read_bytes + sum(sizes)
    return Verification(wanted, files, read_bytes, tuple(findings))


def render_version(verification: Verification) -> str:
    """Render as text for a terminal; see `render`."""
    return render(verification, of="destination", next_step=NEXT)


def _open_destination(destination: DestinationConfig, folder: str, version: str) -> Place:
    if version == "latest":
        latest = latest_version(folder, endpoint_url=destination.endpoint_url)
        if latest is None:
            raise SourceError(
                "verify.not_delivered: nothing was delivered to a destination", where=f"{folder}/{LATEST}"
            )
        version = latest
    return _open(open_store(version_folder(folder, version), endpoint_url=destination.endpoint_url), version)


def _open(store: Store, version: str) -> Place:
    files = {file.name: file for file in store.list_files() if not is_index_cache(file.name)}
    text = read_file(store, DATASET)
    if not VERSION.fullmatch(version):
        version = hashlib.sha256(text or b"").hexdigest()[:VERSION_DIGITS]
    return Place(store, version, files, text, read_card(store))


def read_file(store: Store, name: str) -> bytes | None:
    """The content of a small file of a version, damaged or not; None if it does not exist."""
    if store.stat(name) is None:
        return None
    with store.open(name) as file:
        return file.read()


def read_card(store: Store) -> Card:
    """README.md and croissant.json of a version, as far as they exist."""
    return {name: text for name in (README, CROISSANT) if (text := read_file(store, name)) is not None}


def describe(text: bytes | None, version: str, card: Card) -> Described | None:
    """The description in a dataset.json; None unless `text` is that of `version`.

    The card is included if its two files are those that its figures and dataset.json determine.
    """
    if text is None or not hashlib.sha256(text).hexdigest().startswith(version):
        return None
    content = json.loads(text)
    texts = {DATASET: text}
    for reference in content.get("references", ()):
        texts[reference["name"]] = reference_text(content, reference, version).encode()
    stated = {file["name"]: file for file in content["files"]}
    expected = {name: (file["size_bytes"], file["sha256"]) for name, file in stated.items()}
    expected.update((name, _size_and_sha256(text)) for name, text in texts.items())
    sums = sums_text({name: sha256 for name, (_, sha256) in expected.items()})
    expected[SUMS] = _size_and_sha256(sums.encode())
    figures = figures_in(card.get(CROISSANT, b""))
    if figures and card == {name: text.encode() for name, text in card_texts(content, figures, version).items()}:
        expected.update((name, _size_and_sha256(text)) for name, text in card.items())
    return Described(version, content, expected, stated)


def _size_and_sha256(text: bytes) -> tuple[int, str]:
    return len(text), hashlib.sha256(text).hexdigest()


def _check(place: Place, described: Described | None, pool: ThreadPoolExecutor) -> tuple[list[Finding], list[int]]:
    """Findings, and the sizes of the files that were read completely."""
    folder = place.store.folder
    if not place.files:
        return compare_files(folder, {}, {}, {}), []
    if described is None:
        what = f"no destination has the {DATASET} of this version, so its other files cannot be checked"
        got = "nothing" if place.text is None else f"sha256 {hashlib.sha256(place.text).hexdigest()}"
        return [Finding(what, f"{folder}/{DATASET}", f"a sha256 that begins with {place.version}", got)], []
    files, findings = place.files, list[Finding]()
    if README not in described.expected and (card := files.keys() & {README, CROISSANT}):
        what = "the figures of a card do not match the dataset"
        findings.append(
            Finding(what, f"{folder}/{README}", "what croissant.json and dataset.json imply", "another card")
        )
        files = {name: file for name, file in files.items() if name not in card}
    outputs: dict[str, list[str]] = {}
    for name in described.expected:
        outputs.setdefault(PART.sub("", name), []).append(name)
    digests: dict[str, str | None] = {}
    for more, read in pool.map(partial(_check_output, place, described), outputs.values()):
        findings += more
        digests.update(read)
    findings = compare_files(folder, described.expected, files, digests) + findings
    findings += _check_totals(f"{folder}/{DATASET}", described)
    return findings, [place.files[name].size_bytes for name in digests]


def _check_output(place: Place, described: Described, names: list[str]) -> tuple[list[Finding], dict[str, str | None]]:
    """Findings on the content of one output, and the sha256 of each of its files."""
    digests: dict[str, str | None] = {}
    present = [name for name in names if name in place.files]
    with ExitStack() as stack:
        folder = Path(place.store.folder)
        if not is_local(place.store.folder):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            for file in (place.files[name] for name in present):
                if file.size_bytes == described.expected[file.name][0]:
                    if not is_local(place.store.folder):
                        wanted = Wanted(file.name, file.size_bytes, file.identity)
                        fetch(place.store, wanted, folder / file.name, folder / f"{file.name}.partial")
                    digests[file.name] = file_digest(folder / file.name)
            if any(digests.get(name) != described.expected[name][1] for name in names):
                return [], digests
            findings = [finding for name in names for finding in _check_content(place, described, folder, name)]
        except DAMAGE as error:
            findings = [
                finding_of(error, "a file at a destination cannot be read", f"{place.store.folder}/{present[0]}")
            ]
    return findings, digests


def _check_content(place: Place, described: Described, folder: Path, name: str) -> Iterator[Finding]:
    stated = {key: value for key, value in described.stated.get(name, {}).items() if key in HELD}
    if not stated:
        return
    kind = name.partition("/")[0]
    framing = FramingConfig.model_validate(described.content["formats"][kind].get("framing", {}))
    about = Readable(framing, np.dtype(described.content["vocabulary"]["dtype"]))
    where = f"{place.store.folder}/{name}"
    try:
        held = file_content(kind, folder / name, about)
    except DAMAGE as error:
        yield finding_of(error, f"a {kind} file cannot be read back", where)
        return
    if held != stated:
        yield Finding(f"a file does not hold what {DATASET} states", where, *difference(stated, held))


def _check_totals(where: str, described: Described) -> Iterator[Finding]:
    """Compare the totals of each format in dataset.json with those of its files."""
    for kind, stated in described.content["formats"].items():
        totals: Counter[str] = Counter()
        for name, file in described.stated.items():
            if name.startswith(f"{kind}/") and "slots" in file:
                totals.update({key: file[key] for key in ("records", "slots") if key in file}, outputs=1)
        wanted = {key: stated[key] for key in ("outputs", "records", "slots") if key in stated}
        if totals != Counter(wanted):
            what = f"{DATASET} states totals of a format that differ from those of its files"
            yield Finding(what, f"{where}, {kind}", *difference(wanted, dict(totals)))
