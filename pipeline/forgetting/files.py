"""The content of files: raw, decompressed, from archives and from tables."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import orjson
import zstandard

from corpusmill.forgetting.finding import Finder

BLOCK_BYTES = 8 << 20
GZIP, ZSTD, BZIP2, XZ, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"PAR1"
TAR_MARK, TAR_AT = b"ustar", 257


def strings_in(path: Path, finder: Finder) -> set[bytes]:
    """The strings of a finder that stand in a file. OSError, EOFError or an error of the format if it is damaged."""
    with path.open("rb") as file:
        return _strings_in(file, finder)


def _strings_in(file: BinaryIO, finder: Finder) -> set[bytes]:
    strings: set[bytes] = set()
    rest = b""
    for block in _blocks(file):
        data = rest + block
        strings |= finder.find(np.frombuffer(data, np.uint8))
        rest = data[-(finder.longest - 1) :]
    return strings


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    head = file.read(TAR_AT + len(TAR_MARK))
    file.seek(0)
    if head.startswith(PARQUET):
        yield from _rows(file)
    elif head[TAR_AT:] == TAR_MARK:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                if content := archive.extractfile(member):
                    yield from _blocks(io.BytesIO(content.read()))
    else:
        stream = _opened(file, head)
        while block := stream.read(BLOCK_BYTES):
            yield block


def _opened(file: BinaryIO, head: bytes) -> BinaryIO:
    if head.startswith(GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if head.startswith(ZSTD):
        return cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
    if head.startswith(BZIP2):
        return cast(BinaryIO, bz2.BZ2File(file))
    return cast(BinaryIO, lzma.LZMAFile(file)) if head.startswith(XZ) else file


def _rows(file: BinaryIO) -> Iterator[bytes]:
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(file).iter_batches(1 << 10, use_threads=False):
        yield orjson.dumps(batch.to_pylist(), default=str)
