"""The text shard on disk: written in one pass, read through memory maps. The room's docstring has its byte diagram."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.documents.batch import SEPARATOR, DocumentBatch, RejectionReason
from corpusmill.errors import CorruptDataError
from corpusmill.kernels.mapping import mapped

TEXT_FILE, OFFSET_FILE, SOURCES_FILE = "tokenized", "offset", "sources.json"
LINE_NUMBER_FILE, LINE_HASH_FILE = "linenum", "linehash"
ID_FILE, ID_END_FILE = "ids", "id_ends"
FIELDS_FILE, FIELDS_END_FILE = "fields", "fields_ends"  # only if fields are asked for
REWRITTEN_FILE = "rewritten"  # only if a step changed a text
TEXT_SHARD_FILES = (TEXT_FILE, OFFSET_FILE, LINE_NUMBER_FILE, LINE_HASH_FILE, ID_FILE, ID_END_FILE, SOURCES_FILE)

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """What the shard holds of one source file. `rejected` counts its rejected lines by reason, reasons sorted."""

    path: str
    first_document: int
    documents: int
    lines: int
    line_bytes: int
    rejected: dict[str, int] = field(default_factory=dict)


class TextShardWriter:
    """Writes a text shard into `folder` (made if missing), source file by source file.

    with TextShardWriter(folder) as shard:
        shard.start_source("web/a.jsonl.gz")
        for batch in read_documents(...):
            shard.append(batch)

    `sources.json` is written last, and only if the block ends without an exception: a folder without it is not a text
    shard.
    """

    def __init__(self, folder: Path, *, fields: bool = False) -> None:
        """`fields`: whether the batches have fields that are asked for."""
        self.documents = 0
        self.text_bytes = 0
        self.sources: list[SourceEntry] = []
        self._folder = folder
        self._source: str | None = None
        self._rejected: Counter[RejectionReason] = Counter()
        self._line_bytes = 0
        self._lines = 0
        self._first_document = 0
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SOURCES_FILE).unlink(missing_ok=True)
        self._text = _create(folder / TEXT_FILE)
        self._offsets = _create(folder / OFFSET_FILE)
        self._line_numbers = _create(folder / LINE_NUMBER_FILE)
        self._line_hashes = _create(folder / LINE_HASH_FILE)
        self._ids = _create(folder / ID_FILE)
        self._id_ends = _create(folder / ID_END_FILE)
        self._id_bytes = self._fields_bytes = 0
        self._fields = [_create(folder / name) for name in (FIELDS_FILE, FIELDS_END_FILE)] if fields else []

    def start_source(self, path: str) -> None:
        """The batches that follow come from this source file."""
        self._finish_source()
        self._source = path
        self._first_document = self.documents

    def append(self, batch: DocumentBatch) -> None:
        """Writes a batch of the source file that was started last.

        Raises ValueError for a batch of another source file.
        """
        if batch.source != self._source:
            raise ValueError(f"a batch of {batch.source!r} was appended to source {self._source!r}")
        self._text.write(batch.text.data)
        self._offsets.write((batch.bounds[:-1] + (self.text_bytes + self.documents)).astype("<u8").tobytes())
        self._line_numbers.write(batch.line_numbers.astype("<u8").tobytes())
        self._line_hashes.write(batch.line_hashes.astype("<u8").tobytes())
        self._ids.write(batch.ids.data)
        self._id_ends.write((batch.id_bounds[1:] + self._id_bytes).astype("<u8").tobytes())
        self._id_bytes += len(batch.ids)
        if self._fields:
            values, ends = self._fields
            sizes = np.fromiter(map(len, batch.fields), np.uint64, batch.documents)
            values.write(b"".join(batch.fields))
            ends.write((np.cumsum(sizes, dtype=np.uint64) + np.uint64(self._fields_bytes)).astype("<u8").tobytes())
            self._fields_bytes += int(sizes.sum())
        self.documents += batch.documents
        self.text_bytes += len(batch.text) - batch.documents
        self._lines += batch.lines
        self._line_bytes += batch.line_bytes
        self._rejected.update(rejection.reason for rejection in batch.rejections)

    def _finish_source(self) -> None:
        if self._source is None:
            return
        rejected = {reason.value: self._rejected[reason] for reason in sorted(self._rejected)}
        documents = self.documents - self._first_document
        self.sources.append(
            SourceEntry(self._source, self._first_document, documents, self._lines, self._line_bytes, rejected)
        )
        self._source, self._lines, self._line_bytes = None, 0, 0
        self._rejected.clear()

    def __enter__(self) -> TextShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        columns = (self._text, self._offsets, self._line_numbers, self._line_hashes, self._ids, self._id_ends)
        for file in (*columns, *self._fields):
            file.close()
        if kind is None:
            self._finish_source()
            write_sources(self._folder, self.sources)


def write_sources(folder: Path, entries: list[SourceEntry]) -> None:
    """Write a shard's `sources.json`, which makes the folder a text shard."""
    data = orjson.dumps(entries, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (folder / SOURCES_FILE).write_bytes(data)


def _create(path: Path) -> BinaryIO:
    return path.open("wb")


@dataclass(frozen=True, slots=True, eq=False)
class DocumentStrings:
    """A string of each of a text shard's documents, such as its id. The arrays are memory-mapped and read-only.

    `data`  uint8 (bytes,): the strings, UTF-8, back to back
    `ends`  uint64 (documents,): one past each document's string in `data`
    """

    data: NDArray[np.uint8]
    ends: NDArray[np.uint64]

    def __getitem__(self, ordinal: int) -> str:
        """The string of one document; an id is empty if it has none."""
        start = int(self.ends[ordinal - 1]) if ordinal else 0
        return self.data[start : int(self.ends[ordinal])].tobytes().decode()


@dataclass(frozen=True, slots=True, eq=False)
class IndexedSource:
    """What a text shard holds of one source file, for readers of that file. Arrays as in TextShard.

    `first_document`  the ordinal in the shard of its first document
    `text`            the whole shard's
    `bounds`          uint64 (documents + 1,): its documents' separators in `text`, and where the last document ends
    `line_numbers`, `line_hashes`  uint64 (documents,)
    `rewritten`       int64 (n,): the documents, counted within the file, whose text is not their line's, ascending
    `path`            for messages: the user's own file, of which this may be a part
    `place_of`        (file, 0-based line) in the user's own file of a line of the part; None: it is no part
    """

    path: str
    first_document: int
    text: NDArray[np.uint8]
    bounds: NDArray[np.uint64]
    line_numbers: NDArray[np.uint64]
    line_hashes: NDArray[np.uint64]
    rewritten: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    place_of: Callable[[int], tuple[str, int]] | None = None

    def place(self, line: int) -> tuple[str, int]:
        """(file, 0-based line in it) of a line of this source, as the user knows them."""
        return (self.path, line) if self.place_of is None else self.place_of(line)

    def where(self, document: int) -> str:
        """The place of a document, counted within the source, for messages."""
        path, line = self.place(int(self.line_numbers[document]))
        return f"{path}, line {line + 1:,}"

    @property
    def documents(self) -> int:
        return len(self.line_numbers)

    def text_of(self, document: int) -> bytes:
        """The text of a document, counted within the file."""
        return self.text[int(self.bounds[document]) + 1 : int(self.bounds[document + 1])].tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class TextShard:
    """An open text shard. The arrays are memory-mapped and read-only.

    `text`          uint8 (documents + text_bytes,): the file `tokenized`, separators included
    `offsets`       uint64 (documents,): position of each document's separator in `text`
    `line_numbers`  uint64 (documents,): each document's 0-based line in its source file
    `line_hashes`   uint64 (documents,): the hash of that line (see DocumentBatch)
    `rewritten`     int64 (n,): the documents whose text is not their line's, ascending
    """

    folder: Path
    text: NDArray[np.uint8]
    offsets: NDArray[np.uint64]
    line_numbers: NDArray[np.uint64]
    line_hashes: NDArray[np.uint64]
    sources: tuple[SourceEntry, ...]
    rewritten: NDArray[np.int64]

    @property
    def documents(self) -> int:
        return len(self.offsets)

    @property
    def text_bytes(self) -> int:
        """Bytes of all documents, separators not counted."""
        return len(self.text) - len(self.offsets)

    def document_bytes(self, ordinal: int) -> bytes:
        """The UTF-8 bytes of one document. Raises IndexError for an ordinal out of range."""
        self._check(ordinal)
        end = int(self.offsets[ordinal + 1]) if ordinal + 1 < self.documents else len(self.text)
        return self.text[int(self.offsets[ordinal]) + 1 : end].tobytes()

    def bounds(self, first_document: int, documents: int) -> NDArray[np.uint64]:
        """uint64 (documents + 1,): the separators of consecutive documents, and where the last one ends.

        Document i of them is `text[bounds[i] + 1 : bounds[i + 1]]`.
        """
        bounds = np.full(documents + 1, len(self.text), np.uint64)
        ends = self.offsets[first_document : first_document + documents + 1]
        bounds[: len(ends)] = ends
        return bounds

    def indexed(self, source: SourceEntry) -> IndexedSource:
        """What the shard holds of one of its sources."""
        documents = slice(source.first_document, source.first_document + source.documents)
        low, high = np.searchsorted(self.rewritten, [documents.start, documents.stop])
        return IndexedSource(
            source.path,
            source.first_document,
            self.text,
            self.bounds(source.first_document, source.documents),
            self.line_numbers[documents],
            self.line_hashes[documents],
            self.rewritten[low:high] - documents.start,
        )

    def source_of(self, ordinal: int) -> tuple[str, int]:
        """(path of the source file, 0-based line in it) of one document. Raises IndexError."""
        self._check(ordinal)
        # Source files without documents share `first_document` with the next one: the last of equals has the document.
        place = bisect_right(self.sources, ordinal, key=lambda source: source.first_document) - 1
        return self.sources[place].path, int(self.line_numbers[ordinal])

    def document_ids(self) -> DocumentStrings:
        """The documents' ids, mapped anew: few readers need them, and every map holds a file descriptor."""
        return DocumentStrings(mapped(self.folder / ID_FILE, np.uint8), mapped(self.folder / ID_END_FILE, "<u8"))

    def document_fields(self) -> DocumentStrings | None:
        """The JSON object of each document's fields (see DocumentBatch), mapped anew; None if none were asked for.

        Raises CorruptDataError if they are not as many as the documents.
        """
        if not (self.folder / FIELDS_END_FILE).exists():
            return None
        fields = DocumentStrings(
            mapped(self.folder / FIELDS_FILE, np.uint8), mapped(self.folder / FIELDS_END_FILE, "<u8")
        )
        last = int(fields.ends[-1]) if len(fields.ends) else 0
        if (len(fields.ends), last) != (self.documents, len(fields.data)):
            expected = f"fields of {self.documents:,} documents, {last:,} bytes"
            raise _corrupt(self.folder, expected, f"of {len(fields.ends):,}, {len(fields.data):,} bytes")
        return fields

    def _check(self, ordinal: int) -> None:
        if not 0 <= ordinal < self.documents:
            raise IndexError(f"document {ordinal} of a text shard of {self.documents} documents ({self.folder})")


def open_text_shard(folder: Path) -> TextShard:
    """Opens a text shard and checks everything that does not need reading all of it.

    Raises CorruptDataError if a file is missing or the sizes and counts contradict each other.
    """
    try:
        entries = orjson.loads((folder / SOURCES_FILE).read_bytes())
        shard = TextShard(
            folder,
            text=mapped(folder / TEXT_FILE, np.uint8),
            offsets=mapped(folder / OFFSET_FILE, "<u8"),
            line_numbers=mapped(folder / LINE_NUMBER_FILE, "<u8"),
            line_hashes=mapped(folder / LINE_HASH_FILE, "<u8"),
            sources=tuple(SourceEntry(**entry) for entry in entries),
            rewritten=_rewritten(folder / REWRITTEN_FILE),
        )
        ids = shard.document_ids()
    except (FileNotFoundError, ValueError, TypeError) as error:
        raise _corrupt(folder, f"the files {', '.join(TEXT_SHARD_FILES)} of whole entries", error) from error
    _check_counts(shard, ids)
    return shard


def _rewritten(path: Path) -> NDArray[np.int64]:
    return np.fromfile(path, "<u8").astype(np.int64) if path.exists() else np.empty(0, np.int64)


def _check_counts(shard: TextShard, ids: DocumentStrings) -> None:
    documents = 0
    for source in shard.sources:
        if source.first_document != documents or source.lines != source.documents + sum(source.rejected.values()):
            raise _corrupt(shard.folder, f"{source.path} to start at document {documents} and to balance", source)
        documents += source.documents
    counts = (len(shard.offsets), len(shard.line_numbers), len(shard.line_hashes), len(ids.ends), documents)
    if len(set(counts)) > 1:
        raise _corrupt(
            shard.folder, "as many offsets as line numbers as hashes as ends of ids as documents of all sources", counts
        )
    if len(shard.rewritten) and not 0 <= shard.rewritten[0] <= shard.rewritten[-1] < documents:
        raise _corrupt(shard.folder, f"rewritten documents among {documents:,}", f"{shard.rewritten[-1]:,}")
    id_bytes = int(ids.ends[-1]) if documents else 0
    if id_bytes != len(ids.data):
        raise _corrupt(shard.folder, f"{id_bytes:,} bytes of ids, as the last end says", f"{len(ids.data):,} bytes")
    if not documents:
        if len(shard.text):
            raise _corrupt(shard.folder, "no text where there are no documents", f"{len(shard.text):,} bytes")
        return
    first, last = int(shard.offsets[0]), int(shard.offsets[-1])
    if first or last >= len(shard.text) or shard.text[first] != SEPARATOR[0] or shard.text[last] != SEPARATOR[0]:
        got = f"first offset {first:,}, last offset {last:,}, {len(shard.text):,} bytes"
        raise _corrupt(shard.folder, "a separator at byte 0 and at the last offset", got)


def _corrupt(folder: Path, expected: str, got: object) -> CorruptDataError:
    return CorruptDataError(
        "text_shard.incomplete: a text shard is incomplete",
        where=folder,
        expected=expected,
        got=got,
        next_step="delete the receipt of the step that wrote it and rerun the step",
    )
