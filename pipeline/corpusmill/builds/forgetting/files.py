"""The content of files and streams: raw, decompressed, from archives and from tables, as their names say.

Bytes are no evidence: one list of digests in 65,536 begins as gzip does. A part of a table, as download keeps it, is no
table; its bytes are searched as they are.

Memory: blocks of 8 MiB, and the largest member of an archive. Disk: a copy of a streamed table while it is read, since
its index is at its end.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from typing import IO, Any, BinaryIO, cast

import lz4.frame
import numpy as np
import orjson
import zstandard

from corpusmill.builds.forgetting.finding import Finder
from corpusmill.documents.compression import Compression, compression_of, stated_compression
from corpusmill.documents.kinds import HEAD_BYTES
from corpusmill.errors import CorruptDataError
from corpusmill.lazy import lazily

with lazily:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from corpusmill.documents import arrow, columns

BLOCK_BYTES = 8 << 20
ROWS = 1 << 10  # of a table, searched at once
PARQUET = b"PAR1"
# ValueError is pyarrow's; some errors of gzip and bzip2 are OSErrors.
FORMAT_ERRORS = (EOFError, ValueError, RuntimeError, lzma.LZMAError, tarfile.TarError, zlib.error, zstandard.ZstdError)


class UnsearchableError(CorruptDataError):
    """A file is damaged: what is in it cannot be searched."""


def strings_in(file: BufferedReader, finder: Finder, *, where: object) -> set[bytes]:
    """The strings of a finder that a file contains; it is read from its beginning, and may be a pipe.

    `where`: its path, which ends in its name. OSError, and UnsearchableError for a file that is damaged in its own
    format.
    """
    try:
        return _strings_in(file, finder, str(where))
    except (CorruptDataError, *FORMAT_ERRORS) as error:
        raise UnsearchableError(
            "forget.file_not_searchable: a damaged file cannot be searched", where=where, got=type(error).__name__
        ) from None


def _strings_in(file: BufferedReader, finder: Finder, name: str) -> set[bytes]:
    strings: set[bytes] = set()
    rest = b""
    for block in _blocks(file, name):
        data = rest + block
        strings |= finder.find(np.frombuffer(data, np.uint8))
        rest = data[-(finder.longest - 1) :]
    return strings


def _blocks(file: BufferedReader, name: str) -> Iterator[bytes]:
    name = name.lower()
    if name.endswith(".arrow") and file.peek(1):
        yield from _arrow_rows(file, name)
    elif name.endswith(".parquet") and file.peek(len(PARQUET)).startswith(PARQUET):
        yield from _rows(file)
    elif name.endswith(".tar"):
        with tarfile.open(fileobj=file, mode="r:" if file.seekable() else "r|") as archive:
            for member in archive:
                if content := archive.extractfile(member):
                    yield from _blocks(io.BufferedReader(io.BytesIO(content.read())), member.name)
    else:
        stream = _opened(file, name) if file.peek(1) else file
        while block := stream.read(BLOCK_BYTES):
            yield block


def _opened(file: BufferedReader, name: str) -> BinaryIO:
    # Of files without an ending only delivered documents may be compressed: other bytes begin as gzip's by chance.
    stated = stated_compression(name)
    if stated is None and "documents" in name.split("/"):
        stated = compression_of(name, file.peek(HEAD_BYTES)[:HEAD_BYTES])
    opened: Any = file
    match stated:
        case Compression.GZIP:
            opened = gzip.GzipFile(fileobj=file)
        case Compression.ZSTD:
            opened = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        case Compression.BZIP2:
            opened = bz2.BZ2File(file)
        case Compression.XZ:
            opened = lzma.LZMAFile(file)  # noqa: SIM115
        case Compression.LZ4:
            opened = lz4.frame.LZ4FrameFile(file)
    return cast(BinaryIO, opened)


def _arrow_rows(file: BufferedReader, name: str) -> Iterator[bytes]:
    for batch in arrow.ArrowTable(cast(BinaryIO, file), name).batches():
        for start in range(0, batch.num_rows, ROWS):
            for column in batch.slice(start, ROWS).columns:
                yield from _values(column)


def _rows(file: BufferedReader) -> Iterator[bytes]:
    with ExitStack() as closing:
        table: IO[bytes] = file
        if not file.seekable():
            table = closing.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, table)
        for batch in pq.ParquetFile(table).iter_batches(ROWS, use_threads=False):
            for column in batch.columns:
                yield from _values(column)


def _values(column: Any) -> Iterator[bytes]:
    """Texts and bytes in a column as they are, valid UTF-8 or not, and all other values as JSON."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _values(column.storage)
    elif pa.types.is_dictionary(kind):
        values = column.dictionary
        yield from _values(values if len(values) <= len(column) else values.take(column.indices.unique().drop_null()))
    elif pa.types.is_run_end_encoded(kind):
        yield from _values(column.values)
    elif columns.is_text(kind):
        yield b"\0".join(value or b"" for value in columns.utf8_values(column))
    elif pa.types.is_fixed_size_binary(kind):
        yield b"\0".join(value or b"" for value in column.to_pylist())
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        for number in range(kind.num_fields):
            yield from _values(column.field(number))
    elif pa.types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        yield from _values(column.keys[first:last])
        yield from _values(column.items[first:last])
    elif kind.num_fields:  # lists
        yield from _values(column.flatten())
    else:
        yield orjson.dumps(columns.listed(column), default=str)
