"""Every ending round-trips; every damage is noticed."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from typing import BinaryIO

import pytest
import zstandard
from hypothesis import assume, example, given
from hypothesis import strategies as st

from corpusmill.documents.compression import ENDINGS, Compression, compression_of, open_compressed, open_decompressed
from corpusmill.documents.decompressing import ZSTD_FEED_BYTES
from corpusmill.documents.kinds import HEAD_BYTES, LINES, kind_of
from corpusmill.errors import CorruptDataError
from tests.raising import raises

TEXT = b'{"text": "one line of some length, one line of some length"}\n' * 5 + bytes(range(256))
NAMES = ["x" + ending for ending in ENDINGS if ".jsonl" in ending]
COMPRESSED_NAMES = [name for name in NAMES if compression_of(name) is not Compression.NONE]
SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A50, 4) + b"abcd"


def compressed(data: bytes, name: str, *, write_bytes: int = 1 << 30) -> bytes:
    raw = io.BytesIO()
    with open_compressed(raw, compression_of(name)) as stream:
        for start in range(0, len(data), write_bytes):
            assert stream.write(data[start : start + write_bytes]) == len(data[start : start + write_bytes])
    return raw.getvalue()


def decompressed(data: bytes, name: str) -> bytes:
    return open_decompressed(io.BytesIO(data), name).read()


class DripStream(io.BytesIO):
    """Returns a few bytes a read, as a network does."""

    def __init__(self, data: bytes, drop_bytes: int) -> None:
        super().__init__(data)
        self.drop_bytes = drop_bytes

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.drop_bytes if size is None or size < 0 else min(size, self.drop_bytes))


def gzip_member_with_every_header_field(data: bytes) -> bytes:
    header = b"\x1f\x8b\x08\x1e" + bytes(5) + b"\xff" + struct.pack("<H", 5) + b"extra" + b"name\0" + b"comment\0"
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    checks = struct.pack("<II", zlib.crc32(data), len(data))
    return header + struct.pack("<H", zlib.crc32(header) & 0xFFFF) + body + checks


@pytest.mark.parametrize(
    ("name", "head", "compression"),
    [
        ("a.json.bz2", b"", Compression.BZIP2),
        ("a.JSONL", b"", Compression.NONE),
        ("a.Jsonl.ZST", b"", Compression.ZSTD),
        ("RC_2011-01.zst", b"", Compression.ZSTD),
        ("wiki_00", b'{"text": 1}', Compression.NONE),
        ("wiki_00", gzip.compress(b"", mtime=0), Compression.GZIP),
        ("a.jsonl", gzip.compress(b"", mtime=0), Compression.NONE),
    ],
)
def test_compression_of_a_name_is_its_ending_else_the_first_bytes(
    name: str, head: bytes, compression: Compression
) -> None:
    assert compression_of(name, head) is compression


def test_files_that_are_not_json_lines_are_refused_with_the_line_that_converts_them() -> None:
    for name, data, what in (
        ("a.json", b'[{"text": "a"}]', "a JSON array"),
        ("a.json", b'\xef\xbb\xbf{\n "text": "a"}', "a JSON object over several lines"),
        ("wiki_00", b"Once upon a time", "text"),
        ("a.csv", b"text\na\n", "CSV"),
    ):
        with raises("source.not_json_lines", what, "python3 -c"):
            decompressed(data, name)


@pytest.mark.parametrize("name", ["a.json", "a.JSON.gz", "/dev/stdin"])
def test_first_line_of_json_that_is_no_object_is_handed_on_to_be_rejected_alone(name: str) -> None:
    data = b'garbage\n"one"\n{"text": "a"}\n'
    assert decompressed(gzip.compress(data) if name.endswith(".gz") else data, name) == data
    with raises("source.not_json_lines"):
        decompressed(data, "wiki_00")


def test_gzip_of_other_bytes_is_refused_without_quoting_them() -> None:
    with raises("source.not_decompressable", "no gzip header") as caught:
        decompressed(b"secret" * 9, "x.jsonl.gz")
    assert "b'se'" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=2000) | st.integers(0, 300_000).map(lambda size: (TEXT * 600)[:size]))
@example(data=b"")
def test_round_trip_any_bytes_come_back(name: str, data: bytes) -> None:
    kind = kind_of(data[:HEAD_BYTES])
    assume(kind is None or kind.name in LINES)
    assert decompressed(compressed(data, name), name) == data


def test_open_compressed_is_read_by_standard_libraries() -> None:
    assert gzip.decompress(compressed(TEXT, "x.jsonl.gz")) == TEXT
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compressed(TEXT, "x.jsonl.zst")) == TEXT
    assert compressed(TEXT, "x.jsonl") == TEXT


@pytest.mark.parametrize("name", NAMES)
def test_open_compressed_cut_of_the_writes_does_not_change_a_byte(name: str) -> None:
    data = TEXT * 6000  # several feeds
    whole = compressed(data, name)
    assert all(compressed(data, name, write_bytes=size) == whole for size in (1013, 1 << 20, (1 << 20) + 1))


def test_open_compressed_headers_hold_no_time_and_no_name_but_a_checksum() -> None:
    assert compressed(TEXT, "folder/x.jsonl.gz")[:10] == b"\x1f\x8b\x08\0\0\0\0\0\x04\x03"
    assert zstandard.get_frame_parameters(compressed(TEXT, "x.jsonl.zst")).has_checksum


@pytest.mark.parametrize("name", COMPRESSED_NAMES)
def test_open_compressed_left_by_an_exception_is_not_a_whole_file(name: str) -> None:
    def write_and_fail() -> None:
        with open_compressed(raw, compression_of(name)) as stream:
            stream.write(TEXT * 6000)
            raise KeyError

    raw = io.BytesIO()
    with pytest.raises(KeyError):
        write_and_fail()
    assert not raw.closed
    with raises("source.truncated"):
        decompressed(raw.getvalue(), name)


@pytest.mark.parametrize("name", NAMES)
def test_streams_closed_leave_raw_open(name: str) -> None:
    raw = io.BytesIO()
    open_compressed(raw, compression_of(name)).close()
    raw.seek(0)
    open_decompressed(raw, name).close()
    assert not raw.closed


@pytest.mark.parametrize("name", NAMES)
def test_open_decompressed_zero_bytes_is_an_empty_file(name: str) -> None:
    assert decompressed(b"", name) == b""


GZIP_FILES = [
    gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two\n", mtime=0),
    gzip.compress(b"one\n", mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(b"two\n", mtime=0) + bytes(700),
    gzip_member_with_every_header_field(b"one\n") + gzip_member_with_every_header_field(b"two\n"),
]


@pytest.mark.parametrize("data", GZIP_FILES, ids=range(len(GZIP_FILES)))
@pytest.mark.parametrize("drop_bytes", [1, 2, 3, 13, 1000])
def test_gzip_many_members_are_all_read(data: bytes, drop_bytes: int) -> None:
    assert open_decompressed(DripStream(data, drop_bytes), "x.jsonl.gz").read() == b"one\ntwo\n"


def zstd_frame(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)  # type: ignore[arg-type]


ZSTD_FILES = [
    zstd_frame(b"one\n") + zstd_frame(b"two\n"),
    SKIPPABLE_FRAME + zstd_frame(b"one\n", write_checksum=True) + SKIPPABLE_FRAME * 2 + zstd_frame(b"two\n"),
    zstd_frame(b"one\n", write_content_size=False) + zstd_frame(b"") + zstd_frame(b"two\n") + SKIPPABLE_FRAME,
]


@pytest.mark.parametrize("data", ZSTD_FILES)
@pytest.mark.parametrize("drop_bytes", [1, 2, 3, 13, 1000])
def test_zstd_many_frames_are_all_read(data: bytes, drop_bytes: int) -> None:
    assert open_decompressed(DripStream(data, drop_bytes), "x.jsonl.zst").read() == b"one\ntwo\n"


def test_zstd_thousands_of_frames_across_feeds_are_all_read() -> None:
    frame = zstd_frame(TEXT)
    count = 20 * ZSTD_FEED_BYTES // len(frame)
    assert decompressed(frame * count, "x.jsonl.zst") == TEXT * count


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("x.jsonl.gz", [gzip.compress(TEXT, mtime=0), gzip_member_with_every_header_field(TEXT)]),
        ("x.jsonl.zst", [zstd_frame(TEXT), SKIPPABLE_FRAME, zstd_frame(TEXT, write_checksum=True)]),
    ],
)
def test_truncation_at_every_byte_is_an_error_except_between_units(name: str, units: list[bytes]) -> None:
    whole = {len(b"".join(units[:count])): TEXT * sum(len(unit) > 100 for unit in units[:count]) for count in range(4)}
    data = b"".join(units)
    for size in range(len(data) + 1):
        if size in whole:
            assert decompressed(data[:size], name) == whole[size]
        else:
            with raises("source.truncated", name, "download the file again"):
                decompressed(data[:size], name)


@pytest.mark.parametrize("name", COMPRESSED_NAMES)
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_one_wrong_byte_is_an_error_or_changes_nothing(name: str, flip: int) -> None:
    data = compressed(TEXT, name)
    noticed = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= flip
        try:
            assert decompressed(bytes(damaged), name) == TEXT
        except CorruptDataError:
            noticed += 1
    assert noticed > len(data) * 0.9  # gzip's header holds six bytes that mean nothing to us


@pytest.mark.parametrize("name", COMPRESSED_NAMES)
@pytest.mark.parametrize("garbage", [b"x", b"garbage after the end", b"\0garbage"])
def test_bytes_after_the_end_are_an_error(name: str, garbage: bytes) -> None:
    with raises("source.not_decompressable source.truncated"):
        decompressed(compressed(TEXT, name) + garbage, name)


@pytest.mark.parametrize("name", COMPRESSED_NAMES)
def test_wrong_format_for_the_ending_says_where_and_what_next(name: str) -> None:
    with raises("source.not_decompressable") as caught:
        decompressed(b"neither " * 99, f"web/{name}")
    message = str(caught.value)
    assert f"web/{name}, at or before byte" in message
    assert "after 0 decompressed bytes" in message
    assert "download the file again" in message


@pytest.mark.parametrize("name", COMPRESSED_NAMES)
@pytest.mark.parametrize("size", [1, 5000, 200_000])
def test_file_of_zero_bytes_in_place_of_its_content_is_refused(name: str, size: int) -> None:
    with raises("source.not_decompressable source.truncated"):
        decompressed(bytes(size), name)
    with raises("source.not_decompressable"):
        decompressed(bytes(512) + compressed(TEXT, name), name)


def test_what_comes_before_the_damage_is_handed_on() -> None:
    stream = open_decompressed(io.BytesIO(zstd_frame(TEXT) + b"garbage"), "x.jsonl.zst")
    assert stream.read(len(TEXT)) == TEXT
    with raises("source.not_decompressable", f"after {len(TEXT):,} decompressed bytes"):
        stream.read(1)


def frame_with_window(window_log: int) -> bytes:
    """A frame by hand: magic, no flags, window descriptor, one last raw block of 3 bytes (RFC 8878, 3.1.1)."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + struct.pack("<I", 3 << 3 | 1)[:3] + b"abc"


def test_zstd_window_of_2_gib_is_read_and_a_larger_one_refused() -> None:
    assert decompressed(frame_with_window(31), "x.jsonl.zst") == b"abc"
    with raises("source.not_decompressable", "memory"):
        decompressed(frame_with_window(32), "x.jsonl.zst")


def test_errors_of_the_raw_stream_pass_through() -> None:
    class BrokenStream(io.BytesIO):
        def read(self, _size: int | None = -1) -> bytes:
            raise ConnectionResetError("gone")

    for name in NAMES:
        stream: BinaryIO = open_decompressed(BrokenStream(), name)
        with pytest.raises(ConnectionResetError):
            stream.read()
