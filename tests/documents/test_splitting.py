from __future__ import annotations

import gzip
import io
import struct
import zlib
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.cuts import Cut, Uncut
from corpusmill.documents.frames import FIND_BYTES
from corpusmill.documents.splitting import SEARCH_BYTES, cut_file, part_lines
from corpusmill.storage.reading import WINDOW_BYTES, RangedFile

CONTENT = st.lists(st.sampled_from([b"a", b"bc\n", b"\n", b"defgh", b"ijk\n"]), max_size=40).map(b"".join)


def bgzip_block(data: bytes, level: int = 6) -> bytes:
    """A gzip member with the subfield BC, as bgzip writes it."""
    compress = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = compress.compress(data) + compress.flush()
    head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H", 6) + b"BC" + struct.pack("<HH", 2, 18 + len(body) + 7)
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


SKIPPABLE = b"\x50\x2a\x4d\x18\x03\0\0\0abc"


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[first:last] for first, last in pairwise(bounds)]


def read_part(file: bytes, cut: Cut, number: int, name: str) -> bytes:
    ((offset, size),) = cut.pieces
    whole = file[offset : offset + size]
    if cut.kind == "lines":
        return whole
    own = open_decompressed(io.BytesIO(whole[: cut.own_bytes]), name)
    tail = open_decompressed(io.BytesIO(whole[cut.own_bytes :]), name)
    return b"".join(part_lines(own, tail, first=number == 0))


def require_parts(file: bytes, content: bytes, cuts: list[Cut], name: str) -> None:
    """The parts hold every line once, in order, and every part but the last ends with a line."""
    parts = [read_part(file, cut, number, name) for number, cut in enumerate(cuts)]
    assert b"".join(parts) == content
    assert all(not part or part.endswith(b"\n") for part in parts[:-1] if b"".join(parts[parts.index(part) + 1 :]))


@given(CONTENT, st.integers(1, 30))
def test_lines_cut_at_any_size_are_the_same_lines(content: bytes, target: int) -> None:
    cuts = cut_file(io.BytesIO(content), "a.jsonl", len(content), target, local=True)
    assert isinstance(cuts, list)
    require_parts(content, content, cuts, "a.jsonl")
    assert all(cut.size_bytes <= target or content[cut.pieces[0][0] :][target - 1 :].find(b"\n") for cut in cuts)


def parquet_of(groups: int) -> bytes:
    pq.write_table(pa.table({"text": ["a text"] * groups}), file := io.BytesIO(), row_group_size=1, compression="none")
    return file.getvalue()


def row_group_bytes(file: bytes) -> int:
    column = pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0).column(0)
    return int(column.total_compressed_size)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.zst", "jsonl.gz", "parquet"])
@given(count=st.integers(33, 150))
def test_last_two_parts_of_any_file_share_what_is_left_of_it(kind: str, count: int) -> None:
    """A file of pieces that are all as long, cut into parts of 32 of them."""
    line = b"a text\n"
    piece = {"jsonl": line, "jsonl.zst": zstandard.compress(line), "jsonl.gz": bgzip_block(line)}.get(kind)
    file = piece * count if piece else parquet_of(count)
    piece_bytes = len(piece) if piece else row_group_bytes(file)
    cuts = cut_file(io.BytesIO(file), f"a.{kind}", len(file), 32 * piece_bytes, local=True)
    assert isinstance(cuts, list)
    parts = [
        last - first if kind == "parquet" else (cut.own_bytes or cut.size_bytes) // len(piece or b"")
        for cut in cuts
        for first, last in [cut.row_groups]
    ]
    assert sum(parts) == count
    assert set(parts[:-2]) <= {32}
    assert max(parts) <= 32
    assert abs(parts[-1] - parts[-2]) <= 1


def cut_alike(file: bytes, name: str, target: int) -> list[Cut] | Uncut:
    """The cuts of a file on this machine, and that they are those of the same file in a bucket."""
    local, remote = (cut_file(io.BytesIO(file), name, len(file), target, local=local) for local in (True, False))
    assert local == remote or (isinstance(local, Uncut) and isinstance(remote, Uncut))
    return local


@given(CONTENT, st.lists(st.integers(0, 1000), min_size=2, max_size=6), st.integers(1, 60), st.booleans())
def test_zstd_frames_cut_anywhere_give_the_same_lines(
    content: bytes, places: list[int], target: int, checksum: bool
) -> None:
    frame = zstandard.ZstdCompressor(write_checksum=checksum)
    pieces = pieces_of(content, places)
    file = b"".join(frame.compress(piece) + SKIPPABLE for piece in pieces)
    cuts = cut_alike(file, "a.jsonl.zst", target)
    if isinstance(cuts, Uncut):
        last_frame = len(file) - len(frame.compress(pieces[-1]) + SKIPPABLE) if pieces else 0
        assert target > last_frame
    else:
        require_parts(file, content, cuts, "a.jsonl.zst")


@given(CONTENT, st.lists(st.integers(0, 1000), min_size=2, max_size=6), st.integers(1, 60))
def test_bgzip_blocks_cut_anywhere_give_the_same_lines(content: bytes, places: list[int], target: int) -> None:
    file = b"".join(bgzip_block(piece) for piece in [*pieces_of(content, places), b""])
    cuts = cut_alike(file, "a.jsonl.gz", target)
    if isinstance(cuts, list):
        require_parts(file, content, cuts, "a.jsonl.gz")
    else:
        assert len(file) < 4 * max(target, 40)


