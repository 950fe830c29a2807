"""Opens a shard's source files at any location: whole or a part, on this machine or in a store, as lines or rows."""

from __future__ import annotations

import io
import json
import logging
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from corpusmill.config import absolute_here
from corpusmill.documents.kinds import read_head
from corpusmill.documents.lines import BYTE_ORDER_MARK, read_line_blocks
from corpusmill.engine.plan import SourceFile
from corpusmill.lazy import lazily
from corpusmill.storage import (
    Checksum,
    StoredFile,
    Traffic,
    Wanted,
    WindowedFile,
    digest_windows,
    fetch,
    is_local,
    open_location,
    open_once,
    open_verified,
    pieces_checksum,
    require_identity,
)
from corpusmill.storage.conversions import STANDARD_INPUT
from corpusmill.storage.listing import list_all

with lazily:
    from corpusmill.documents import compression, decompressing, frames, jsonl, parquet, reading, splitting


if TYPE_CHECKING:
    from corpusmill.documents.batch import DocumentBatch
    from corpusmill.documents.compression import Compression

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20


class TextFields(Protocol):
    """What names the keys of a document: a configuration's `source`, or settings."""

    @property
    def text_field(self) -> str: ...

    @property
    def id_field(self) -> str: ...


@dataclass(frozen=True)
class SourceCopy:
    """A planned source file that can be opened.

    `path` is its place on this machine, of which it is the `pieces` (None: all of it); without a path it is read from
    its store, and counted in `traffic`. `checksum` is that of all pieces, as downloaded or first read; `windows` are
    those of a file that is read from its store (storage/transfers.py).
    """

    file: SourceFile
    path: Path | None
    pieces: tuple[tuple[int, int], ...] | None
    checksum: Checksum | None
    endpoint_url: str | None
    traffic: Traffic
    windows: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def shown(self) -> str:
        """The name of the user's own file, for messages."""
        return self.file.shown

    @property
    def is_table(self) -> bool:
        """Whether it has rows instead of lines."""
        return compression.is_table(self.name)

    @property
    def row_groups(self) -> tuple[int, int] | None:
        """Which row groups of parquet it is, [first, last); None for all."""
        return self.file.part.row_groups if self.file.part else None


@contextmanager
def open_raw(copy: SourceCopy) -> Iterator[BinaryIO]:
    """The bytes of a file or part, for one sequential pass; SourceError if they differ from the planned ones."""
    if copy.path is not None:
        with _open_local(copy, copy.path) as stream:
            yield stream
        return
    with io.BufferedReader(_in_windows(copy), READ_BYTES) as stream:
        yield cast(BinaryIO, stream)


def wanted_of(file: SourceFile) -> Wanted:
    """The part of a store's file to read."""
    return Wanted(
        file.location.rpartition("/")[2], file.size_bytes, file.identity, file.part.pieces if file.part else None
    )


def streamed_copy(file: SourceFile, endpoint_url: str | None, traffic: Traffic | None = None) -> SourceCopy:
    """A planned file read in place, for a reader without a download step; it is read once now for its checksum."""
    traffic = traffic or Traffic()
    wanted = wanted_of(file)
    if is_local(file.location):
        path = Path(file.location)
        checksum = pieces_checksum(path, wanted.pieces or ((0, file.size_bytes),))
        return SourceCopy(file, path, wanted.pieces, checksum, endpoint_url, traffic)
    store, _ = open_location(file.location, endpoint_url=endpoint_url, traffic=traffic)
    checksum, windows = digest_windows(store, wanted)
    return SourceCopy(file, None, None, checksum, endpoint_url, traffic, tuple(windows))


def _in_windows(copy: SourceCopy) -> WindowedFile:
    """A file or part in its store, its pieces one after another; each window compared with the first read of it."""
    wanted = wanted_of(copy.file)
    store, name = open_location(copy.file.location, endpoint_url=copy.endpoint_url, traffic=copy.traffic)
    read = partial(store.read_range, name, identity=wanted.identity)
    return WindowedFile(read, wanted.ranges(), copy.windows, where=copy.file.location, traffic=copy.traffic)


def _open_local(copy: SourceCopy, path: Path) -> AbstractContextManager[BinaryIO]:
    assert copy.checksum is not None
    return open_verified(path, copy.checksum, name=copy.shown, pieces=copy.pieces)


