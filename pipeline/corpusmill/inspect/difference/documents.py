"""A delivered version opened, its documents as rows of hashes (ROW), and the outcome of every document of two versions.

Rows come from the work folder, else from the delivered documents. `identity` is the hash of a document's id, or of its
text if it has none; `cuts` the hash of its duplicate ranges. Rows of two versions are matched in partitions by
identity: each round matches the remaining documents that agree in its columns, and removes as many as both versions
have.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.builds.graph import open_build
from corpusmill.config import DatasetConfig, absolute, dataset_folder, version_folder, work_of
from corpusmill.dedup.ranges import read_ranges
from corpusmill.dedup.stages.union import CUT_RANGES, cuts_stage
from corpusmill.dedup.stages.writeback import FOLDER
from corpusmill.documents.batch import DocumentBatch
from corpusmill.documents.reading import read_documents
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.build import Build
from corpusmill.engine.ledger import read_receipt
from corpusmill.engine.runs import plan_of_version
from corpusmill.engine.stage import StepMissingError
from corpusmill.errors import CorruptDataError, MissingSourceError, SourceError
from corpusmill.fingerprint import file_digest
from corpusmill.inspect.datasets.repair import version_store
from corpusmill.inspect.verify.delivered import read_file
from corpusmill.kernels.content_kernels import text_hashes
from corpusmill.sources.stages.index import final_stage
from corpusmill.storage import Store, Wanted, fetch, is_local, safe_relative_name
from corpusmill.tokens.token_shard import open_token_shard
from corpusmill.upload.stages.description import DATASET, VERSION, VERSION_DIGITS, described, version_of
from corpusmill.upload.stages.manifest import PAIRS_OF_ALL, UNIT


@dataclass(frozen=True)
class Version:
    """A version at one place. A field is None if no work folder is known, or if the work folder no longer has it.

    Of the plan that delivered it: `configuration`, what can change bytes; `made_by`, the versions of the program, its
    stages and libraries; `build`, if this program finds its steps.
    """

    store: Store
    version: str
    description: dict[str, Any]
    work: Path | None = None
    configuration: dict[str, Any] | None = None
    made_by: dict[str, Any] | None = None
    build: Build | None = None


def open_version(where: str, config: DatasetConfig | None, endpoint_url: str | None) -> Version:
    """A version in a folder or at an address, or by its name (12 digits, or latest) at a destination of `config`.

    SourceError if there is none, CorruptDataError if its dataset.json is damaged.
    """
    is_name = where == "latest" or VERSION.fullmatch(where) is not None
    if is_name and config is None and not Path(where).exists():
        raise MissingSourceError(
            "diff.no_configuration: a version's name needs the configuration that says where its versions are",
            where=where,
            next_step="add --config, or give the version's folder or address",
        )
    store = _named_store(where, config) if is_name and config else version_store(where, endpoint_url)
    text = read_file(store, DATASET) or b""
    version = hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    description = described(text, store.folder)
    if config is None or config.name != description["name"]:
        return Version(store, version, description)
    work = work_of(config)
    plan = plan_of_version(work, version)
    if plan is None:
        return Version(store, version, description, work)
    receipt, build = read_receipt(plan), open_build(plan)
    made_by = {**receipt.versions, **receipt.settings["code"]}
    is_whole = _made(build) == version
    return Version(store, version, description, work, receipt.settings["config"], made_by, build if is_whole else None)


def _made(build: Build) -> str:
    """The version that a build's steps delivered; "" if they are gone, or of another version of this program."""
    try:
        return version_of(build.receipt("manifest", UNIT))
    except StepMissingError:
        return ""


def _named_store(version: str, config: DatasetConfig) -> Store:
    """The version's store at the first destination that has it."""
    for destination in config.destinations:
        folder = dataset_folder(absolute(destination.path), config.name)
        with suppress(SourceError):
            return version_store(
                folder if version == "latest" else version_folder(folder, version), destination.endpoint_url
            )
    raise SourceError(
        "diff.no_such_version: no destination of the configuration has this version",
        where=", ".join(destination.path for destination in config.destinations) or "no destination",
        got=version,
        next_step="give the version's folder or address",
    )


HASHES, AMOUNTS = ("identity", "text", "cuts"), ("tokens", "duplicate_bytes")
ROW = np.dtype([*((name, "<u8") for name in HASHES), ("source", "<i4"), *((name, "<i8") for name in AMOUNTS)])
Rows = NDArray[Any]
Numbers = dict[str, int]
"""Source file names to numbers; a new file gets the next number."""


