"""Reads a source file again and finds its documents where the text shard says they are.

For whoever edits source files: the bytes stay as they are, and each document comes with the span of its line. Every
text is measured on the way, so a file that changed since it was indexed is an error and not a wrong edit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.documents.json_members import LONGEST_PARSED_BYTES, find_value
from pipeline.documents.json_strings import QUOTE, decode
from pipeline.documents.lines import BLOCK_BYTES, BYTE_ORDER_MARK, LONGEST_LINE_BYTES, LineBlock, read_line_blocks
from pipeline.errors import CorruptDataError


@dataclass(frozen=True, slots=True, eq=False)
class LocatedBlock:
    """Whole lines of a source file; documents `first_document`, + 1, ... (counted within the file) stand in them.

    Positions are int64 indexes into `data`:
    `line_starts`, `line_ends`  (lines,): every line, its newline included
    `lines`                     (documents,): which of these lines are the documents
    `starts`, `ends`            (documents,): their JSON, a byte order mark not included

    `texts`: the documents' texts as UTF-8, decoded from these lines.
    """

    data: bytes
    first_document: int
    line_starts: NDArray[np.int64]
    line_ends: NDArray[np.int64]
    lines: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    texts: list[bytes]

    @property
    def end_document(self) -> int:
        return self.first_document + len(self.lines)


def read_located_blocks(
    stream: BinaryIO,
    *,
    source: str,
    line_numbers: NDArray[np.int64],
    text_bytes: NDArray[np.int64],
    text_field: str,
    block_bytes: int = BLOCK_BYTES,
    longest_line_bytes: int = LONGEST_LINE_BYTES,
) -> Iterator[LocatedBlock]:
    """Yields all lines of a decompressed source file, in blocks.

    `line_numbers` int64 (n,): the 0-based lines that are documents, ascending; `text_bytes` int64 (n,): their lengths.
    Raises CorruptDataError if a document's line is not there or its text has another length.
    """
    first_line = first = 0
    for block in read_line_blocks(stream, block_bytes=block_bytes, longest_line_bytes=longest_line_bytes):
        view = np.frombuffer(block.data, np.uint8)
        line_ends = _line_ends(block, view)
        line_starts = np.concatenate(([0], line_ends[:-1]))
        end = int(np.searchsorted(line_numbers, first_line + len(line_ends)))
        lines = line_numbers[first:end] - first_line
        starts, ends = line_starts[lines], line_ends[lines]
        if first_line == 0 and len(lines) and lines[0] == 0 and block.data.startswith(BYTE_ORDER_MARK):
            starts[0] += len(BYTE_ORDER_MARK)
        texts = []
        sizes = text_bytes[first:end].tolist()
        for document, start, stop, size in zip(range(first, end), starts.tolist(), ends.tolist(), sizes, strict=True):
            text = _text(block.data, start, stop, text_field)
            if text is None or len(text) != size:
                got = f"a text of {len(text):,} bytes" if text is not None else f"no text at {text_field!r}"
                raise changed_source(source, int(line_numbers[document]), size, got)
            texts.append(text)
        yield LocatedBlock(block.data, first, line_starts, line_ends, lines, starts, ends, texts)
        first_line += len(line_ends)
        first = end
    if first < len(line_numbers):
        raise changed_source(source, int(line_numbers[first]), int(text_bytes[first]), f"{first_line:,} lines in all")


def _text(data: bytes, start: int, end: int, text_field: str) -> bytes | None:
    """The text of the line `data[start:end]` as UTF-8; None if it has none."""
    try:
        if end - start <= LONGEST_PARSED_BYTES:
            text: bytes = orjson.loads(memoryview(data)[start:end])[text_field].encode()
            return text
        place = find_value(data, text_field, start, end)
        return None if place is None or data[place[0]] != QUOTE else decode(data, *place)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _line_ends(block: LineBlock, view: NDArray[np.uint8]) -> NDArray[np.int64]:
    if block.cut:
        return np.array([len(view)])
    line_ends = np.flatnonzero(view == ord("\n")) + 1
    if not len(line_ends) or line_ends[-1] != len(view):
        line_ends = np.append(line_ends, len(view))
    return line_ends


def changed_source(source: str, line_number: int, text_bytes: int, got: str) -> CorruptDataError:
    """The error for a document (0-based `line_number`) that is not the one of `text_bytes` bytes that was indexed."""
    return CorruptDataError(
        "a source file is not the one that was indexed",
        where=f"{source}, line {line_number + 1:,}",
        expected=f"a text of {text_bytes:,} bytes",
        got=got,
        next_step="reprocess this shard from its download, so that it is indexed again",
    )
