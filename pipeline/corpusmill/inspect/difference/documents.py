"""The documents of a version as rows of hashes; see ROW.

`identity` is the hash of a document's id, or of its text if it has none; `cuts` the hash of its duplicate ranges.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.dedup.ranges import read_ranges
from corpusmill.dedup.stages.union import CUT_RANGES, cuts_stage
from corpusmill.dedup.stages.writeback import FOLDER
from corpusmill.documents.batch import DocumentBatch
from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.jsonl import read_documents
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.build import Build
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.fingerprint import file_digest
from corpusmill.inspect.difference.versions import Version
from corpusmill.kernels.content_kernels import text_hashes
from corpusmill.lazy import lazily
from corpusmill.sources.stages.index import final_stage
from corpusmill.storage import Wanted, fetch, is_local, safe_relative_name
from corpusmill.tokens.token_shard import open_token_shard

with lazily:
    from corpusmill.documents import parquet


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
        if name.endswith(".parquet"):
            yield from parquet.read_rows(raw, source=name, text_field=text_field, id_field=id_field)
        else:
            with open_decompressed(raw, name) as lines:
                yield from read_documents(lines, source=name, text_field=text_field, id_field=id_field)