@contextmanager
def open_lines(copy: SourceCopy) -> Iterator[BinaryIO]:
    """The decompressed lines of a file or part of JSON lines."""
    part = copy.file.part
    is_first = part is None or part.number == 0
    with open_raw(copy) as raw:
        if part is None or part.kind != "frames":
            with compression.open_decompressed(raw, copy.shown, from_start=is_first) as lines:
                yield lines
            return
        first_byte = part.pieces[0][0]
        own = cast(BinaryIO, frames.Beginning(raw, part.own_bytes) if part.own_bytes else io.BytesIO())
        with (
            compression.open_decompressed(own, copy.shown, from_start=is_first, first_byte=first_byte) as inside,
            compression.open_decompressed(
                raw, copy.shown, from_start=False, first_byte=first_byte + part.own_bytes
            ) as tail,
        ):
            pieces = splitting.part_lines(inside, tail, first=part.number == 0)
            yield cast(BinaryIO, decompressing.PieceStream(pieces))


def compression_of(copy: SourceCopy) -> Compression:
    """The compression of a file or part of JSON lines: that of its name, or of its first bytes."""
    stated = compression.stated_compression(copy.name)
    if stated is not None:
        return stated
    with open_raw(copy) as raw:
        return compression.compression_of(copy.name, read_head(raw))


@contextmanager
def open_table(copy: SourceCopy) -> Iterator[BinaryIO]:
    """A parquet file, seekable, of which a part has only its own row groups; of another table its bytes, forwards.

    SourceError if the file has changed.
    """
    file = copy.file
    if not compression.is_parquet(copy.name):
        with open_raw(copy) as raw:
            yield raw
        return
    if copy.path is None:
        windows = cast(BinaryIO, _in_windows(copy))
        yield cast(BinaryIO, parquet.Placed(windows, file.part.pieces)) if file.part else windows
        return
    with _open_local(copy, copy.path):
        pass  # row groups are read in any order, so the whole file is checked first
    with copy.path.open("rb") as file_stream:
        whole = file.part is None or copy.pieces is not None  # a local original has everything at its place
        yield file_stream if whole or not file.part else cast(BinaryIO, parquet.Placed(file_stream, file.part.pieces))


STANDARD = "-"
"""Standard input, among the files that a command reads."""


@dataclass(frozen=True)
class InputFile:
    """A file that a command without a plan reads once: local, in a bucket, on the Hub, or standard input."""

    name: str
    stored: StoredFile | None
    endpoint_url: str | None

    def documents(self, text_field: str, id_field: str = "id", fields: Sequence[str] = ()) -> Iterator[DocumentBatch]:
        """Its documents; line and row numbers count from 0."""
        with self._opened() as (stream, name):
            named: dict[str, Any] = {"text_field": text_field, "id_field": id_field, "fields": fields}
            yield from reading.read_documents(stream, name, source=self.name, **named)

    @contextmanager
    def lines(self, texts: Sequence[str], others: Sequence[str] = ()) -> Iterator[BinaryIO]:
        """Its decompressed lines; of a table, each row's columns of texts, and others, as JSON."""
        with (
            self._opened() as (stream, name),
            reading.open_lines(stream, name, texts=texts, others=others) as lines,
        ):
            yield lines

    @contextmanager
    def _opened(self) -> Iterator[tuple[BinaryIO, str]]:
        """(stream, name by which it is read)."""
        if self.stored is None:
            with reading.standard_input(sys.stdin.buffer, self.name) as (raw, named, _):
                yield raw, named if compression.is_table(named) else STANDARD_INPUT
            return
        store, name = open_location(self.stored.location, endpoint_url=self.endpoint_url)
        wanted = Wanted(name, self.stored.size_bytes, self.stored.identity)
        if reading.reader_of(self.name) != "parquet":
            with open_once(store, wanted) as raw:
                yield raw, self.name
        elif is_local(self.stored.location):
            with store.open(name) as raw:
                require_identity(self.stored.location, self.stored.identity, store.stat(name))
                yield raw, self.name
                require_identity(self.stored.location, self.stored.identity, store.stat(name))
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "table")
                fetch(store, wanted, path, Path(folder, "partial"))
                with path.open("rb") as raw:
                    yield raw, self.name


