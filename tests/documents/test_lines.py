from __future__ import annotations

import io
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents.lines import CUT_LINE_BYTES, LineBlock, read_line_blocks
from tests.oracles.documents import lines_of

ANY_LINES = st.lists(st.sampled_from([b"", b"a", b"bc\r", b"d" * 9, b"e" * 10, b"f" * 11, b"g" * 40])).map(b"\n".join)


def blocks_of(data: bytes, block_bytes: int, longest_line_bytes: int) -> list[LineBlock]:
    stream = io.BytesIO(data)
    return list(read_line_blocks(stream, block_bytes=block_bytes, longest_line_bytes=longest_line_bytes))


@given(data=ANY_LINES, last=st.sampled_from([b"", b"\n"]), block_bytes=st.integers(1, 50))
def test_blocks_joined_are_the_stream_and_every_block_ends_a_line(data: bytes, last: bytes, block_bytes: int) -> None:
    blocks = blocks_of(data + last, block_bytes, 1000)
    assert b"".join(block.data for block in blocks) == data + last
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    assert all(block.stream_bytes == len(block.data) and not block.cut for block in blocks)


@given(data=ANY_LINES, last=st.sampled_from([b"", b"\n"]), block_bytes=st.integers(1, 50))
def test_lines_too_long_are_cut_blocks_whatever_the_block_size(data: bytes, last: bytes, block_bytes: int) -> None:
    blocks = blocks_of(data + last, block_bytes, 10)
    seen = [
        pair
        for block in blocks
        for pair in ([(block.data, True)] if block.cut else [(line, False) for line in lines_of(block.data)])
    ]
    assert seen == [(line, len(line) > 10) for line in lines_of(data + last)]
    assert sum(block.stream_bytes for block in blocks) == len(data + last)


class EndlessLine(io.BufferedIOBase):
    """1 GB of one line, then a short one."""

    piece = b"x" * (8 << 20)
    unread_bytes = 1_000_000_000
    tail = b"\nend\n"

    def read1(self, size: int = -1) -> bytes:
        size = min(size, self.unread_bytes)
        self.unread_bytes -= size
        if size:
            return self.piece[:size]
        tail, self.tail = self.tail, b""
        return tail


def test_endless_line_is_not_held_in_memory() -> None:
    tracemalloc.start()
    blocks = list(read_line_blocks(EndlessLine(), longest_line_bytes=20_000_000))  # type: ignore[arg-type]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(len(block.data), block.stream_bytes, block.cut) for block in blocks] == [
        (CUT_LINE_BYTES, 1_000_000_001, True),
        (4, 4, False),
    ]
    assert peak_bytes < 20_000_000 + 3 * (8 << 20)
