"""Decompressed pieces as a stream: bytes, and lines, whatever the pieces."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.decompressing import PieceStream

PIECES = st.lists(st.sampled_from([b"a", b"\n", b"b\nc", b"dd\n", b"\n\n", b"e" * 9]))


@given(pieces=PIECES, size=st.integers(1, 12))
def test_pieces_read_some_bytes_at_a_time_are_those_of_one_file(pieces: list[bytes], size: int) -> None:
    stream, file = PieceStream(iter(pieces)), io.BytesIO(b"".join(pieces))
    while block := file.read(size):
        assert stream.read(size) == block
    assert stream.read() == b""


@given(pieces=PIECES, size=st.integers(1, 12))
def test_pieces_read_as_they_are_lose_nothing_and_end_once(pieces: list[bytes], size: int) -> None:
    stream = PieceStream(iter(pieces))
    read = list(iter(lambda: stream.read1(size), b""))
    assert b"".join(read) == b"".join(pieces)
    assert all(0 < len(piece) <= size for piece in read)


@given(pieces=PIECES)
def test_pieces_iterated_are_the_lines_of_one_file(pieces: list[bytes]) -> None:
    assert list(PieceStream(iter(pieces))) == list(io.BytesIO(b"".join(pieces)))


def test_pieces_of_a_closed_stream_are_not_read() -> None:
    stream = PieceStream(iter([b"a"]))
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.read1()
