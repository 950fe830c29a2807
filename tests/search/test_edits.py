"""A long-lived work folder against builds from scratch: a few steps here, thousands by `python benchmarks/edits.py`."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.quick import quick
from tests.search.bucket import SourcesInABucket
from tests.search.edits import LongLivedFolder
from tests.search.run import search

KINDS = 5
"""Of edits, at least; a search that repeats one edit finds nothing."""


class Recorder(RuleBasedStateMachine):
    """Counts its steps by what they were given."""

    seen: ClassVar[Counter[str]] = Counter()

    @rule(number=st.integers(0, 99))
    def step(self, number: int) -> None:
        self.seen[str(number)] += 1


def test_long_lived_folder_after_random_edits_delivers_what_a_build_from_scratch_does() -> None:
    counted = search(LongLivedFolder, 7, folders=1, steps=12)
    assert counted["steps"] >= 10
    assert counted["delivered"]
    assert len(counted - Counter(steps=counted["steps"], delivered=counted["delivered"])) >= KINDS, counted


def test_search_of_another_seed_takes_other_steps_and_of_the_same_seed_the_same() -> None:
    seeds = [dict(search(Recorder, seed, folders=2, steps=9)) for seed in (1, 2, 1)]
    assert seeds[0] != seeds[1]
    assert seeds[0] == seeds[2]


@pytest.mark.parametrize("number", quick(range(5), 0, slow=1))
def test_long_lived_folder_of_many_seeds_delivers_what_a_build_from_scratch_does(number: int) -> None:
    assert search(LongLivedFolder, number, folders=5, steps=20)["delivered"]


@pytest.mark.slow
def test_long_lived_folder_whose_sources_are_in_a_bucket_delivers_what_a_build_from_scratch_does(
    moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setattr(SourcesInABucket, "client", moto_client)
    assert search(SourcesInABucket, 4, folders=2, steps=11)["delivered"]
