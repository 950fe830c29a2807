"""The bucket of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from corpusmill.engine.work_folder.objects import ENDPOINT
from tests.engine.work_folder.machines import WORK_FOLDER, machine


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moto: str) -> Iterator[str]:
    """The name of the variable that says where the store is; the test is the machine `first`."""
    monkeypatch.setenv(ENDPOINT, moto)
    monkeypatch.setenv(WORK_FOLDER, "s3://corpus/mill")
    with machine(tmp_path, "first"):
        yield ENDPOINT
