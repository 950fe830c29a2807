"""Every fault that Megatron's reader lets pass is found, by file and byte, in both widths."""

from __future__ import annotations

import pytest

from corpusmill.errors import VerificationError
from corpusmill.export.megatron import token_dtype, verify_part, write_part
from tests.oracles import export as oracle
from tests.oracles.export import Damage, append, keep, put, put_number
from tests.raising import raises

DOCUMENTS = [[1, 2, 3], [7], [10, 11, 12, 13, 14], [20, 21]]
EOD = 50_256
VOCABULARY = {2: 50_257, 4: 70_000}
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
