"""Reads a source file again and locates the documents that the text shard lists.

For writeback and other editors of source files: it returns the file's own bytes, and the span of each document's line.
Nothing is parsed; the hash of a line tells whether it changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.documents.byte_places import find_bytes
from corpusmill.documents.field_names import field_of
from corpusmill.documents.json_members import LONGEST_PARSED_BYTES, find_value
from corpusmill.documents.json_strings import QUOTE, decode
from corpusmill.documents.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LONGEST_LINE_BYTES, read_line_blocks
from corpusmill.documents.text_shard import IndexedSource
from corpusmill.errors import CorruptDataError
from corpusmill.kernels.content_kernels import text_hashes

NEWLINE = ord("\n")


@dataclass(frozen=True, slots=True, eq=False)
class LocatedBlock:
    """Whole lines of a source file, and the consecutive documents in them, from `first_document` (counted within the
    file).

    Positions are int64 indexes into `data`:
    `line_starts`, `line_ends`  (lines,): every line, its newline included
    `lines`                     (documents,): which of these lines are the documents
    `starts`, `ends`            (documents,): their JSON, without the newline or a byte order mark
    """

    data: bytes
    first_document: int
    line_starts: NDArray[np.int64]
    line_ends: NDArray[np.int64]
    lines: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def end_document(self) -> int:
        return self.first_document + len(self.lines)

    def line_hashes(self, documents: NDArray[np.bool_] | slice = slice(None)) -> NDArray[np.uint64]:
        """uint64 (documents,): the line hashes of all or some, as in DocumentBatch."""
        starts, ends = (places[documents].astype(np.uint64) for places in (self.starts, self.ends))
        hashes: NDArray[np.uint64] = text_hashes(np.frombuffer(self.data, np.uint8), starts, ends)[0]
        return hashes


def read_located_blocks(
    stream: BinaryIO,
    *,
    indexed: IndexedSource,
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
) -> Iterator[LocatedBlock]:
    """Yields all lines of a decompressed source file, in blocks.

    Raises CorruptDataError if a line that was indexed is missing.
    """
    line_numbers = indexed.line_numbers.astype(np.int64)
    first_line = first = 0
    for block in read_line_blocks(stream, block_bytes=block_bytes, longest_line_bytes=longest_line_bytes):
        line_ends = np.array([len(block.data)]) if block.cut else find_line_ends(block.data)
        end = int(np.searchsorted(line_numbers, first_line + len(line_ends)))
        yield locate(block.data, line_ends, line_numbers[first:end] - first_line, first)
        first_line += len(line_ends)
        first = end
    if first < len(line_numbers):
        raise changed_source(indexed, first, f"{indexed.place(first_line)[1]:,} lines up to its end")


def read_text(data: bytes, span: tuple[int, int], text_field: str) -> bytes | None:
    """The text of the JSON object `data[start:end]` as UTF-8; None if it has none."""
    start, end = span
    try:
        if end - start <= LONGEST_PARSED_BYTES:
            text: bytes = field_of(orjson.loads(memoryview(data)[start:end]), text_field).encode()
            return text
        place = find_value(data, text_field, start, end)
        return None if place is None or data[place[0]] != QUOTE else decode(data, *place)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def locate(data: bytes, line_ends: NDArray[np.int64], lines: NDArray[np.int64], first_document: int) -> LocatedBlock:
    """Consecutive documents, the first of which is `first_document`, in these `lines` (documents,) of `data`."""
    line_starts = np.concatenate(([0], line_ends[:-1]))
    starts, ends = line_starts[lines], line_ends[lines]
    ends -= np.frombuffer(data, np.uint8)[ends - 1] == NEWLINE
    if (
        len(lines) and lines[0] == 0 and data.startswith(BYTE_ORDER_MARK)
    ):  # only the file's first line can begin with one
        starts[0] += len(BYTE_ORDER_MARK)
    return LocatedBlock(data, first_document, line_starts, line_ends, lines, starts, ends)


def find_line_ends(data: bytes) -> NDArray[np.int64]:
    """int64 (lines,): where each line of `data` ends, its newline included; the last one need not have one."""
    ends = find_bytes(np.frombuffer(data, np.uint8), NEWLINE) + 1
    return np.append(ends, len(data)) if len(data) > (ends[-1] if len(ends) else 0) else ends


def changed_source(indexed: IndexedSource, document: int, got: str) -> CorruptDataError:
    """The error for a document, counted within the source, that changed since it was indexed."""
    return CorruptDataError(
        "source.changed_since_indexed: a source file differs from the one that was indexed",
        where=indexed.where(document),
        expected="the line that was indexed",
        got=got,
        next_step="reprocess this shard from download on, so that it is indexed again",
    )
