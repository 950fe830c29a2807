"""Where a work folder in a bucket is mirrored: what the environment says now, though it is asked for every receipt."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.storage.mirrored import address_of, cache_folder, mirror_of, object_of


def test_mirror_follows_the_environment_and_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path.resolve()
    monkeypatch.delenv("CORPUSMILL_CACHE", raising=False)
    for name in ("one", "two"):
        (root / name).mkdir()
        monkeypatch.setenv("CORPUSMILL_ROOT", str(root / name))
        assert cache_folder() == root / name / ".corpusmill" / "cache"
        assert object_of(mirror_of("s3://corpus/mill/receipt.json")) == ("s3://corpus", "mill/receipt.json")
        assert address_of(mirror_of("s3://corpus/mill/receipt.json")) == "s3://corpus/mill/receipt.json"
    elsewhere = mirror_of("s3://corpus/mill")
    monkeypatch.setenv("CORPUSMILL_CACHE", str(root / "cache"))
    assert cache_folder() == root / "cache"
    assert object_of(elsewhere) is None
    monkeypatch.delenv("CORPUSMILL_ROOT")
    monkeypatch.setenv("CORPUSMILL_CACHE", "below")
    for name in ("one", "two"):
        monkeypatch.chdir(root / name)
        assert cache_folder() == root / name / "below"
