"""The sources of most tests of mixtures."""

from __future__ import annotations

import pytest

from corpusmill.training.mixture import Source
from tests.training.mixture.datasets import dataset


@pytest.fixture
def sources(tmp_path) -> list[Source]:
    """Windows of 5 tokens (sequences of 4): 8, 2, 5 and 5; the first in two files, each with a tail that is lost."""
    return [
        dataset(tmp_path / "a", [[5, 5, 5, 3], [4, 4, 4, 4, 4, 1]]),
        dataset(tmp_path / "b", [[9]]),
        dataset(tmp_path / "c", [[24]]),
        dataset(tmp_path / "d", [[12, 11]]),
    ]
