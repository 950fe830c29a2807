"""Megatron's .bin and .idx: golden bytes, the width rule, identity of write and read."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.export.checks import BLOCK_DOCUMENTS
from corpusmill.export.megatron import (
    HEADER,
    INT32,
    UINT16,
    finish_index,
    open_part,
    token_dtype,
    verify_part,
    write_part,
)
from tests.oracles import export as oracle
from tests.raising import raises

GOLDEN = [[1, 2, 3], [7], [10, 11, 12, 13, 14]]
EOD = 50_256
GOLDEN_SHA256 = {
    2: (
        "406d949090f5e6978ef4e6aab05ad8700b7c5c74470a44a5d6eef0ad1185942e",
        "b89cf43942f44ce1d553562e34aef0cb907db568033c4ac955f02e5edc730171",
    ),
    4: (
        "892b7919db9007c28247aac0956419559a1c7667c4e144464ae82dba6f69e2b1",
        "7371866620c3c3d45c904f5a27873050aeb415f2ba01ecbcfc9e05863a0f4ad2",
    ),
}
VOCABULARY = {2: 50_257, 4: 70_000}
documents = st.lists(st.lists(st.integers(0, 50_000), max_size=9), max_size=12)
cuts = st.lists(st.integers(0, 12), max_size=4)


def write(folder: Path, docs: list[list[int]], width: int, at: tuple[int, ...] = ()) -> dict[str, int]:
    return write_part(
        folder,
        "part_text_document",
        oracle.batches_of(docs, "u2", list(at)),
        dtype=token_dtype(VOCABULARY[width]),
        eod_id=EOD,
        vocabulary_size=VOCABULARY[width],
    )


def both(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "part_text_document.bin").read_bytes(), (folder / "part_text_document.idx").read_bytes()


@pytest.mark.parametrize("width", [2, 4])
def test_megatron_golden_bytes_match(tmp_path, width):
    counts = write(tmp_path, GOLDEN, width)
    assert tuple(hashlib.sha256(data).hexdigest() for data in both(tmp_path)) == GOLDEN_SHA256[width]
    assert counts == {
        "documents": 3,
        "documents_empty": 0,
        "tokens": 9,
        "special_tokens": 3,
        "sequences": 3,
        "bytes": 12 * width + 102,
    }


@pytest.mark.parametrize("width", [2, 4])
@given(docs=documents, at=cuts)
def test_megatron_any_documents_equal_the_oracle(tmp_path_factory, docs, at, width):
    folder = tmp_path_factory.mktemp("part")
    counts = write(folder, docs, width, tuple(at))
    kept = [doc for doc in docs if doc]
    assert (counts["documents"], counts["documents_empty"]) == (len(kept), len(docs) - len(kept))
    if not kept:
        assert list(folder.iterdir()) == []
        return
    data, index = both(folder)
    assert (data, index) == oracle.megatron(docs, EOD, width)
    assert len(index) == 42 + 20 * len(kept)
    assert counts["bytes"] == len(data) + len(index)


@pytest.mark.parametrize("width", [2, 4])
@given(docs=documents.filter(any))
def test_megatron_write_then_read_is_identity_and_verifies(tmp_path_factory, docs, width):
    folder = tmp_path_factory.mktemp("part")
    counts = write(folder, docs, width)
    part = open_part(folder / "part_text_document")
    kept = [[*doc, EOD] for doc in docs if doc]
    assert [part.document(ordinal).tolist() for ordinal in range(len(part))] == kept
    actual = verify_part(folder / "part_text_document", vocabulary_size=VOCABULARY[width], eod_id=EOD)
    assert actual == {name: counts[name] for name in actual}


@pytest.mark.parametrize(
    ("vocabulary_size", "ours", "tool"),
    [
        (50_257, UINT16, UINT16),
        (65_499, UINT16, UINT16),
        (65_500, UINT16, INT32),
        (65_536, UINT16, INT32),
        (65_537, INT32, INT32),
        (100_277, INT32, INT32),
    ],
)
def test_megatron_width_follows_the_vocabulary(vocabulary_size, ours, tool):
    assert token_dtype(vocabulary_size) == ours
    assert token_dtype(vocabulary_size, as_preprocess_data=True) == tool


@pytest.mark.parametrize(("vocabulary_size", "dtype"), [(50_257, INT32), (65_537, UINT16)])
def test_megatron_width_the_vocabulary_does_not_allow_is_refused(tmp_path, vocabulary_size, dtype):
    with raises("megatron.token_width"):
        write_part(tmp_path, "x", [], dtype=dtype, eod_id=0, vocabulary_size=vocabulary_size)


@pytest.mark.parametrize("dtype", [UINT16, INT32])
def test_megatron_both_widths_verify_in_the_band(tmp_path, dtype):
    batches = oracle.batches_of([[1, 2, 65_529]], "u4", [])
    write_part(tmp_path, "x", batches, dtype=dtype, eod_id=0, vocabulary_size=65_530)
    assert open_part(tmp_path / "x").tokens.tolist() == [1, 2, 65_529, 0]
    verify_part(tmp_path / "x", vocabulary_size=65_530, eod_id=0)


def test_megatron_documents_without_tokens_are_skipped_and_counted(tmp_path):
    counts = write(tmp_path, [[5, 6], [], [9]], 2)
    assert (counts["documents"], counts["documents_empty"], counts["special_tokens"]) == (2, 1, 2)
    assert open_part(tmp_path / "part_text_document").boundaries.tolist() == [0, 1, 2]


def test_megatron_offsets_beyond_2_to_the_31_do_not_wrap():
    longest = (1 << 31) - 1
    index = io.BytesIO()
    index.seek(HEADER.size)
    index.write(np.array([longest, longest, 5, 2], "<i4").tobytes())
    boundaries = io.BytesIO(np.arange(1, 5, dtype="<i8").tobytes())
    assert finish_index(index, 4, boundaries, 4, INT32) == 42 + 20 * 4
    pointers = np.frombuffer(index.getvalue(), "<i8", 4, HEADER.size + 16)
    assert pointers.tolist() == [0, 4 * longest, 8 * longest, 8 * longest + 20]


def test_megatron_id_beyond_the_vocabulary_leaves_no_part(tmp_path):
    batches = oracle.batches_of([[1], [2], [70_000]], "u4", [1])
    with raises("export.id_outside_vocabulary", "70000"):
        write_part(tmp_path, "x", batches, dtype=UINT16, eod_id=0, vocabulary_size=65_536)
    assert list(tmp_path.iterdir()) == []


def test_megatron_interrupted_writer_leaves_no_readable_prefix(tmp_path):
    write(tmp_path, GOLDEN, 2)

    def batches():
        yield from oracle.batches_of([[1]], "u2", [])
        # An older part of the name is unreadable from the first byte on: never an old index beside new tokens.
        assert not list(tmp_path.glob("*.idx"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_part(tmp_path, "part_text_document", batches(), dtype=UINT16, eod_id=EOD, vocabulary_size=50_257)
    assert list(tmp_path.iterdir()) == []


def test_megatron_same_bytes_in_any_folder_and_any_batches(tmp_path):
    for name, at in (("a", ()), ("b", (1, 2, 2))):
        (tmp_path / name).mkdir()
        write(tmp_path / name, GOLDEN, 2, at)
    assert both(tmp_path / "a") == both(tmp_path / "b")


def test_megatron_index_of_several_blocks_verifies(tmp_path):
    count = 2 * BLOCK_DOCUMENTS + 3
    batch = (np.arange(count, dtype=np.uint32) % 1000, np.arange(1, count + 1, dtype=np.uint64))
    write_part(tmp_path, "x", [batch], dtype=UINT16, eod_id=1000, vocabulary_size=1001)
    assert verify_part(tmp_path / "x", vocabulary_size=1001, eod_id=1000)["documents"] == count
    part = open_part(tmp_path / "x")
    assert part.pointers.tolist() == list(range(0, 4 * count, 4))
    assert part.boundaries.tolist() == list(range(count + 1))
    data = bytearray((tmp_path / "x.idx").read_bytes())
    wrong_at = HEADER.size + 12 * count + 8 * (BLOCK_DOCUMENTS + 9)
    data[wrong_at] ^= 1
    (tmp_path / "x.idx").write_bytes(data)
    with raises("export.impossible_boundary", f"boundary {BLOCK_DOCUMENTS + 9}", f"byte {wrong_at}"):
        verify_part(tmp_path / "x", vocabulary_size=1001, eod_id=1000)
