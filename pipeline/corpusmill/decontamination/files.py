"""Benchmarks and documents in files, for the command that needs no build."""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import orjson

from corpusmill.config import absolute
from corpusmill.decontamination.items import Fields, Item, count_rows, read_items
from corpusmill.decontamination.search import Searcher
from corpusmill.decontamination.seeds import Entry
from corpusmill.documents.batch import DocumentBatch
from corpusmill.documents.compression import NAMED_ENDINGS, SOURCE_ENDINGS
from corpusmill.documents.jsonl import read_documents
from corpusmill.errors import BalanceError, ConfigError, full_device_explained
from corpusmill.sources.copies import each_file
from corpusmill.storage import StoredFile, Wanted, fetch, list_sources, open_location, open_once


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Where a benchmark is, and which of its columns to read."""

    name: str
    path: str
    fields: Fields
    endpoint_url: str | None = None
    sha256: str | None = None

    def files(self) -> list[StoredFile]:
        """Its files, in natural order of their names; SourceError if there is none."""
        return list_sources([absolute(self.path)], SOURCE_ENDINGS, self.endpoint_url, named=tuple(NAMED_ENDINGS))


def read_benchmark(benchmark: Benchmark, files: list[StoredFile]) -> tuple[list[Item], str]:
    """A benchmark's items, and the sha256 of its files concatenated.

    Errors as `read_items` raises them; ConfigError for a benchmark that is not the pinned one.
    """
    items: list[Item] = []
    digest = hashlib.sha256()
    for file in files:
        store, name = open_location(file.location, endpoint_url=benchmark.endpoint_url)
        with open_once(store, Wanted(name, file.size_bytes, file.identity)) as raw:
            data = raw.read()
        digest.update(data)
        rows = [*read_items(cast(BinaryIO, io.BytesIO(data)), file.name, benchmark.name, benchmark.fields)]
        _require_all(rows, count_rows(cast(BinaryIO, io.BytesIO(data)), file.name), file.name)
        items += rows
    if benchmark.sha256 not in {None, digest.hexdigest()}:
        raise ConfigError(
            "benchmark.changed: a benchmark differs from the one that the configuration pins",
            where=f"{benchmark.name}: {benchmark.path}",
            expected=f"sha256 {benchmark.sha256}",
            got=f"sha256 {digest.hexdigest()}",
            next_step="fetch the right one, or pin this one: corpusmill benchmarks CONFIG prints its sha256",
        )
    return items, digest.hexdigest()


def save_files(files: list[StoredFile], folder: Path, endpoint_url: str | None) -> None:
    """Fetch a benchmark's files, verified, into a folder that is a benchmark of the same sha256.

    StorageFullError for a full disk; errors as `fetch` raises them.
    """
    with full_device_explained(
        "benchmark.disk_full: no space left for a benchmark", where=folder, next_step="free space on that device"
    ):
        for file in files:
            store, name = open_location(file.location, endpoint_url=endpoint_url)
            path = folder / file.name
            fetch(store, Wanted(name, file.size_bytes, file.identity), path, path.with_name(path.name + ".partial"))


def hub_commit(files: list[StoredFile]) -> str:
    """The commit of the Hub dataset that the files were listed in; "" for files elsewhere."""
    named = re.match(r"hf://datasets/[^@]+@([0-9a-f]{40})/", files[0].location)
    return named[1] if named else ""


def _require_all(items: list[Item], rows: int, path: str) -> None:
    if len(items) != rows:
        raise BalanceError(
            "benchmark.rows_lost: not every row of a benchmark became an item",
            where=path,
            expected=f"{rows:,} items",
            got=f"{len(items):,}",
            next_step="report this with the file's first lines: the program is wrong",
        )


HIT_KEYS = ("benchmark", "item", "file", "line", "id", "begin", "end", "share")
LONGEST_HIT_BYTES = 1 << 20


def is_hits(file: BinaryIO) -> bool:
    """Whether `search_files` wrote a file: it is empty, or its first line is a hit."""
    first = file.readline(LONGEST_HIT_BYTES)
    try:
        return not first or tuple(orjson.loads(first)) == HIT_KEYS
    except (orjson.JSONDecodeError, TypeError):
        return False


SetAside = Callable[[DocumentBatch, int], None]
"""Takes the malformed lines of a batch, and its number of documents."""


@dataclass
class Searched:
    """What a search has read, and how often it found each item."""

    documents: int = 0
    text_bytes: int = 0
    documents_hit: int = 0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)


def search_files(
    inputs: list[str],
    hits: Path,
    searcher: Searcher,
    entries: Iterable[Entry],
    rejected: AbstractContextManager[SetAside],
    *,
    text_field: str = "text",
    id_field: str = "id",
    endpoint_url: str | None = None,
) -> Searched:
    """Search the documents of files of JSON lines and write `hits`: JSON lines, one for each item of each place.

    `file`, `line` (from 1) and `id` name the document, `begin` and `end` are bytes of its text as UTF-8. `rejected`
    takes malformed lines, and may raise an error at the end, before `hits` gets its name. SourceError for a missing
    input, StorageFullError for a full disk.
    """
    by_sequence = entries_by_sequence(entries)
    searched = Searched()
    partial = hits.with_name(hits.name + ".partial")
    next_step = "free space on that device, then run the command again"
    with full_device_explained(
        "decontamination.disk_full: no space left while writing hits", where=hits, next_step=next_step
    ):
        hits.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as sink, rejected as set_aside:
                for name, lines in each_file(inputs, endpoint_url):
                    with lines as stream:
                        for batch in read_documents(stream, source=name, text_field=text_field, id_field=id_field):
                            set_aside(batch, batch.documents)
                            for row in _search(batch, searcher, by_sequence, searched):
                                sink.write(orjson.dumps(row) + b"\n")
            partial.replace(hits)
        finally:
            partial.unlink(missing_ok=True)
    return searched


def entries_by_sequence(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """{sequence: the items that have it}."""
    by_sequence: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_sequence[entry.sequence].append(entry)
    return by_sequence


def _search(
    batch: DocumentBatch, searcher: Searcher, entries: dict[int, list[Entry]], searched: Searched
) -> Iterator[dict[str, Any]]:
    bounds = batch.bounds.astype(np.uint64)
    identities = batch.each_id()
    texts_hit = set()
    for hit in searcher.search(batch.text, bounds[:-1] + np.uint64(1), bounds[1:]):
        texts_hit.add(hit.text)
        for entry in entries[hit.sequence]:
            searched.hits[entry.benchmark, entry.item] += 1
            line, identity = int(batch.line_numbers[hit.text]) + 1, identities[hit.text].decode()
            values = (entry.benchmark, entry.item, batch.source, line, identity, hit.begin, hit.end, hit.share)
            yield dict(zip(HIT_KEYS, values, strict=True))
    searched.documents += batch.documents
    searched.text_bytes += len(batch.text) - batch.documents
    searched.documents_hit += len(texts_hit)
