"""How a source file's name and first bytes say that it is read, and streams that decompress and compress.

    name.jsonl, name.ndjson     JSON lines, as they are
    ... .gz                     gzip, any number of members (RFC 1952), zero padding after the last one allowed
    ... .zst, .zstd             Zstandard, any number of frames, skippable ones included (RFC 8878)
    ... .xz, .bz2, .lz4         any number of xz streams, bzip2 streams or lz4 frames
    name.parquet, name.arrow    tables (parquet.py, arrow.py)

The case of an ending does not count. Only a path that names them has these files read, since in a folder they
may be anything: `.json` in place of `.jsonl`; a compression alone, as `RC_2011-01.zst`; and no known ending, as
`wiki_00`, whose bytes show their compression. A file of 0 bytes is an empty file, whatever its ending.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any, BinaryIO, cast

import lz4.frame
import zstandard

from corpusmill.documents.compressing import CompressingStream, FramedCompressor, Verbatim, gzip_member
from corpusmill.documents.decompressing import (
    PieceStream,
    bzip2_pieces,
    gzip_pieces,
    lz4_pieces,
    plain_pieces,
    xz_pieces,
    zstd_pieces,
)
from corpusmill.documents.kinds import (
    BZIP2,
    GZIP,
    HEAD_BYTES,
    LINES,
    LZ4,
    XZ,
    ZSTD,
    Rejoined,
    kind_of,
    read_head,
    require_json,
    require_kind,
)
from corpusmill.storage.conversions import STANDARD_INPUT

ZSTD_LEVEL, XZ_PRESET = 3, 1


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"
    XZ = "xz"
    BZIP2 = "bzip2"
    LZ4 = "lz4"


SUFFIXES = {
    "": Compression.NONE,
    ".gz": Compression.GZIP,
    ".zst": Compression.ZSTD,
    ".zstd": Compression.ZSTD,
    ".xz": Compression.XZ,
    ".bz2": Compression.BZIP2,
    ".lz4": Compression.LZ4,
}

ENDINGS = {lines + suffix: compression for lines in (".jsonl", ".ndjson") for suffix, compression in SUFFIXES.items()}

NAMED_ENDINGS = {
    lines + suffix: compression
    for lines in (".json", "")
    for suffix, compression in SUFFIXES.items()
    if lines or suffix
}
"""Endings of JSON lines that a file or a pattern must name."""

PARQUET_ENDING, ARROW_ENDING = ".parquet", ".arrow"
TABLE_ENDINGS = (PARQUET_ENDING, ARROW_ENDING)

SOURCE_ENDINGS = (*ENDINGS, *TABLE_ENDINGS)
"""Endings of all source files."""

_KNOWN = ENDINGS | NAMED_ENDINGS

_PIECES: dict[Compression, Callable[..., Iterator[bytes]]] = {
    Compression.NONE: plain_pieces,
    Compression.GZIP: gzip_pieces,
    Compression.ZSTD: zstd_pieces,
    Compression.XZ: xz_pieces,
    Compression.BZIP2: bzip2_pieces,
    Compression.LZ4: lz4_pieces,
}
_KINDS = {
    Compression.GZIP: GZIP,
    Compression.ZSTD: ZSTD,
    Compression.XZ: XZ,
    Compression.BZIP2: BZIP2,
    Compression.LZ4: LZ4,
}
_COMPRESSIONS = {kind: compression for compression, kind in _KINDS.items()}


def ending_of(name: str) -> str:
    """The ending, in lower case, that says how to read a file: `.jsonl.zst` of `a.b.JSONL.zst`; "" of others."""
    lower = name.lower()
    return next((ending for ending in (*SOURCE_ENDINGS, *NAMED_ENDINGS) if lower.endswith(ending)), "")


def is_parquet(name: str) -> bool:
    """Whether a name says that a file is parquet."""
    return name.lower().endswith(PARQUET_ENDING)


def is_table(name: str) -> bool:
    """Whether a name says that a file has rows instead of lines."""
    return name.lower().endswith(TABLE_ENDINGS)


def stated_compression(name: str) -> Compression | None:
    """The compression that `name` states by its ending; None for a name without a known one."""
    return _KNOWN.get(ending_of(name))


def compression_of(name: str, head: bytes = b"") -> Compression:
    """The compression that `name` states, else that of the first bytes `head`."""
    stated = stated_compression(name)
    if stated is not None:
        return stated
    kind = kind_of(head)
    return _COMPRESSIONS.get(kind.name, Compression.NONE) if kind else Compression.NONE


def compression_of_lines(name: str, head: bytes = b"") -> Compression:
    """The compression of a file of arbitrary lines: what its ending states, of a name without one what the first bytes
    `head` show, else none.
    """
    suffix = PurePath(name).suffix.lower()
    return SUFFIXES.get(suffix, Compression.NONE) if suffix else compression_of(name, head)


def open_decompressed(
    raw: BinaryIO, name: str, compression: Compression | None = None, *, from_start: bool = True, first_byte: int = 0
) -> BinaryIO:
    """A readable stream of the decompressed lines of `raw`, read forwards only. Closing it leaves `raw` open.

    `name` is the file's name or path: its ending, or without a known one the first bytes, chooses the format unless
    `compression` does, and messages show it. `from_start`: `raw` begins where the file does, so its first bytes show
    its kind; otherwise it begins at `first_byte`, which messages count from. While reading, raises SourceError for a
    file of another kind (kinds.py), and CorruptDataError for a damaged or truncated stream, after the bytes before the
    damage. A flipped byte in a Zstandard or lz4 file without checksums can go unnoticed.
    """
    if from_start:
        return cast("BinaryIO", PieceStream(_pieces_of_kind(raw, name, compression)))
    if compression is None and stated_compression(name) is None:
        head = read_head(raw)
        compression, raw = compression_of(name, head), cast("BinaryIO", Rejoined(head, raw))
    return cast("BinaryIO", PieceStream(_PIECES[compression or compression_of(name)](raw, name, first_byte)))


def _pieces_of_kind(raw: BinaryIO, name: str, compression: Compression | None) -> Iterator[bytes]:
    """The pieces; SourceError unless the file is of that compression, and what is compressed in it text."""
    ending = ending_of(name)
    is_json = compression is None and ending not in ENDINGS
    if compression is None:
        compression = stated_compression(name)
    if compression is not Compression.NONE:
        head = read_head(raw)
        compression = compression or compression_of(name, head)
        require_compression(head, name, compression)
        raw = cast("BinaryIO", Rejoined(head, raw))
    start = b""
    for piece in _PIECES[compression](raw, name):
        if len(start) < HEAD_BYTES:
            start += piece[: HEAD_BYTES - len(start)]
            require_kind(start, name, "lines of text", LINES, within=_KINDS.get(compression, ""))
            if is_json:
                require_json(start, name, text=name != STANDARD_INPUT and not ending.startswith(".json"))
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

    The same bytes written give the same compressed bytes, with the same versions of the libraries: one thread, a
    fixed level, no time or file name in the header, and no effect of the sizes of writes.
    """
    return cast("BinaryIO", CompressingStream(raw, _compressor(compression)))


def _compressor(compression: Compression) -> Any:
    match compression:
        case Compression.GZIP:
            return gzip_member()
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compressobj()
        case Compression.XZ:
            return lzma.LZMACompressor(preset=XZ_PRESET)
        case Compression.BZIP2:
            return bz2.BZ2Compressor()
        case Compression.LZ4:
            frame = lz4.frame.LZ4FrameCompressor(content_checksum=True, auto_flush=True)
            return FramedCompressor(frame.begin(), frame)
    return Verbatim()
