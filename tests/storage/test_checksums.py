from __future__ import annotations

import base64
import hashlib
import zlib
from pathlib import Path

import google_crc32c
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.storage import open_verified, pieces_checksum
from corpusmill.storage.checksums import Checksum, Verifier, parse_checksum
from corpusmill.storage.crc64 import Crc64Nvme
from tests.oracles.storage import crc64nvme, multipart_etag
from tests.raising import raises


def test_crc64nvme_check_value_of_the_specification() -> None:
    running = Crc64Nvme()
    running.update(b"123456789")
    assert running.digest().hex() == "ae8b14860a799888"


@given(st.lists(st.binary(max_size=70), max_size=6))
def test_crc64nvme_equals_the_bitwise_one_however_it_is_fed(pieces: list[bytes]) -> None:
    running = Crc64Nvme()
    for piece in pieces:
        running.update(piece)
    assert int.from_bytes(running.digest(), "big") == crc64nvme(b"".join(pieces))


@given(st.binary(min_size=1, max_size=100), st.integers(1, 30), st.integers(1, 17))
def test_verifier_agrees_with_the_stores_checksums_and_notices_a_flipped_bit(data: bytes, part: int, cut: int) -> None:
    stated = [
        Checksum("sha256", hashlib.sha256(data).hexdigest()),
        Checksum("md5", hashlib.md5(data, usedforsecurity=False).hexdigest()),
        Checksum("crc32", f"{zlib.crc32(data):08x}"),
        Checksum("crc32c", f"{google_crc32c.value(data):08x}"),
        Checksum("crc64nvme", f"{crc64nvme(data):016x}"),
        Checksum("md5-parts", multipart_etag(data, part), part),
        Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(data)),
        Checksum("git-sha1", hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()),
    ]
    for content, wrong in ((data, 0), (bytes([data[0] ^ 1]) + data[1:], len(stated))):
        verifier = Verifier(stated, len(data))
        for at in range(0, len(content), cut):
            verifier.update(content[at : at + cut])
        assert len(verifier.contradicted()) == wrong
        assert verifier.own() == Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(content))
        assert parse_checksum(str(verifier.own())) == verifier.own()


def test_checksum_of_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="no checksum of kind"):
        Verifier([Checksum("adler", base64.b16encode(b"x").decode())], 1)


CONTENT = hashlib.shake_128(b"verified").digest(3_000_000)


def checksums(content: bytes) -> list[Checksum]:
    """Of a local copy, and as a store may state it."""
    return [
        Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(content)),
        Checksum("sha256", hashlib.sha256(content).hexdigest()),
    ]


def test_open_verified_unchanged_file_passes_even_if_not_read_to_its_end(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    for expected in checksums(CONTENT):
        with open_verified(path, expected, name="a") as stream:
            assert stream.read(5) == CONTENT[:5]


def test_open_verified_pieces_are_read_one_after_another_and_compared_together(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    pieces = ((2_000_000, 900_000), (10, 7))
    together = CONTENT[2_000_000:2_900_000] + CONTENT[10:17]
    assert pieces_checksum(path, pieces) == checksums(together)[0]
    for expected in checksums(together):
        with open_verified(path, expected, name="a", pieces=pieces) as stream:
            assert stream.read() == together


def test_open_verified_changed_file_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    for expected in checksums(CONTENT):
        with (
            raises("source.changed_during_build", "web/a", f"{expected.kind} {expected.value}, as downloaded"),
            open_verified(path, expected, name="web/a") as stream,
        ):
            stream.read(10)
