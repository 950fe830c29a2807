"""Splits a byte stream into whole lines, holding at most one block and one line.

A line ends only at ``\\n``: Unicode's other line ends may occur inside a JSON string, and a ``\\r`` before
the ``\\n`` is JSON whitespace. The last line of a file needs no newline. Memory: one block, plus the longest line
allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    import io

# Whoever reads or writes text between two blocks displaces the decompressor's window from the caches: twice the bytes
# make writeback 5 % faster, four times the bytes no faster than that.
BLOCK_BYTES = 4 << 20
LONGEST_LINE_BYTES = 1 << 30
CUT_LINE_BYTES = 1 << 20
"""How much of an overlong line is kept: enough to recognise it."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LineBlock:
    """One or more whole lines, newlines included, or the beginning of a single line that is too long (`cut`).

    `stream_bytes` is what the lines took in the stream: `len(data)`, except for a cut line.
    """

    data: bytes
    stream_bytes: int
    cut: bool = False

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return 1 if self.cut else self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def spans(self, *, first: bool) -> Iterator[tuple[int, int]]:
        """(start, end) in `data` of each line without its newline. A byte order mark at the beginning of the `first`
        block of a file is left out; a mark alone is an empty line.
        """
        mark_bytes = len(BYTE_ORDER_MARK) if first and self.data.startswith(BYTE_ORDER_MARK) else 0
        start = 0
        while start < len(self.data):
            newline = self.data.find(b"\n", start)
            end = newline if newline >= 0 else len(self.data)
            yield start + mark_bytes, end
            start, mark_bytes = end + 1, 0


def read_line_blocks(
    stream: BinaryIO, *, block_bytes: int = BLOCK_BYTES, longest_line_bytes: int = LONGEST_LINE_BYTES
) -> Iterator[LineBlock]:
    """Yields all lines of `stream` in order. A line of more than `longest_line_bytes` (its newline not counted) becomes
    a cut block of its own, whatever `block_bytes` is; its rest is read and discarded.
    """
    # A line that lies within one read is shorter than the read, so only lines carried from read to read can be too
    # long if no read is longer than the limit.
    read_bytes = min(block_bytes, longest_line_bytes)
    carried: list[bytes] = []
    carried_bytes = 0
    while pieces := _read_pieces(stream, read_bytes):
        rest = _split_off_rest(pieces)
        if not pieces:
            carried += rest
            carried_bytes += sum(map(len, rest))
            if carried_bytes > longest_line_bytes:
                carried = [_beginning(carried)]
            continue
        if carried_bytes + read_bytes > longest_line_bytes:  # the carried line may be too long
            lines = b"".join(pieces)
            first_end = lines.find(b"\n")
            pieces = [lines]
            if carried_bytes + first_end > longest_line_bytes:
                line_beginning = _beginning([*carried, lines[:first_end]])
                yield LineBlock(line_beginning, stream_bytes=carried_bytes + first_end + 1, cut=True)
                carried, pieces = [], [lines[first_end + 1 :]]
            del lines  # so that a long line is not held twice
        data = b"".join([*carried, *pieces])
        carried, carried_bytes = rest, sum(map(len, rest))
        del pieces
        if data:
            yield LineBlock(data, stream_bytes=len(data))
    if carried_bytes > longest_line_bytes:
        yield LineBlock(_beginning(carried), stream_bytes=carried_bytes, cut=True)
    elif carried_bytes:
        data = b"".join(carried)
        del carried
        yield LineBlock(data, stream_bytes=carried_bytes)


def _read_pieces(stream: BinaryIO, size: int) -> list[bytes | memoryview]:
    """The next `size` bytes, fewer only at the end, in the stream's own pieces, so that they are joined once, later."""
    read1 = cast("io.BufferedIOBase", stream).read1
    pieces: list[bytes | memoryview] = []
    while size > 0 and (piece := read1(size)):
        pieces.append(piece)
        size -= len(piece)
    return pieces


def _split_off_rest(pieces: list[bytes | memoryview]) -> list[bytes]:
    """Remove the bytes behind the last line end from `pieces` and return them; all bytes if there is no line end.

    The piece that is cut becomes a view, which is copied once, when the pieces are joined.
    """
    rest: list[bytes] = []
    while pieces:
        last = bytes(pieces.pop())
        if end := last.rfind(b"\n") + 1:
            pieces.append(memoryview(last)[:end])
            rest.append(last[end:])
            break
        rest.append(last)
    return rest[::-1]


def _beginning(pieces: list[bytes]) -> bytes:
    """The first `CUT_LINE_BYTES` of the pieces, without joining all of them."""
    taken: list[bytes] = []
    missing = CUT_LINE_BYTES
    for piece in pieces:
        taken.append(piece[:missing])
        missing -= len(taken[-1])
        if not missing:
            break
    return b"".join(taken)
