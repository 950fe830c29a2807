"""Arrow IPC files and streams as documents: a row takes the place of a line (pyarrow).

`datasets` saves its data as streams. A file is a stream between a mark and a footer, so both are read forwards, a
record batch at a time; only the text and the id column are decoded (columns.py).

Price: a record batch in memory, and BATCH_BYTES of text. Its compressed buffers state their size, which is compared
with LARGEST_RATIO before they are decompressed; so is the size of the values, of which many may share the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, cast

import pyarrow as pa

from corpusmill.documents.batch import DocumentBatch
from corpusmill.documents.columns import DECODED_ROWS, Rows, decoded_bytes, place_of, require_valid, text_place
from corpusmill.documents.decompressing import require_plausible
from corpusmill.documents.kinds import ARROW_FILE, ARROW_STREAM, HEAD_BYTES, Rejoined, read_head, require_kind
from corpusmill.errors import CorruptDataError
from corpusmill.kernels import advance

FILE_MARK, FILE_MARK_BYTES, END_MARK = b"ARROW1", 8, b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"
LARGEST_METADATA_BYTES = 64 << 20
READ_BYTES = 1 << 20
NO_FIELD, RECORD_BATCH, DICTIONARY_BATCH = 0, 3, 2
UNREADABLE = (pa.ArrowException, OSError, ValueError, struct.error, LookupError)


class ArrowTable:
    """An Arrow file or stream, opened. `schema`: its columns; `is_file`: whether it has a footer.

    SourceError if it is of another kind, CorruptDataError if it is damaged, is cut, or has other bytes behind its end.
    """

    def __init__(self, stream: BinaryIO, name: str, fields: Callable[[pa.Schema], list[int]] | None = None) -> None:
        """`fields`: chooses the numbers of the columns to decode."""
        self._name = name
        head = read_head(stream)
        require_kind(head, name, "an Arrow IPC file or stream, as its ending says", {ARROW_FILE, ARROW_STREAM})
        self.is_file = head.startswith(FILE_MARK)
        if self.is_file:
            head = head[FILE_MARK_BYTES:]
        self._messages = _Messages(cast("BinaryIO", Rejoined(head, stream)), name)
        try:
            first = self._messages.next()
            if first is None:
                raise ValueError("no schema")
            self._whole = pa.ipc.read_schema(pa.ipc.read_message(first))
            numbers = fields(self._whole) if fields else None
        except UNREADABLE as error:
            raise corrupt(name, error) from error
        self._first, self._options = first, pa.ipc.IpcReadOptions(included_fields=numbers)

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._whole

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The record batches, in order, whose offsets and indices are inside their buffers."""
        try:
            feed: Any = _Feed(self._first, self._messages)
            for batch in pa.ipc.open_stream(pa.PythonFile(feed, mode="r"), options=self._options):
                for column in batch.columns:
                    require_valid(column)
                self._messages.note_decoded(decoded_bytes(batch))
                yield batch
            self._messages.require_end(is_file=self.is_file)
        except CorruptDataError:
            raise
        except UNREADABLE as error:
            raise corrupt(self._name, error) from error


