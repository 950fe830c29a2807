"""The compression that a source file's name states, and streams that decompress and compress.

    name.jsonl        as it is
    name.jsonl.gz     gzip, any number of members (RFC 1952), zero padding after the last one allowed
    name.jsonl.zst    Zstandard, any number of frames, skippable ones included (RFC 8878); also `.zstd`

`.json` in place of `.jsonl` also means JSON lines, but only in a path that names it: in a folder such a file may be
anything. A file of 0 bytes is an empty file, whatever its ending.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import PurePath
from typing import BinaryIO, cast

import zstandard

from corpusmill.documents.compressing import CompressingStream, Verbatim, gzip_member
from corpusmill.documents.decompressing import PieceStream, gzip_pieces, plain_pieces, zstd_pieces
from corpusmill.documents.kinds import GZIP, HEAD_BYTES, LINES, ZSTD, Rejoined, read_head, require_kind
from corpusmill.errors import SourceError

ZSTD_LEVEL = 3


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


ENDINGS = {
    ".jsonl": Compression.NONE,
    ".jsonl.gz": Compression.GZIP,
    ".jsonl.zst": Compression.ZSTD,
    ".jsonl.zstd": Compression.ZSTD,
}

NAMED_ENDINGS = {ending.replace(".jsonl", ".json"): compression for ending, compression in ENDINGS.items()}
"""Endings of JSON lines that a file or a pattern must name."""

SOURCE_ENDINGS = (*ENDINGS, ".parquet")
"""Endings of all source files; parquet.py reads what is not JSON lines."""

_PIECES = {
    Compression.NONE: plain_pieces,
    Compression.GZIP: gzip_pieces,
    Compression.ZSTD: zstd_pieces,
}
_KINDS = {Compression.GZIP: GZIP, Compression.ZSTD: ZSTD}


def compression_of(name: str) -> Compression:
    """The compression that `name` states by its ending. SourceError, with the valid endings, for others."""
    for ending, compression in (ENDINGS | NAMED_ENDINGS).items():
        if name.endswith(ending):
            return compression
    raise SourceError(
        "source.unknown_kind: a source file's name does not show how to read it",
        where=name,
        expected="a name that ends in one of " + ", ".join((*ENDINGS, *NAMED_ENDINGS)),
        next_step="rename the file, convert it to JSON lines, or narrow the pattern of the dataset's sources",
    )


def compression_of_lines(name: str) -> Compression:
    """The compression of a file of arbitrary lines: none unless its ending states one."""
    return ENDINGS.get(".jsonl" + PurePath(name).suffix, Compression.NONE)


def open_decompressed(
    raw: BinaryIO, name: str, compression: Compression | None = None, *, from_start: bool = True, first_byte: int = 0
) -> BinaryIO:
    """A readable stream of the decompressed lines of `raw`, read forwards only. Closing it leaves `raw` open.

    `name` is the file's name or path: its ending chooses the format unless `compression` does, and messages show it.
    `from_start`: `raw` begins where the file does, so its first bytes show its kind; otherwise it begins at
    `first_byte`, which messages count from. Raises SourceError at once for an ending that is not accepted; while
    reading, SourceError for a file of another kind (kinds.py), and CorruptDataError for a damaged or truncated stream,
    after the bytes before the damage. A flipped byte in a Zstandard file without checksums goes unnoticed.
    """
    compression = compression or compression_of(name)
    pieces = _pieces_of_kind(raw, name, compression) if from_start else _PIECES[compression](raw, name, first_byte)
    return cast("BinaryIO", PieceStream(pieces))


def _pieces_of_kind(raw: BinaryIO, name: str, compression: Compression) -> Iterator[bytes]:
    """The pieces; SourceError unless the file is of that compression, and what is compressed in it text."""
    if compression is not Compression.NONE:
        head = read_head(raw)
        require_compression(head, name, compression)
        raw = cast("BinaryIO", Rejoined(head, raw))
    start = b""
    for piece in _PIECES[compression](raw, name):
        if len(start) < HEAD_BYTES:
            start += piece[: HEAD_BYTES - len(start)]
            require_kind(start, name, "lines of text", LINES, within=_KINDS.get(compression, ""))
        yield piece


def require_compression(head: bytes, name: str, compression: Compression) -> None:
    """SourceError for a file whose first bytes are of another kind than the compression that its name states."""
    if kind := _KINDS.get(compression):
        require_kind(head, name, f"{kind}, as its ending says", {kind})
    else:
        require_kind(head, name, "lines of text", LINES)


def open_compressed(raw: BinaryIO, compression: Compression) -> BinaryIO:
    """A writable stream that compresses into `raw`. Closing it writes the end of the frame or member and leaves `raw`
    open; leaving a `with` block by an exception does not write that end, so that the partial output is visibly
    truncated.

    The same bytes written give the same compressed bytes, with the same versions of the two libraries: one thread, a
    fixed level, no time or file name in the header, and no effect of the sizes of writes.
    """
    if compression is Compression.GZIP:
        return cast("BinaryIO", CompressingStream(raw, gzip_member()))
    if compression is Compression.ZSTD:
        frame = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compressobj()
        return cast("BinaryIO", CompressingStream(raw, frame))
    return cast("BinaryIO", CompressingStream(raw, Verbatim()))
