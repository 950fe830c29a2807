"""The bucket of a test: S3's protocol by moto, Google's by its emulator behind a front that honours generations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.quick import THOROUGH
from tests.work_folder.machines import ENDPOINT_OF, WORK_FOLDER, machine


@pytest.fixture(params=["s3", pytest.param("gs", marks=THOROUGH)])  # in every run test_commands.py tries gs://
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the variable that says where the store is; the test is the machine `first`."""
    kind = request.param
    if kind == "s3":
        monkeypatch.setenv(ENDPOINT_OF[kind], request.getfixturevalue("moto"))
    else:
        request.getfixturevalue("gcs")
    monkeypatch.setenv(WORK_FOLDER, f"{kind}://corpus/mill")
    with machine(tmp_path, "first"):
        yield ENDPOINT_OF[kind]