def rows_of_build(build: Build, sources: Numbers) -> Iterator[Rows]:
    """All documents that a build read, a shard at a time. DamagedStepError for a damaged output."""
    for unit in build.units("tokenize"):
        text = open_text_shard(build.folder(final_stage(build, unit), unit))
        bounds, ids = text.bounds(0, text.documents), text.document_ids()
        rows = _rows(text.text, bounds, ids.data, np.concatenate([np.zeros(1, np.uint64), ids.ends]))
        if unit in build.units("union"):
            ranges = read_ranges(build.folder(cuts_stage(build), unit) / CUT_RANGES)
            places = np.searchsorted(ranges[:, 0], bounds).astype(np.uint64) * np.uint64(ranges.itemsize * 2)
            documents = np.searchsorted(text.offsets, ranges[:, 0], side="right") - 1
            own = (ranges - text.offsets[documents][:, None]).astype("<u8")
            hashes = text_hashes(own.reshape(-1).view(np.uint8), places[:-1], places[1:])[0]
            rows["cuts"] = np.where(places[1:] > places[:-1], hashes, 0)
            np.add.at(rows["duplicate_bytes"], documents, (own[:, 1] - own[:, 0]).astype(np.int64))
        rows["tokens"] = np.diff(open_token_shard(build.folder("tokenize", unit)).ends, prepend=np.uint64(0))
        for source in text.sources:
            last = source.first_document + source.documents
            rows["source"][source.first_document : last] = sources.setdefault(source.path, len(sources))
        yield rows


def rows_of_documents(version: Version, fields: tuple[str, str], sources: Numbers) -> Iterator[Rows]:
    """All delivered documents, read from the `fields` text and id; cuts, tokens and duplicates are 0.

    SourceError if a file is missing, or has lines but no document; CorruptDataError if its sha256 differs.
    """
    for file in version.description["files"]:
        name = safe_relative_name(file["name"], where=version.store.folder)
        if not name.startswith(f"{FOLDER}/"):
            continue
        source = sources.setdefault(name.removeprefix(f"{FOLDER}/"), len(sources))
        lines = documents = 0
        with tempfile.TemporaryDirectory() as folder:
            for batch in _batches(_on_this_machine(version, name, file["sha256"], Path(folder)), name, *fields):
                rows = _rows(batch.text, batch.bounds.astype(np.uint64), batch.ids, batch.id_bounds.astype(np.uint64))
                rows["source"] = source
                lines, documents = lines + batch.lines, documents + len(rows)
                yield rows
        if lines > documents == 0:
            raise SourceError(
                "diff.no_text: a delivered file has lines but no documents",
                where=f"{version.store.folder}/{name}",
                expected=f"a text under {fields[0]!r}",
                got=f"{lines:,} lines without it",
                next_step="pass the dataset's configuration, which names the text field: --config CONFIG",
            )


@dataclass(frozen=True)
class LeftOut:
    """The near-duplicates that a version lists, and the first SHOWN_PAIRS lines of pairs.jsonl of documents that the
    other version does not list. They are in the dataset unless its action is remove.
    """

    documents: int
    alone: int
    shown: list[dict[str, Any]]


SHOWN_PAIRS = 20


def compare_left_out(old: Version, new: Version) -> tuple[LeftOut, LeftOut] | None:
    """Compare the near-duplicates that two versions list, a document by its file and id, by its line without an id;
    None if neither lists any. Price: both files are read twice, 8 bytes of memory for each of their lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [_pairs_file(version, Path(folder, side)) for version, side in ((old, "old"), (new, "new"))]
        if not any(paths):
            return None
        keys = [np.fromiter((key for key, _ in _pairs_in(path)), np.uint64) for path in paths]
        sides = []
        for path, own, other in zip(paths, keys, reversed(keys), strict=True):
            alone = np.isin(own, other, invert=True)
            first = set(np.flatnonzero(alone)[:SHOWN_PAIRS].tolist())
            shown = [row for place, (_, row) in enumerate(_pairs_in(path)) if place in first]
            sides.append(LeftOut(len(own), int(alone.sum()), shown))
    return sides[0], sides[1]


def _pairs_file(version: Version, folder: Path) -> Path | None:
    """The path of a version's pairs.jsonl on this machine, if it lists near-duplicates."""
    folder.mkdir()
    listed = {file["name"]: file["sha256"] for file in version.description["files"]}
    return _on_this_machine(version, PAIRS_OF_ALL, listed[PAIRS_OF_ALL], folder) if PAIRS_OF_ALL in listed else None


