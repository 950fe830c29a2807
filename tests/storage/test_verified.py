from __future__ import annotations

import hashlib
from pathlib import Path

import xxhash

from corpusmill.storage import Checksum, open_verified, pieces_checksum
from tests.raising import raises

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
