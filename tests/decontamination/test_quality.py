"""Real items planted into real text; the whole measurement is benchmarks/decontamination.py."""

from __future__ import annotations

import pytest

from tests.decontamination import planted


@pytest.mark.skipif(not planted.is_there(), reason="the benchmarks and the corpus are not in ../shared/data")
def test_search_of_the_labelled_set_reaches_recall_and_precision() -> None:
    measured = planted.measure(planted.plant(half=1))
    assert all(measured.recall(way) == 1 for way in planted.EXACT_WAYS)
    assert all(measured.recall(way) >= 0.9 for way in planted.WAYS)
    assert measured.recall() >= 0.97
    assert measured.precision() >= 0.985


@pytest.mark.slow
@pytest.mark.skipif(not planted.is_there(), reason="the benchmarks and the corpus are not in ../shared/data")
def test_search_of_other_draws_of_the_labelled_set_reaches_recall_and_precision() -> None:
    draws = [planted.measure(planted.plant(half=1, draw=draw)) for draw in (1, 2)]
    for measured in draws:
        assert measured.recall() >= 0.97
        assert measured.precision() >= 0.985
        assert measured.recall("short items") == 1
    for way in planted.WAYS:
        assert sum(draw.met[way] for draw in draws) >= 0.9 * sum(draw.documents[way] for draw in draws)
