"""Reads the column chunks of a parquet file from its footer.

pyarrow has the same as `metadata.row_group(i).column(j)`, but a footer whose size statistics contradict the schema, for
example after a bit flip, ends the process there by a C++ exception. So that call is never made. The footer is a Thrift
struct in the compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md), its
fields those of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

TRUE, FALSE = 1, 2
MOST_LEVELS = 32  # of nesting; a footer has seven
CODECS = dict(enumerate(("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4")))
FILE_ROWS, ROW_GROUPS, COLUMNS, ROWS, COLUMN = 3, 4, 1, 3, 3  # fields of FileMetaData, RowGroup, ColumnChunk
PATH, CODEC, VALUES, DECOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE = 3, 4, 5, 6, 7, 9, 11  # of ColumnMetaData


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column's pages in a row group. `column` is its top-level name, `path` the dotted name with nested levels;
    `values` equals the rows unless it is nested; `start` the offset of its first page.
    """

    column: str
    path: str
    values: int
    codec: str
    compressed_bytes: int
    decompressed_bytes: int
    start: int


def column_chunks(stream: BinaryIO) -> list[list[ColumnChunk]]:
    """The column chunks of every row group. ValueError for a malformed footer."""
    size_bytes = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, size_bytes - 8))
    footer_bytes = int.from_bytes(stream.read(4), "little")
    if footer_bytes > size_bytes - 8:
        raise ValueError("a footer larger than its file")
    stream.seek(size_bytes - 8 - footer_bytes)
    try:
        footer = _Compact(stream.read(footer_bytes)).struct()
        if footer[FILE_ROWS] != sum(group[ROWS] for group in footer[ROW_GROUPS]):
            raise ValueError("row groups that do not have the file's rows")
        return [[_chunk(chunk[COLUMN]) for chunk in group[COLUMNS]] for group in footer[ROW_GROUPS]]
    except (LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("a footer of another form") from error


def _chunk(about: Any) -> ColumnChunk:
    path = [name.decode() for name in about[PATH]]
    first = about[DATA_PAGE], about.get(DICTIONARY_PAGE) or about[DATA_PAGE]
    sizes = about[VALUES], about[COMPRESSED], about[DECOMPRESSED]
    if min(*first, *sizes) < 0:
        raise ValueError("a negative size or offset")
    values, compressed, decompressed = sizes
    return ColumnChunk(path[0], ".".join(path), values, CODECS[about[CODEC]], compressed, decompressed, min(first))


class _Compact:
    """Reads values of Thrift's compact protocol: a struct is {number of a field: value}."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._levels = data, 0, 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == TRUE if kind in {TRUE, FALSE} else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise ValueError("too many levels")
        value = self._of_kind(kind)
        self._levels -= 1
        return value

    def _of_kind(self, kind: int) -> Any:
        value: Any
        match kind:
            case 1 | 2 | 3:  # in a list a truth value is a byte
                value = self._byte()
            case 4 | 5 | 6:
                value = self._signed()
            case 7:
                value = struct.unpack("<d", self._take(8))[0]
            case 8:
                value = self._take(self._unsigned())
            case 9 | 10:
                head = self._byte()
                size = head >> 4 if head >> 4 < 15 else self._unsigned()
                value = [self._value(head & 15) for _ in range(self._bounded(size))]
            case 11:
                size = self._bounded(self._unsigned())
                kinds = self._byte() if size else 0
                value = [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]
            case 12:
                value = self.struct()
            case _:
                raise ValueError(f"no type {kind}")
        return value

    def _bounded(self, size: int) -> int:
        """The size of a list, whose entries take a byte each at least."""
        if size > len(self._data) - self._at:
            raise ValueError("a list larger than its footer")
        return size

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, size: int) -> bytes:
        self._at += self._bounded(size)
        return self._data[self._at - size : self._at]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
