"""Foreign bytes under the names of source files, and text that must not be taken for them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.kinds import HEAD_BYTES, kind_of
from corpusmill.documents.parquet import open_parquet
from corpusmill.documents.splitting import cut_file
from tests.raising import raises

LINES = b"".join(json.dumps({"text": f"document {number}"}).encode() + b"\n" for number in range(300))


def table(_lines: bytes, rows: int = 300) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": [f"document {number}" for number in range(rows)]}), stream)
    return stream.getvalue()


def archive(lines: bytes, form: int = tarfile.USTAR_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        member = tarfile.TarInfo("a.jsonl")
        member.size = len(lines)
        tar.addfile(member, io.BytesIO(lines))
    return stream.getvalue()


def of_1979(lines: bytes) -> bytes:
    """A tar of Unix V7: no mark at byte 257, another checksum."""
    header = bytearray(archive(lines)[:HEAD_BYTES])
    header[257:345] = bytes(88)
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + archive(lines)[HEAD_BYTES:]


def zipped(lines: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a.jsonl", lines)
    return stream.getvalue()


def arrow(_lines: bytes) -> bytes:
    stream = io.BytesIO()
    rows = pa.table({"text": ["a"]})
    with pa.ipc.new_file(stream, rows.schema) as file:
        file.write_table(rows)
    return stream.getvalue()


def array(_lines: bytes) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(9))
    return stream.getvalue()


def lz4(lines: bytes) -> bytes:
    """A frame by hand, as `lz4 -1` begins one."""
    return b"\x04\x22\x4d\x18\x64\x40\xa7" + len(lines).to_bytes(4, "little") + lines


WRITTEN: dict[str, list[Callable[[bytes], bytes]]] = {
    "gzip": [gzip.compress],
    "Zstandard": [zstandard.compress, lambda lines: b"\x53\x2a\x4d\x18\x01\0\0\0x" + zstandard.compress(lines)],
    "xz": [lzma.compress],
    "bzip2": [bz2.compress, lambda _: bz2.compress(b"")],
    "lz4": [lz4],
    "parquet": [table, lambda lines: table(lines, rows=0)],
    "tar": [archive, of_1979, lambda lines: archive(lines, tarfile.GNU_FORMAT)],
    "zip": [zipped],
    "Arrow IPC": [arrow],
    "numpy": [array],
    "UTF-16": [
        lambda lines: lines.decode().encode("utf-16"),
        lambda lines: b"\xfe\xff" + lines.decode().encode("utf-16-be"),
    ],
}
FOREIGN = [(kind, write(LINES)) for kind, written in WRITTEN.items() for write in written]
JSON_LINES = ("JSON lines", LINES)


@pytest.mark.parametrize(("kind", "data"), FOREIGN, ids=[kind for kind, _ in FOREIGN])
def test_foreign_bytes_named_as_lines_are_refused_with_their_kind(kind: str, data: bytes) -> None:
    with raises("source.other_kind") as caught:
        open_decompressed(io.BytesIO(data), "web/x.jsonl").read()
    assert dict(caught.value.details)["got"] == kind
    assert dict(caught.value.details)["where"] == "web/x.jsonl"
    with raises("source.other_kind"):
        cut_file(io.BytesIO(data), "x.jsonl", len(data), 100, local=True)


@pytest.mark.parametrize(("kind", "data"), [*FOREIGN, JSON_LINES], ids=[kind for kind, _ in [*FOREIGN, JSON_LINES]])
@pytest.mark.parametrize(
    ("ending", "own"), [(".jsonl.gz", "gzip"), (".jsonl.zst", "Zstandard"), (".parquet", "parquet")]
)
def test_foreign_bytes_named_as_another_kind_are_refused_with_theirs(
    kind: str, data: bytes, ending: str, own: str
) -> None:
    if kind == own:
        return
    read = open_parquet if own == "parquet" else lambda raw, name: open_decompressed(raw, name).read()
    with raises("source.other_kind") as caught:
        read(io.BytesIO(data), f"x{ending}")
    assert dict(caught.value.details)["got"] == kind


@pytest.mark.parametrize(("kind", "data"), FOREIGN, ids=[kind for kind, _ in FOREIGN])
@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_foreign_bytes_within_a_compressed_file_are_refused(
    kind: str, data: bytes, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    with raises("source.other_kind") as caught:
        open_decompressed(io.BytesIO(compress(data)), f"x.jsonl{ending}").read()
    assert dict(caught.value.details)["got"].startswith(f"{kind} within ")


TEXTS = [
    "",
    "\n",
    "{",
    "[1]",
    "BZh9 is how bzip2 begins",
    "PAR1 is how parquet begins",
    "PK",
    "0000644 " * 99,
    "\0" * 600,
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_text_that_resembles_a_mark_is_text(text: str, mark: bytes) -> None:
    data = mark + text.encode()
    assert open_decompressed(io.BytesIO(data), "x.jsonl").read() == data


@given(st.text(max_size=HEAD_BYTES))
def test_any_text_is_no_other_kind(text: str) -> None:
    kind = kind_of(text.encode())
    assert kind is None or kind.name == "JSON lines" or not text.isprintable()


def test_damaged_file_of_its_own_kind_is_damaged_and_not_of_another() -> None:
    for name, data in (("x.jsonl.gz", gzip.compress(LINES)), ("x.jsonl.zst", zstandard.compress(LINES))):
        stream = open_decompressed(io.BytesIO(data[:-9]), name)
        with raises("source.truncated"):
            stream.read()
