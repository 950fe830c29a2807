"""WebDataset shards: tarfile and gzip read them, bytes are settled, every fault is found."""

from __future__ import annotations

import gzip
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import VerificationError
from corpusmill.export.webdataset import GZIP_HEADER, read_shard, shard_name, verify_shard, write_shard
from tests.oracles import export as oracle
from tests.oracles.export import put
from tests.raising import raises

CONTEXTS = np.array([[1, 2, 3], [4, 50_256, 0], [7, 7, 7]], np.uint32)
IDS = ["aa-0", "bb_1", "CC2"]
NAMES = ["00000012_00000000_aa-0.json.gz", "00000012_00000001_bb_1.json.gz", "00000012_00000002_CC2.json.gz"]


def write(path, contexts=CONTEXTS, ids=IDS, cuts=()):
    return write_shard(path, np.split(contexts, list(cuts)), ids, 12, vocabulary_size=100_277)


def verify(path, records=3, context_tokens=3, vocabulary_size=50_257):
    return verify_shard(path, context_tokens=context_tokens, vocabulary_size=vocabulary_size, records=records)


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / f"{shard_name(12)}.tar"
    write(path)
    return path


def test_webdataset_strangers_read_names_and_contexts(shard):
    assert shard.name == "shard_00000012.tar"
    assert oracle.contexts_of(shard.read_bytes()) == list(zip(NAMES, CONTEXTS.tolist(), strict=True))


def test_webdataset_archive_equals_tarfiles_around_our_bodies(shard):
    with tarfile.open(shard) as tar:
        bodies = [tar.extractfile(name).read() for name in NAMES]
    assert shard.read_bytes() == oracle.tar_of(list(zip(NAMES, bodies, strict=True)))


def test_webdataset_body_is_compact_json_in_gzip_without_time_or_name(shard):
    at, size = body_at(shard)
    body = shard.read_bytes()[at : at + size]
    assert body[:10] == GZIP_HEADER == b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"
    assert gzip.decompress(body) == b"[4,50256,0]"


@pytest.mark.parametrize("dtype", ["u2", "u4"])
@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 40)), seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 7))
)
def test_webdataset_write_then_read_is_identity_and_verifies(tmp_path_factory, dtype, shape, seed, cuts):
    path = tmp_path_factory.mktemp("wds") / "shard_00000012.tar"
    contexts = np.random.default_rng(seed).integers(0, 65_536, shape).astype(dtype)
    counts = write(path, contexts, [f"r{row}" for row in range(shape[0])], sorted(cuts))
    assert [context.tolist() for _, context in read_shard(path)] == contexts.tolist()
    assert counts == {"records": shape[0], "tokens": contexts.size, "bytes": path.stat().st_size}
    assert verify(path, *shape, vocabulary_size=65_536) == counts


def test_webdataset_same_bytes_for_any_dtype_layout_batches_and_folder(tmp_path, shard):
    for name, contexts, cuts in (
        ("u2", CONTEXTS.astype(np.uint16), ()),
        ("fortran", np.asfortranarray(CONTEXTS), ()),
        ("cut", CONTEXTS, (1, 1, 2)),
    ):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "other.tar"
        write(path, contexts, cuts=cuts)
        assert path.read_bytes() == shard.read_bytes()


def test_webdataset_without_a_record_there_is_no_file(tmp_path):
    counts = write_shard(tmp_path / "x.tar", [], [], 0, vocabulary_size=10)
    assert counts == {"records": 0, "tokens": 0, "bytes": 0}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ids", [IDS[:2], [*IDS, "dd"]])
def test_webdataset_other_number_of_ids_is_refused_and_leaves_nothing(tmp_path, ids):
    with raises("webdataset.ids_left_over webdataset.ids_missing"):
        write(tmp_path / "x.tar", ids=ids)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("record_id", ["a.b", "", "a/b", "a b", "é", "a" * 65, "a\n"])
def test_webdataset_id_that_would_change_the_key_is_refused(tmp_path, record_id):
    with raises("webdataset.id_unusable"):
        write(tmp_path / "x.tar", ids=[record_id, "b", "c"])


@pytest.mark.parametrize(
    "batches",
    [
        [CONTEXTS[0]],
        [CONTEXTS.astype(np.int64)],
        [CONTEXTS[:, :0]],
        [CONTEXTS, CONTEXTS[:, :2]],
    ],
)
def test_webdataset_contexts_of_another_shape_are_refused(tmp_path, batches):
    with raises("webdataset.batch_array"):
        write_shard(tmp_path / "x.tar", batches, ["a"] * 9, 0, vocabulary_size=100_277)
    assert list(tmp_path.iterdir()) == []


