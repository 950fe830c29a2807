from __future__ import annotations

import hashlib

import pytest

from pipeline.errors import SourceError
from pipeline.storage import open_verified


def test_open_verified_unchanged_file_passes_even_if_not_read_to_its_end(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 3_000_000)
    with open_verified(path, hashlib.sha256(b"x" * 3_000_000).hexdigest(), name="a") as stream:
        assert stream.read(5) == b"xxxxx"


def test_open_verified_changed_file_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"changed")
    with (
        pytest.raises(SourceError, match="changed while") as caught,
        open_verified(path, "0" * 64, name="web/a") as stream,
    ):
        stream.read()
    assert "web/a" in str(caught.value)