class _Messages:
    """Reads the encapsulated messages of a stream: their bytes, metadata and body, each checked before it is used."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._ended = False
        self._bytes = self._buffer_bytes = self._value_bytes = 0

    def note_decoded(self, value_bytes: int) -> None:
        """CorruptDataError if the values so far, of which these are the last, are too many bytes for those read."""
        self._value_bytes += value_bytes
        require_plausible(self._name, self._bytes, self._value_bytes)

    def next(self) -> bytes | None:
        """The next message; None at the mark of the end. ValueError if it is cut."""
        head = self._read(4)
        if head == CONTINUATION:
            size = self._read(4)
        else:  # as before Arrow 0.15
            head, size = b"", head
        metadata_bytes = int.from_bytes(size, "little", signed=True)
        if metadata_bytes == 0:
            self._ended = True
            return None
        if not 0 < metadata_bytes <= LARGEST_METADATA_BYTES:
            raise ValueError("no message of the Arrow IPC format")
        metadata = self._read(metadata_bytes)
        message = _Table.root(metadata)
        body_bytes = message.number(3, "<q")
        if body_bytes < 0:
            raise ValueError("a message of negative size")
        body = self._read(body_bytes)
        self._bytes += len(metadata) + body_bytes
        self._buffer_bytes += _buffer_bytes(message, body)
        require_plausible(self._name, self._bytes, self._buffer_bytes)
        return b"".join((head, size, metadata, body))

    def _read(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._stream.read(min(size, READ_BYTES))
            if not piece:
                raise ValueError("the file ends before its end is marked: it was cut, or not closed by its writer")
            advance.note_done(len(piece))
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def require_end(self, *, is_file: bool) -> None:
        """ValueError unless the stream has been read to its end, and has nothing but a footer behind it."""
        while not self._ended:
            if self.next() is not None:
                raise ValueError("messages that do not belong to the stream")
        rest = b""
        size = 0
        while piece := self._stream.read(READ_BYTES):
            size += len(piece)
            rest = (rest + piece)[-HEAD_BYTES:]
        if not is_file and size:
            raise ValueError(f"{size:,} other bytes behind the end of the stream")
        if is_file:
            footer = int.from_bytes(rest[-len(END_MARK) - 4 : -len(END_MARK)], "little", signed=True)
            if not rest.endswith(END_MARK) or footer + len(END_MARK) + 4 != size:
                raise ValueError("no footer, or other bytes behind it")


class _Feed:
    """The messages of a stream as a file that pyarrow reads forwards."""

    def __init__(self, first: bytes, messages: _Messages) -> None:
        self._data, self._messages, self.closed = first, messages, False
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        if self._at == len(self._data):
            self._data, self._at = self._messages.next() or CONTINUATION + bytes(4), 0
        piece = self._data[self._at :] if size < 0 else self._data[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        self.closed = True


class _Table:
    """A table of a flatbuffer: a message's metadata (https://flatbuffers.dev/internals/)."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._unpack("<i", at)
        self._size = self._unpack("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _unpack(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("an offset before the beginning")
        return int(struct.unpack_from(form, self._data, at)[0])

    def _place(self, field: int) -> int:
        entry = 4 + 2 * field
        return self._unpack("<H", self._fields + entry) if entry < self._size else NO_FIELD

    def number(self, field: int, form: str) -> int:
        """The value of a field of numbers, 0 if it is absent."""
        place = self._place(field)
        return self._unpack(form, self._at + place) if place else 0

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        at = self._at + place
        return _Table(self._data, at + self._unpack("<I", at)) if place else None

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit numbers."""
        place = self._place(field)
        if not place:
            return []
        at = self._at + place
        at += self._unpack("<I", at)
        count = self._unpack("<I", at)
        if count > len(self._data) // 16:
            raise ValueError("a vector larger than its message")
        return [struct.unpack_from("<qq", self._data, at + 4 + 16 * number) for number in range(count)]


def _buffer_bytes(message: _Table, body: bytes) -> int:
    """How many bytes a message's buffers are once they are decompressed, as they state."""
    kind = message.number(1, "<B")
    header = message.table(2)
    batch = header.table(1) if header and kind == DICTIONARY_BATCH else header
    if kind not in {RECORD_BATCH, DICTIONARY_BATCH} or batch is None or batch.table(3) is None:
        return len(body)
    total = 0
    for offset, size in batch.pairs(2):
        if size >= 8 and 0 <= offset <= len(body) - 8:
            total += max(size, int.from_bytes(body[offset : offset + 8], "little", signed=True))
    return total


def read_rows(
    stream: BinaryIO, *, source: str, text_field: str, id_field: str, name: str = "", fields: Sequence[str] = ()
) -> Iterator[DocumentBatch]:
    """The rows of an Arrow file or stream as documents; row numbers start at 0. `name`: of the file in messages."""
    name = name or source
    chosen: list[tuple[str, ...]] = []

    def numbers(schema: pa.Schema) -> list[int]:
        chosen.extend((text_place(schema, name, text_field), place_of(schema, id_field)))
        chosen.extend(place_of(schema, field) for field in fields)
        return sorted({schema.get_field_index(place[0]) for place in chosen if place})

    table = ArrowTable(stream, name, numbers)
    text, identity, *others = chosen
    rows = Rows(source, text, identity, dict(zip(fields, others, strict=True)))
    for batch in table.batches():
        try:
            for first in range(0, batch.num_rows, DECODED_ROWS):
                yield from rows.add(batch.slice(first, DECODED_ROWS), DECODED_ROWS)
        except UNREADABLE as error:
            raise corrupt(name, error) from error
    yield from rows.rest()


def corrupt(name: str, error: Exception) -> CorruptDataError:
    return CorruptDataError(
        "arrow.not_readable: an Arrow file cannot be read",
        where=name,
        expected="a schema, record batches, and the mark of the end (of a file, also its footer)",
        got=error,
        next_step="download it again, or save it from its origin again",
    )