def test_webdataset_id_beyond_the_vocabulary_is_refused(tmp_path):
    with raises("export.id_outside_vocabulary", "50256"):
        write_shard(tmp_path / "x.tar", [CONTEXTS], IDS, 0, vocabulary_size=50_256)


def body_at(shard) -> tuple[int, int]:
    """Byte of the second member's body, and its size."""
    with tarfile.open(shard) as tar:
        info = tar.getmember(NAMES[1])
        return info.offset_data, info.size


def with_body(shard, body: bytes) -> None:
    """Write the shard again with another body for the second member, well-formed around it."""
    bodies = [gz(b"[1,2,3]"), body, gz(b"[7,7,7]")]
    shard.write_bytes(oracle.tar_of(list(zip(NAMES, bodies, strict=True))))


def gz(text: bytes) -> bytes:
    return GZIP_HEADER + gzip.compress(text, mtime=0)[10:]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[4,50256,0]",
        gzip.compress(b"[4,50256,0]", mtime=1),
        gz(b"[4,50256,0]")[:-1],
        gz(b"[4,50256,0]")[:14],
        gz(b"[4,50256,0]") + b"\0",
        gz(b"[4,50") + gz(b"256,0]"),
        put(15, b"\xff")(gz(b"[4,50256,0]")),
        put(len(gz(b"[4,50256,0]")) - 8, b"\0\0\0\0")(gz(b"[4,50256,0]")),
        gz(b"[4, 50256, 0]"),
        gz(b"[4,50256,0]\n"),
        gz(b"[4,50256,0"),
        gz(b"[4,50256.0,0]"),
        gz(b"[4,true,0]"),
        gz(b'[4,"50256",0]'),
        gz(b"[4,null,0]"),
        gz(b"[4,-1,0]"),
        gz(b"[4,4294967296,0]"),
        gz(b"[4,99999999999999999999,0]"),
        gz(b"[[4,50256,0]]"),
        gz(b"[[4],[1,2]]"),
        gz(b'{"a":1}'),
        gz(b"[]"),
        gz(b"4"),
        gz(b""),
        gz(b"[4,50256]"),
        gz(b"[4,50256,0,0]"),
        gz(b"[4,50257,0]"),
    ],
)
def test_webdataset_verify_names_the_body_that_is_not_a_context(shard, body):
    with_body(shard, body)
    at, _ = body_at(shard)
    with pytest.raises(VerificationError) as caught:
        verify(shard)
    assert f"{shard}, byte {at}\n" in str(caught.value)


def contexts_or_none(shard) -> list[list[int]] | None:
    try:
        return [context.tolist() for _, context in read_shard(shard)]
    except VerificationError:
        return None


@pytest.mark.parametrize("bit", range(8))
def test_webdataset_flipped_bit_of_a_body_is_found_or_changes_no_token(shard, bit):
    # Deflate leaves up to seven bits unused: after a stored block's header, or in the byte before checksum and length.
    whole = shard.read_bytes()
    begin, size = body_at(shard)
    for at in range(begin, begin + size):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        shard.write_bytes(data)
        actual = contexts_or_none(shard)
        assert actual is None or (at in (begin + 10, begin + size - 9) and actual == CONTEXTS.tolist())


@pytest.mark.parametrize(
    "names",
    [
        [NAMES[1], NAMES[0], NAMES[2]],
        [NAMES[0], NAMES[0], NAMES[2]],
        [NAMES[0], "00000013_00000001_b.json.gz", NAMES[2]],
        [NAMES[0], "00000012_00000001_b.b.json.gz", NAMES[2]],
        [NAMES[0], "00000012_00000001_.json.gz", NAMES[2]],
        [NAMES[0], "00000012_00000001_b.json", NAMES[2]],
        [NAMES[0], "00000012_00000001_bb_1.npy.gz", NAMES[2]],
    ],
)
def test_webdataset_verify_refuses_names_out_of_order_or_form(shard, names):
    bodies = [gz(b"[1,2,3]"), gz(b"[4,50256,0]"), gz(b"[7,7,7]")]
    shard.write_bytes(oracle.tar_of(list(zip(names, bodies, strict=True))))
    with raises("webdataset.member_name"):
        verify(shard)


@pytest.mark.parametrize(
    "planned", [{"records": 2}, {"records": 4}, {"context_tokens": 4}, {"vocabulary_size": 50_256}]
)
def test_webdataset_verify_refuses_what_was_not_planned(shard, planned):
    assert verify(shard)["records"] == 3
    with pytest.raises(VerificationError):
        verify(shard, **planned)


@pytest.mark.parametrize("name", ["shard_12.tar", "other.tar", "shard_00000013.tar"])
def test_webdataset_verify_refuses_a_file_of_another_name(shard, name):
    moved = shard.rename(shard.with_name(name))
    with raises("webdataset.member_name webdataset.shard_name"):
        verify(moved)