def _pairs_in(path: Path | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(a hash of the document, the line) of each line."""
    if path is None:
        return
    with path.open("rb") as rows:
        for row in map(orjson.loads, rows):
            key = orjson.dumps([row["file"], row["id"] or row["line"]])
            yield int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little"), row


def _rows(text: Any, bounds: NDArray[np.uint64], ids: Any, id_bounds: NDArray[np.uint64]) -> Rows:
    """ROW (n,) of documents text[bounds[i] + 1 : bounds[i + 1]] with the ids ids[id_bounds[i] : id_bounds[i + 1]]."""
    rows = np.zeros(len(bounds) - 1, ROW)
    rows["text"] = text_hashes(text, bounds[:-1] + np.uint64(1), bounds[1:])[0]
    hashes = text_hashes(ids, id_bounds[:-1], id_bounds[1:])[0]
    rows["identity"] = np.where(id_bounds[1:] > id_bounds[:-1], hashes, rows["text"])
    return rows


def _on_this_machine(version: Version, name: str, sha256: str, folder: Path) -> Path:
    """The path of a delivered file with the right sha256; fetched into `folder` if it is in a remote store."""
    store, stored = version.store, version.store.stat(name)
    where = f"{store.folder}/{name}"
    if stored is None:
        raise SourceError("diff.file_missing: a delivered file is missing", where=where, expected=f"sha256 {sha256}")
    path = Path(where) if is_local(where) else folder / "file"
    if not is_local(where):
        fetch(store, Wanted(name, stored.size_bytes, stored.identity), path, folder / "partial")
    if (got := file_digest(path)) != sha256:
        next_step = "corpusmill repair restores it from another copy"
        what = "diff.file_changed: a delivered file differs from the one that dataset.json lists"
        raise CorruptDataError(what, where=where, expected=f"sha256 {sha256}", got=got, next_step=next_step)
    return path


def _batches(path: Path, name: str, text_field: str, id_field: str) -> Iterator[DocumentBatch]:
    with path.open("rb") as raw:
        yield from read_documents(raw, name, text_field=text_field, id_field=id_field)


PARTITIONS = 256
ROUNDS = {
    "unchanged": ("identity", "source", "text", "cuts"),
    "cut": ("identity", "source", "text"),  # same text, different duplicates
    "changed": ("identity", "source"),
    "moved": ("identity", "text"),  # to another file
}
OUTCOMES = (*ROUNDS, "lost", "gained")
MEASURES = ("documents", *AMOUNTS)


def count_outcomes(old: Iterable[Rows], new: Iterable[Rows], sources: Numbers) -> NDArray[np.int64]:
    """int64 (sources, outcomes, measures, 2): the amounts by source file, outcome, measure, and side."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [_partition(batches, Path(folder, side)) for side, batches in (("old", old), ("new", new))]
        totals = np.zeros((len(sources), len(OUTCOMES), len(MEASURES), 2), np.int64)
        for number in range(PARTITIONS):
            rows = [np.fromfile(folder / str(number), ROW) for folder in folders]
            for outcome, columns in enumerate(ROUNDS.values()):
                for side, matched in enumerate(match(rows[0], rows[1], columns)):
                    _add(totals[:, outcome, :, side], rows[side][matched])
                    rows[side] = rows[side][~matched]
            for side, outcome in enumerate((OUTCOMES.index("lost"), OUTCOMES.index("gained"))):
                _add(totals[:, outcome, :, side], rows[side])
    return totals


def match(old: Rows, new: Rows, columns: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of each side have a partner with equal `columns`: of n and m equal ones the first min(n, m)."""
    values = [np.concatenate([old[column], new[column]]) for column in columns]
    is_new = np.arange(len(old) + len(new)) >= len(old)
    order = np.lexsort((is_new, *values))
    differs = np.zeros(len(order), bool)
    for value in values:
        differs[1:] |= value[order][1:] != value[order][:-1]
    group, is_new = np.cumsum(differs), is_new[order]
    counts = [np.bincount(group[is_new == side], minlength=len(order)) for side in (False, True)]
    starts = np.cumsum(counts[0] + counts[1]) - counts[0] - counts[1]
    rank = np.arange(len(order)) - starts[group] - np.where(is_new, counts[0][group], 0)
    matched = np.zeros(len(order), bool)
    matched[order] = rank < np.minimum(*counts)[group]
    return matched[: len(old)], matched[len(old) :]


def _partition(batches: Iterable[Rows], folder: Path) -> Path:
    """Write the rows to the files 0 to PARTITIONS - 1 in `folder` by their identity; returns `folder`."""
    folder.mkdir()
    with ExitStack() as stack:
        files = [stack.enter_context((folder / str(number)).open("wb")) for number in range(PARTITIONS)]
        for rows in batches:
            numbers = rows["identity"] % np.uint64(PARTITIONS)
            order = np.argsort(numbers, kind="stable")
            ends = np.searchsorted(numbers[order], np.arange(1, PARTITIONS))
            for file, part in zip(files, np.split(rows[order], ends), strict=True):
                file.write(part.tobytes())
    return folder


def _add(totals: NDArray[np.int64], rows: Rows) -> None:
    """Add the rows' amounts to `totals` int64 (sources, measures)."""
    for place, measure in enumerate(MEASURES):
        np.add.at(totals[:, place], rows["source"], 1 if measure == "documents" else rows[measure])
