"""The wheel, made once, in a folder outside of the repository."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wheel.fresh import make_environment, make_wheel


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """On disk: environments are linked from uv's cache, which a file system in memory cannot do."""
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-wheel-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def wheel(folder: Path) -> Path:
    return make_wheel(folder / "wheels")


@pytest.fixture(scope="session")
def program(folder: Path, wheel: Path) -> Path:
    """The interpreter of an environment into which the wheel alone was installed."""
    return make_environment(folder / "program-env", wheel)
