"""Parquet, gzip and Zstandard, changed: read as their libraries read them, or refused in our words."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.parquet import read_rows
from corpusmill.documents.splitting import cut_file
from corpusmill.errors import CorpusmillError
from tests.documents.test_splitting import SKIPPABLE, bgzip_block, read_part
from tests.fuzz.target import Target, changed
from tests.system.corpus import lines_of, make_documents

CONTENT = lines_of([text[:300] for text in make_documents(20)])
LARGEST_BYTES = 64 << 20  # what an oracle that knows no bombs may decompress


def _parquet(**options: Any) -> bytes:
    texts: list[str | None] = [text[:200] for text in make_documents(40)]
    texts[7] = None
    file = io.BytesIO()
    table = pa.table({"text": texts, "id": [f"doc-{row % 9}" for row in range(40)], "n": list(range(40))})
    pq.write_table(table, file, row_group_size=16, **options)
    return file.getvalue()


@cache
def _parquet_seeds() -> list[bytes]:
    return [
        _parquet(compression="none"),
        _parquet(compression="none", use_dictionary=False, write_page_checksum=True),
        _parquet(compression="zstd", data_page_version="2.0"),
        _parquet(compression="snappy", use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"}),
        _parquet(compression="gzip", use_dictionary=False, column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"}),
    ]


def _draw_parquet(rng: random.Random) -> bytes:
    data = rng.choice(_parquet_seeds())
    if rng.random() < 0.5:  # the footer is where lies are told; its length comes before the last four bytes
        size = int.from_bytes(data[-8:-4], "little")
        footer = changed(rng, data[-8 - size : -8])
        return data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + data[-4:]
    return changed(rng, data)


def _check_parquet(data: bytes) -> str:
    cut = _cut(data, "a.parquet")
    try:
        batches = list(read_rows(io.BytesIO(data), source="a.parquet", text_field="text", id_field="id"))
    except CorpusmillError:
        return "refused"
    ours = {int(row): text for batch in batches for row, text in zip(batch.line_numbers, batch.texts(), strict=True)}
    file = pq.ParquetFile(io.BytesIO(data))
    read = file.read([name for name in ("text", "id") if name in file.schema_arrow.names])
    texts = read.column("text").cast(pa.large_binary()).to_pylist()
    ids = read.column("id") if "id" in read.column_names else pa.nulls(len(texts))
    strings = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
    names = ids.cast(pa.large_binary()).to_pylist() if strings else [b""] * len(texts)
    rows = enumerate(zip(texts, names, strict=True))
    assert ours == {row: text for row, (text, name) in rows if text is not None and _is_utf8(text + (name or b""))}
    assert cut != "refused"
    return "read"


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 700] for at in range(0, len(data), 700)]


@cache
def _gzip_seeds() -> list[bytes]:
    blocks = b"".join(bgzip_block(piece) for piece in _pieces(CONTENT))
    members = b"".join(gzip.compress(piece, mtime=0) for piece in _pieces(CONTENT)[:5])
    named = b"\x1f\x8b\x08\x1e" + bytes(5) + b"\xff\x05\0extraname\0comment\0"
    named += (zlib.crc32(named) & 0xFFFF).to_bytes(2, "little") + gzip.compress(CONTENT, mtime=0)[10:]
    return [
        gzip.compress(CONTENT, mtime=0),
        gzip.compress(CONTENT, 0, mtime=0),
        members,
        blocks,
        named,
        members + bytes(20),
    ]


@cache
def _zstd_seeds() -> list[bytes]:
    def frames(**options: Any) -> bytes:
        return b"".join(zstandard.ZstdCompressor(**options).compress(piece) for piece in _pieces(CONTENT))

    streamed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    whole = streamed.compress(CONTENT) + streamed.flush()
    return [whole, frames(write_checksum=True), frames(write_checksum=False), SKIPPABLE + frames(level=-5) + SKIPPABLE]


def _gzip_oracle(data: bytes) -> bytes:
    """Member by member, by zlib; zeros behind one are padding. Flags that nobody has defined are Python's business."""
    whole, content = data, b""
    while data:
        member = zlib.decompressobj(31)
        try:
            content += member.decompress(data, LARGEST_BYTES)
        except zlib.error as error:
            if "unknown header flags" in str(error):
                return gzip.GzipFile(fileobj=io.BytesIO(whole)).read(LARGEST_BYTES)
            raise
        if not member.eof:
            raise EOFError("cut off")
        data = member.unused_data.lstrip(b"\0")
    return content


def _zstd_oracle(data: bytes) -> bytes:
    """Frame by frame."""
    content = b""
    while data:
        frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        content += frame.decompress(data)
        if not frame.eof:
            raise ValueError("cut off")
        data = frame.unused_data
    return content


def _cut(data: bytes, name: str, target_bytes: int = 2000) -> str:
    """Plan the file as one that is cut into parts; equal on a disk and in a bucket."""
    for local in (True, False):
        try:
            cuts = cut_file(io.BytesIO(data), name, len(data), target_bytes, local=local)
        except CorpusmillError:
            return "refused"
    return "cut" if isinstance(cuts, list) else "uncut"


def _check_stream(data: bytes, name: str, oracle: Callable[[bytes], bytes]) -> str:
    cut = _cut(data, name)
    try:
        content = open_decompressed(io.BytesIO(data), name).read()
    except CorpusmillError:
        _require_refused_by(oracle, data)
        return "refused"
    assert content == oracle(data)
    assert cut != "refused"
    cuts = cut_file(io.BytesIO(data), name, len(data), 2000, local=True)
    if isinstance(cuts, list):
        try:
            parts = [read_part(data, cut, number, name) for number, cut in enumerate(cuts)]
        except CorpusmillError:
            return "parts refused"  # what a cut took for a frame's beginning is part of an odd file
        assert b"".join(parts) == content
    return "read"


def _require_refused_by(oracle: Callable[[bytes], bytes], data: bytes) -> None:
    try:
        content = oracle(data)
    except (ValueError, EOFError, OSError, zlib.error, zstandard.ZstdError):
        return
    raise AssertionError(f"refused, but the library reads {len(content):,} bytes")


TARGETS = (
    Target("parquet", _draw_parquet, _check_parquet, aim=10_000),
    Target(
        "gzip",
        lambda rng: changed(rng, rng.choice(_gzip_seeds())),
        lambda data: _check_stream(data, "a.jsonl.gz", _gzip_oracle),
        aim=10_000,
    ),
    Target(
        "zstd",
        lambda rng: changed(rng, rng.choice(_zstd_seeds())),
        lambda data: _check_stream(data, "a.jsonl.zst", _zstd_oracle),
        aim=10_000,
    ),
)
