"""Derives a text shard from another: some documents dropped, some with another text, all with one more field. Lines and
ids are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.documents.batch import SEPARATOR
from corpusmill.documents.text_shard import (
    FIELDS_END_FILE,
    FIELDS_FILE,
    ID_END_FILE,
    ID_FILE,
    LINE_HASH_FILE,
    LINE_NUMBER_FILE,
    OFFSET_FILE,
    REWRITTEN_FILE,
    TEXT_FILE,
    DocumentStrings,
    TextShard,
    write_sources,
)
from corpusmill.kernels.content_kernels import placed_sum, text_hashes

if TYPE_CHECKING:
    from corpusmill.kernels.content import ContentSum


class SubsetWriter:
    """Writes a text shard into `folder`, of the documents of `shard` in order.

    with SubsetWriter(folder, shard) as subset:
        subset.append(first, last, left_out={ordinal: reason, ...}, texts={ordinal: text, ...})
    """

    def __init__(self, folder: Path, shard: TextShard, added: tuple[str, NDArray[Any]] | None = None) -> None:
        """`added`: the name of a field that documents get, and its value for each document of `shard`."""
        self._folder, self._shard, self._added = folder, shard, added
        self._kept = np.ones(shard.documents, np.bool_)
        self._rewritten = np.zeros(shard.documents, np.bool_)
        self._rewritten[shard.rewritten] = True
        self._lengths = np.diff(shard.bounds(0, shard.documents))
        self._reasons: dict[int, Counter[str]] = {}
        self._starts = [source.first_document for source in shard.sources]

    def __enter__(self) -> SubsetWriter:
        self._text = (self._folder / TEXT_FILE).open("wb")
        return self

    def append(self, first: int, last: int, left_out: Mapping[int, str], texts: Mapping[int, bytes]) -> None:
        """Write documents [first, last) except those in `left_out`, {ordinal: reason}; `texts`: {ordinal: new text}."""
        removed = np.fromiter(left_out, np.int64, len(left_out))
        self._kept[removed] = False
        places = np.searchsorted(self._starts, removed, side="right") - 1
        for place, reason in zip(places.tolist(), left_out.values(), strict=True):
            self._reasons.setdefault(place, Counter())[reason] += 1
        for ordinal, text in texts.items():
            self._rewritten[ordinal], self._lengths[ordinal] = True, len(text) + len(SEPARATOR)
        for piece in self._pieces(first, last, texts):
            self._text.write(piece)

    def _pieces(self, first: int, last: int, texts: Mapping[int, bytes]) -> Iterator[bytes | memoryview]:
        """The bytes of documents [first, last): unchanged runs of documents, and new texts between them."""
        bounds = self._shard.bounds(first, last - first)
        verbatim = self._kept[first:last].copy()
        verbatim[[ordinal - first for ordinal in texts]] = False
        edges = np.flatnonzero(np.diff(verbatim, prepend=False, append=False)).tolist()
        stretches = dict(zip(edges[::2], edges[1::2], strict=True))
        for number in sorted({*stretches, *(ordinal - first for ordinal in texts)}):
            if number in stretches:
                yield self._shard.text[int(bounds[number]) : int(bounds[stretches[number]])].data
            else:
                yield SEPARATOR + texts[first + number]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._text.close()
        if kind is None:
            self._write_columns()

    def _write_columns(self) -> None:
        shard, kept, folder = self._shard, self._kept, self._folder
        lengths = self._lengths[kept]
        columns = {
            OFFSET_FILE: np.cumsum(lengths, dtype=np.uint64) - lengths,
            ID_END_FILE: self._write_strings(shard.document_ids(), ID_FILE),
            LINE_NUMBER_FILE: shard.line_numbers[kept],
            LINE_HASH_FILE: shard.line_hashes[kept],
        }
        fields = shard.document_fields()
        if self._added is not None:
            columns[FIELDS_END_FILE] = self._write_fields(fields, *self._added)
        elif fields is not None:
            columns[FIELDS_END_FILE] = self._write_strings(fields, FIELDS_FILE)
        if self._rewritten[kept].any():
            columns[REWRITTEN_FILE] = np.flatnonzero(self._rewritten[kept]).astype(np.uint64)
        for name, column in columns.items():
            (folder / name).write_bytes(column.astype("<u8").tobytes())
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        entries = []
        for place, source in enumerate(shard.sources):
            first, last = before[[source.first_document, source.first_document + source.documents]].tolist()
            rejected = dict(sorted({**source.rejected, **self._reasons.get(place, {})}.items()))
            entries.append(replace(source, first_document=first, documents=last - first, rejected=rejected))
        write_sources(folder, entries)

    def _write_fields(self, fields: DocumentStrings | None, name: str, values: NDArray[Any]) -> NDArray[np.uint64]:
        """Write the fields of the documents that are kept, with one more; returns where each ends."""
        kept, sizes = np.flatnonzero(self._kept), np.empty(int(self._kept.sum()), np.uint64)
        with (self._folder / FIELDS_FILE).open("wb") as file:
            for place, (ordinal, value) in enumerate(zip(kept.tolist(), values[kept].tolist(), strict=True)):
                own = orjson.loads(fields[ordinal]) if fields else {}
                sizes[place] = file.write(orjson.dumps({**own, name: value}))
        return np.cumsum(sizes, dtype=np.uint64)

    def _write_strings(self, strings: DocumentStrings, name: str) -> NDArray[np.uint64]:
        """Write the strings of the documents that are kept; returns where each ends."""
        bounds = np.concatenate([np.zeros(1, np.uint64), strings.ends])
        edges = np.flatnonzero(np.diff(self._kept, prepend=False, append=False))
        with (self._folder / name).open("wb") as file:
            for begin, end in zip(bounds[edges[::2]].tolist(), bounds[edges[1::2]].tolist(), strict=True):
                file.write(strings.data[begin:end].data)
        return np.cumsum(np.diff(bounds)[self._kept], dtype=np.uint64)


def content_at(shard: TextShard, documents: NDArray[np.int64], ordinals: NDArray[np.int64], unit: int) -> ContentSum:
    """The content sum of `documents` of a text shard, weighted by `ordinals` int64 (n,) instead of their own."""
    bounds = shard.bounds(0, shard.documents)
    hashes = text_hashes(shard.text, bounds[documents] + np.uint64(1), bounds[documents + 1])
    return placed_sum(hashes, unit, ordinals.astype(np.uint64))