def each_file(inputs: list[str], endpoint_url: str | None = None) -> Iterator[InputFile]:
    """Every source file that the paths name, in natural order of name; `-` is standard input, and comes first.

    For commands without a plan. SourceError if a file has changed since it was listed. Files without a checksum in
    their store are read twice. A warning names files of other kinds.
    """
    if STANDARD in inputs:
        yield InputFile("stdin", None, None)
    paths = [absolute_here(path) for path in inputs if path != STANDARD]
    if not paths:
        return
    listing = list_all(paths, compression.SOURCE_ENDINGS, endpoint_url, named=tuple(compression.NAMED_ENDINGS))
    if listing.others:
        log.warning("%s", listing.others)
    for file in listing.files:
        yield InputFile(file.name, file, endpoint_url)


def read_source(copy: SourceCopy, source: TextFields, fields: Sequence[str] = ()) -> Iterator[DocumentBatch]:
    """The documents of a file or part, in order; line (or row) numbers count from 0 in it.

    `fields`: what is read of each document besides its text and id.
    """

    named: dict[str, Any] = {"text_field": source.text_field, "id_field": source.id_field, "fields": fields}
    if copy.is_table:
        with open_table(copy) as table:
            yield from reading.read_documents(table, copy.shown, source=copy.name, row_groups=copy.row_groups, **named)
    else:
        with open_lines(copy) as lines:
            yield from jsonl.read_documents(lines, source=copy.name, **named)


def read_numbered(copy: SourceCopy, wanted: set[int], source: TextFields) -> Iterator[tuple[int, bytes]]:
    """(0-based number, line) of some lines of a file or part; a parquet row becomes the JSON of its text and id."""
    if copy.is_table:
        for batch in read_source(copy, source):
            for number, text, identity in zip(batch.line_numbers.tolist(), batch.texts(), batch.each_id(), strict=True):
                if number in wanted:
                    yield number, json.dumps(_record(source, text, identity)).encode()
        return
    left = sorted(wanted, reverse=True)
    first = 0
    with open_lines(copy) as stream:
        for block in read_line_blocks(stream):
            lines = block.lines
            if left and left[-1] < first + lines:
                split = block.data.split(b"\n")
                while left and left[-1] < first + lines:
                    number = left.pop()
                    line = split[number - first]
                    yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line
            first += lines


@contextmanager
def open_as_lines(copy: SourceCopy, source: TextFields, fields: Sequence[str] = ()) -> Iterator[BinaryIO]:
    """The lines of a file or part; for a table, the JSON of each row's text, id and `fields`, null for a rejected
    row.
    """
    if copy.is_table:
        yield cast(BinaryIO, decompressing.PieceStream(_rows_as_lines(copy, source, fields)))
    else:
        with open_lines(copy) as lines:
            yield lines


def _rows_as_lines(copy: SourceCopy, source: TextFields, fields: Sequence[str]) -> Iterator[bytes]:
    for batch in read_source(copy, source, fields):
        rows = {rejection.line_number: b"null" for rejection in batch.rejections}
        found, numbers = batch.fields or [b"{}"] * batch.documents, batch.line_numbers.tolist()
        for number, text, identity, values in zip(numbers, batch.texts(), batch.each_id(), found, strict=True):
            record = {**json.loads(values), **_record(source, text, identity)}
            rows[number] = json.dumps(record, ensure_ascii=False).encode()
        if rows:
            yield b"".join(rows[number] + b"\n" for number in sorted(rows))


def _record(source: TextFields, text: bytes, identity: bytes) -> dict[str, str]:
    return {source.id_field: identity.decode(), source.text_field: text.decode()}


def libraries_of(names: Iterable[str]) -> list[str]:
    """The libraries that only some kinds of files need, of those with these names."""
    names = list(names)
    tables = any(compression.is_table(name) for name in names)
    lz4 = any(compression.stated_compression(name) is compression.Compression.LZ4 for name in names)
    return [*(["pyarrow"] if tables else []), *(["lz4"] if lz4 else [])]


def count_traffic(traffic: Traffic) -> dict[str, int]:
    """A step's traffic for its receipt; empty for a step that only read this machine's disks."""
    counts = traffic.as_counts()
    return counts if any(counts.values()) else {}
