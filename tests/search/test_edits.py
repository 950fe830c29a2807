"""A long-lived work folder against builds from scratch: a few steps here, thousands by `python benchmarks/edits.py`."""

from __future__ import annotations

import pytest

from tests.quick import quick
from tests.search.edits import LongLivedFolder
from tests.search.run import search


def test_long_lived_folder_after_random_edits_delivers_what_a_build_from_scratch_does() -> None:
    counted = search(LongLivedFolder, 3, folders=1, steps=8)
    assert counted["steps"] >= 7
    assert counted["delivered"]


@pytest.mark.parametrize("number", quick(range(5), 0, slow=1))
def test_long_lived_folder_of_many_seeds_delivers_what_a_build_from_scratch_does(number: int) -> None:
    assert search(LongLivedFolder, number, folders=5, steps=20)["delivered"]