@given(
    st.text(st.characters(min_codepoint=32, codec="utf-8"), min_size=20, max_size=200).map(str.encode),
    st.sampled_from(["a.jsonl.zst", "a.jsonl.gz"]),
    st.integers(0, 200),
)
def test_frame_magic_in_stored_text_is_taken_for_no_frame(noise: bytes, name: str, at: int) -> None:
    magic = b"\x28\xb5\x2f\xfd" if name.endswith(".zst") else b"\x1f\x8b\x08\x04"
    content = noise[:at] + magic + noise[at:]
    make = zstandard.compress if name.endswith(".zst") else bgzip_block
    file = make(content) + make(b"\n" + content)  # text that zstd cannot pack stands in the frame as it is
    cuts = cut_file(io.BytesIO(file), name, len(file), 1, local=False)
    assert isinstance(cuts, list)
    assert [cut.own_bytes for cut in cuts] == [len(make(content)), len(make(b"\n" + content))]


def test_frames_beyond_the_searched_stretch_of_a_remote_file_leave_it_whole_and_say_so() -> None:
    noise = np.random.default_rng(1).bytes(FIND_BYTES + 2 * SEARCH_BYTES)
    file = zstandard.compress(noise + b"\n") + zstandard.compress(b"x\n")
    remote = cut_file(io.BytesIO(file), "a.jsonl.zst", len(file), 10, local=False)
    assert isinstance(remote, Uncut)
    assert "no frame begins within 16 MiB behind byte 10" in remote.why
    assert len(cut_file(io.BytesIO(file), "a.jsonl.zst", len(file), 10, local=True)) == 2  # type: ignore[arg-type]


class CountedFile(io.BytesIO):
    """Counts the bytes read, and refuses to read for ever."""

    read_bytes = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        assert self.read_bytes < 100 * len(self.getbuffer()), "read for ever"
        return data


@pytest.mark.slow
def test_planning_a_crafted_zst_in_a_bucket_asks_for_each_window_at_most_twice() -> None:
    """Heads whose block ends where the block of a later head begins, and so on: each leads to the end of the file."""
    block_bytes = 9 * 14_000 - 3
    head = b"\x28\xb5\x2f\xfd\0\0" + (block_bytes << 3).to_bytes(3, "little")
    file = head * ((64 << 20) // len(head))
    requested: list[int] = []

    def read_range(first: int, last: int) -> bytes:
        requested.append(last - first)
        assert len(requested) < 1000, "requests without end"
        return file[first:last]

    remote = RangedFile(read_range, 0, len(file))
    cuts = cut_file(remote, "a.jsonl.zst", len(file), 1 << 20, local=False)  # type: ignore[arg-type]
    assert isinstance(cuts, Uncut)
    assert len(requested) <= 2 * -(-len(file) // WINDOW_BYTES)
    assert sum(requested) <= 2 * len(file)


@pytest.mark.parametrize("local", [True, False])
def test_frames_without_a_line_end_are_decompressed_once_and_not_once_a_cut(local: bool) -> None:
    frames = [zstandard.compress(np.random.default_rng(seed).bytes(40_000).replace(b"\n", b" ")) for seed in range(50)]
    file = CountedFile(b"".join([*frames, zstandard.compress(b"\n")]))
    size = len(file.getbuffer())
    cuts = cut_file(file, "a.jsonl.zst", size, 40_000, local=local)
    assert isinstance(cuts, list)
    assert len(cuts) == 51
    assert {first + part for cut in cuts for first, part in cut.pieces} == {size}
    assert file.read_bytes < (3 if local else 60) * size


def test_damaged_frame_behind_a_cut_goes_to_the_part_before_it() -> None:
    frames = [zstandard.compress(text) for text in (b"one\n", b"no line end", b"three\n")]
    file = b"".join([*frames[:2], frames[2][:-4]])
    (first, *_) = cut_file(io.BytesIO(file), "a.jsonl.zst", len(file), 1, local=False)  # type: ignore[misc]
    assert first.pieces == ((0, len(file)),)


def test_zstd_of_large_frames_is_cut_at_its_frames() -> None:
    content = [b'{"text": "%d"}\n' % number * 30_000 for number in range(6)]
    file = b"".join(zstandard.ZstdCompressor(level=1).compress(piece) for piece in content)
    cuts = cut_alike(file, "a.jsonl.zst", len(file) // 4)
    assert isinstance(cuts, list)
    assert len(cuts) == 4
    require_parts(file, b"".join(content), cuts, "a.jsonl.zst")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a.jsonl.zst", zstandard.compress(b'{"text": "x"}\n' * 1000)),
        ("a.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 1000, mtime=0)),
    ],
)
def test_single_frame_file_says_why_it_stays_whole_and_how_to_recompress(name: str, file: bytes) -> None:
    actual = cut_file(io.BytesIO(file), name, len(file), 10, local=True)
    assert isinstance(actual, Uncut)
    assert actual.why == "one shard because a single-frame file cannot be split"
    assert ("pzstd" in actual.remedy) or ("bgzip" in actual.remedy)
