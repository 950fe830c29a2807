"""A few of the flips that benchmarks/flips.py makes a thousand of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.flips import FOLDER, STORE, WORK, FinishedBuild, Flip
from tests.faults.planted_builds import own_s3, warm_up


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedBuild]:
    folder: Path = tmp_path_factory.mktemp("flips")
    warm_up(folder / "warm")
    with pytest.MonkeyPatch.context() as patch, own_s3(folder, patch.setenv) as endpoint:
        yield FinishedBuild(folder / "finished", endpoint)


def require_made_good(flips: list[Flip]) -> None:
    told = [flip for flip in flips if flip.end != "no meaning"]
    assert told
    assert [flip for flip in told if flip.end not in {"right", "refused, then right"}] == []
    assert [flip for flip in told if flip.left or not (flip.seen and flip.alone)] == []


@pytest.mark.slow
def test_flips_at_random_are_seen_and_made_good_by_their_producer(finished: FinishedBuild) -> None:
    require_made_good([finished.flip(seed) for seed in range(10)])


@pytest.mark.slow
def test_flips_of_tokens_a_file_and_an_object_are_seen_and_made_good(finished: FinishedBuild) -> None:
    chosen = [
        finished.flip_of(WORK, "gather/tokens", 1, after="exports"),
        finished.flip_of(FOLDER, "megatron/tiny_n_text_document.bin", 2),
        finished.flip_of(STORE, "numpy/train/train_n.npy", 3),
    ]
    require_made_good(chosen)
