"""Our tar is tarfile's GNU tar, byte for byte, and our reader lets no byte pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import VerificationError
from corpusmill.export.tar import end_of_archive, member_header, padding, read_members
from tests.oracles import export as oracle
from tests.oracles.export import append, keep, put
from tests.raising import raises

names = st.text("abcXYZ019_-.", min_size=1, max_size=100)


def archive(members: list[tuple[str, bytes]]) -> bytes:
    data = b"".join(member_header(name.encode(), len(body)) + body + padding(len(body)) for name, body in members)
    return data + end_of_archive(len(data))


@given(st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=24))
def test_webdataset_archive_equals_tarfiles_gnu_format(members):
    assert archive(members) == oracle.tar_of(members)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8**11 - 1])
def test_webdataset_header_equals_tarfiles_for_any_size(size):
    import tarfile

    info = tarfile.TarInfo("00000000_00000000_x.json.gz")
    info.size = size
    assert member_header(info.name.encode(), size) == info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(("name", "size"), [(b"", 0), (b"a" * 101, 0), (b"a\0b", 0), (b"a", 8**11)])
def test_webdataset_member_that_needs_an_extra_header_is_refused(name, size):
    with raises("tar.member_does_not_fit"):
        member_header(name, size)


@given(members=st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=24))
def test_webdataset_read_members_is_the_inverse(tmp_path_factory, members):
    path = tmp_path_factory.mktemp("tar") / "x.tar"
    data = archive(members)
    path.write_bytes(data)
    actual = list(read_members(path))
    assert [(name, body) for name, _, body in actual] == members
    assert all(data[at : at + len(body)] == body for _, at, body in actual)


MEMBERS = [("a.json.gz", b"x" * 600), ("b.json.gz", b"y" * 512)]  # headers at 0 and 1536, end at 2560, 10240 bytes


@pytest.mark.parametrize(
    ("damage", "at"),
    [
        (put(0, b"c"), 153),  # another name: the checksum no longer fits it
        (put(0, b"\0"), 0),
        (put(3, b"t"), 153),
        (put(106, b"5"), 106),
        (put(136, b"1"), 136),
        (put(124, b"8"), 124),
        (put(135, b" "), 135),
        (put(148, b"1"), 148),
        (put(156, b"5"), 156),
        (put(257, b"ustar\x0000"), 262),
        (put(265, b"root"), 265),
        (put(511, b"\1"), 511),
        (put(1112, b"\1"), 1112),
        (put(1536 + 106, b"5"), 1642),
        (put(2560, b"\1"), 2684),
        (put(2561 + 512, b"\1"), 3073),
        (put(10_239, b"\1"), 10_239),
        (keep(100), 100),
        (keep(512), 512),
        (keep(1000), 1000),
        (keep(1500), 1500),
        (keep(1536), 1536),
        (keep(2560), 2560),
        (keep(3072), 3072),
        (keep(10_239), 10_239),
        (keep(0), 0),
        (append(b"\0"), 10_240),
        (append(bytes(10_240)), 10_240),
    ],
)
def test_webdataset_read_members_names_the_first_wrong_byte(tmp_path, damage, at):
    path = tmp_path / "x.tar"
    path.write_bytes(damage(archive(MEMBERS)))
    with pytest.raises(VerificationError) as caught:
        list(read_members(path))
    assert f"{path}, byte {at}\n" in str(caught.value)


@given(at=st.integers(0, 10_239), bit=st.integers(0, 7))
def test_webdataset_any_flipped_bit_outside_the_bodies_is_found(tmp_path_factory, at, bit):
    path = tmp_path_factory.mktemp("tar") / "x.tar"
    data = bytearray(archive(MEMBERS))
    data[at] ^= 1 << bit
    path.write_bytes(data)
    if 512 <= at < 1112 or 2048 <= at < 2560:
        assert [body for _, _, body in read_members(path)] != [body for _, body in MEMBERS]
    else:
        with pytest.raises(VerificationError):
            list(read_members(path))
