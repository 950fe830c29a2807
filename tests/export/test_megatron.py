"""Megatron's .bin and .idx: golden bytes, the width rule, identity of write and read, every fault."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import VerificationError
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
from tests.oracles.export import Damage, append, keep, put, put_number
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
def test_megatron_any_documents_equal_the_oracle_and_read_back(tmp_path_factory, docs, at, width):
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
    part = open_part(folder / "part_text_document")
    assert [part.document(ordinal).tolist() for ordinal in range(len(part))] == [[*doc, EOD] for doc in kept]
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


def test_megatron_offsets_beyond_2_to_the_31_do_not_wrap():
    longest = (1 << 31) - 1
    index = io.BytesIO()
    index.seek(HEADER.size)
    index.write(np.array([longest, longest, 5, 2], "<i4").tobytes())
    boundaries = io.BytesIO(np.arange(1, 5, dtype="<i8").tobytes())
    assert finish_index(index, 4, boundaries, 4, INT32) == 42 + 20 * 4
    pointers = np.frombuffer(index.getvalue(), "<i8", 4, HEADER.size + 16)
    assert pointers.tolist() == [0, 4 * longest, 8 * longest, 8 * longest + 20]


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


# Every fault that Megatron's reader lets pass is found, by file and byte, in both widths.
DOCUMENTS = [[1, 2, 3], [7], [10, 11, 12, 13, 14], [20, 21]]
LENGTHS, POINTERS, BOUNDARIES, INDEX_END = 34, 50, 82, 122  # 34, + 4 x 4, + 8 x 4, + 8 x 5
TOKENS = 15


def faults(width: int) -> dict[str, tuple[str, Damage, str, int]]:
    """Name of the fault -> file, damage, file and byte the verifier must name."""

    def index(damage: Damage, at: int) -> tuple[str, Damage, str, int]:
        return "idx", damage, "idx", at

    def tokens(damage: Damage, at: int) -> tuple[str, Damage, str, int]:
        return "bin", damage, "bin", at

    def token(place: int, value: int) -> tuple[str, Damage, str, int]:
        return tokens(put_number(place * width, {2: "<H", 4: "<I"}[width], value), place * width)

    return {
        "wrong magic": index(put(0, b"TNTIDX\0\0\0"), 0),
        "wrong version": index(put_number(9, "<Q", 2), 9),
        "code of another type": index(put_number(17, "B", 3), 17),
        "code of the other width": index(put_number(17, "B", {2: 4, 4: 8}[width]), 17),
        "header cut": index(keep(20), 20),
        "index shorter than its header says": index(keep(-1), INDEX_END - 1),
        "more sequences than the index holds": index(put_number(18, "<Q", 5), INDEX_END),
        "fewer sequences than the index holds": index(put_number(18, "<Q", 3), INDEX_END - 12),
        "boundaries that are not one more": index(put(18, b"\6" + bytes(7) + b"\2"), 26),  # 12 x 6 + 8 x 2 = 88 bytes
        "junk behind the index": index(append(b"\0"), INDEX_END),
        "multimodal modes behind the index": index(append(bytes(4)), INDEX_END),
        "first boundary not 0": index(put_number(BOUNDARIES, "<q", 1), BOUNDARIES),
        "inner boundary repeated": index(put_number(BOUNDARIES + 16, "<q", 1), BOUNDARIES + 16),
        "last boundary not S": index(put_number(BOUNDARIES + 32, "<q", 3), BOUNDARIES + 32),
        "first pointer not 0": index(put_number(POINTERS, "<q", 2), POINTERS),
        "wrong pointer": index(put_number(POINTERS + 16, "<q", 10), POINTERS + 16),
        "negative pointer": index(put_number(POINTERS + 24, "<q", -(1 << 31)), POINTERS + 24),
        "inner length changed": index(put_number(LENGTHS + 4, "<i", 3), POINTERS + 16),
        "length of zero": index(put_number(LENGTHS + 4, "<i", 0), LENGTHS + 4),
        "negative length": index(put_number(LENGTHS + 8, "<i", -5), LENGTHS + 8),
        # A last length the tokens do not bear out shows where the tokens end.
        "last length too large": ("idx", put_number(LENGTHS + 12, "<i", 4), "bin", TOKENS * width),
        "last length too small": ("idx", put_number(LENGTHS + 12, "<i", 2), "bin", (TOKENS - 1) * width),
        "tokens truncated": tokens(keep(-width), (TOKENS - 1) * width),
        "tokens truncated within one": tokens(keep(-1), TOKENS * width - 1),
        "no tokens left": tokens(keep(0), 0),
        "junk behind the tokens": tokens(append(bytes(4)), TOKENS * width),
        "id beyond the vocabulary": token(9, {2: 65_535, 4: 70_000}[width]),
        "first document without EOD": token(3, 4),
        "last document without EOD": token(14, 4),
    }


@pytest.fixture(params=[2, 4], ids=["uint16", "int32"])
def width(request):
    return request.param


@pytest.fixture
def prefix(tmp_path, width):
    size = VOCABULARY[width]
    batches = oracle.batches_of(DOCUMENTS, "u2", [2])
    write_part(tmp_path, "oscar.v1", batches, dtype=token_dtype(size), eod_id=EOD, vocabulary_size=size)
    return tmp_path / "oscar.v1"


@pytest.mark.parametrize("fault", faults(2))
def test_megatron_verify_names_file_and_byte_of(prefix, width, fault):
    damaged, damage, named, at = faults(width)[fault]
    path = prefix.with_name(f"{prefix.name}.{damaged}")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(VerificationError) as caught:
        verify_part(prefix, vocabulary_size=VOCABULARY[width], eod_id=EOD)
    assert f"{prefix}.{named}, byte {at}\n" in str(caught.value)


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_megatron_verify_names_the_missing_file(prefix, width, suffix):
    prefix.with_name(f"{prefix.name}.{suffix}").unlink()
    with raises("export.file_missing", f"{prefix}.{suffix}"):
        verify_part(prefix, vocabulary_size=VOCABULARY[width], eod_id=EOD)


def write_wide(folder, name, vocabulary_size, *, as_preprocess_data=False):
    dtype = token_dtype(vocabulary_size, as_preprocess_data=as_preprocess_data)
    batches = oracle.batches_of(DOCUMENTS, "u4", [])
    write_part(folder, name, batches, dtype=dtype, eod_id=EOD, vocabulary_size=vocabulary_size)


def test_megatron_negative_int32_id_is_outside_the_vocabulary(tmp_path):
    write_wide(tmp_path, "x", 70_000)
    path = tmp_path / "x.bin"
    path.write_bytes(put_number(4, "<i", -1)(path.read_bytes()))
    with raises("export.id_not_in_vocabulary", "-1"):
        verify_part(tmp_path / "x", vocabulary_size=70_000, eod_id=EOD)


def test_megatron_whole_index_of_the_other_width_is_found_by_the_token_file(tmp_path):
    # From 65,500 to 65,536 both codes are allowed, so the vocabulary cannot tell; the size of the tokens can.
    write_wide(tmp_path, "a", 65_536)
    write_wide(tmp_path, "b", 65_536, as_preprocess_data=True)
    (tmp_path / "b.idx").replace(tmp_path / "a.idx")
    with raises("megatron.index_of_other_width", "a.idx, byte 17"):
        verify_part(tmp_path / "a", vocabulary_size=65_536, eod_id=EOD)
