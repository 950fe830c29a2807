"""Peak disk and the cost of a refresh, as they are stated before a build, against what the build then takes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.disk import sampled_disk
from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.local import build_dataset
from corpusmill.builds.room import Held, moments
from corpusmill.cli import app
from corpusmill.config import check_config
from deploy.sample_corpus import write_sample_corpus
from tests.system.corpus import configuration, write_corpus


def test_moments_of_reclaimed_stages_go_with_the_wave_of_their_last_reader() -> None:
    held = [
        Held("index", 10),
        Held("scatter", 1, 20),
        Held("gather", 2, 30),
        Held("export", 0, 40),
    ]
    actual = moments(held)
    assert max(actual["keep"]) == actual["keep"][-1] == (103, 40)
    assert actual["eager"][-1] == (13, 40)
    assert max(work for work, _ in actual["eager"]) == max(map(sum, actual["eager"])) == 10 + 1 + 2 + 30 + 40
    assert max(map(sum, moments([Held("export", 0, 40)], handed_over=False)["eager"])) == 2 * 40


def test_moments_of_two_kinds_of_records_are_freed_one_after_the_other() -> None:
    kinds = ("documents", "contexts")
    held = [
        *(Held("scatter", 0, 10, kind) for kind in kinds),
        *(Held("gather", 1, 10, kind, kind) for kind in kinds),
        Held("export", 0, 2, "webdataset", "contexts"),
        Held("export", 0, 5, "numpy", "documents"),
        Held("export", 0, 6, "documents", "documents"),
    ]
    eager = [size for size, _ in itertools.groupby(work for work, _ in moments(held)["eager"])]
    assert eager[: eager.index(22)] == [0, 10, 20, 20 + 11, 31 - 10 + 11]
    assert eager[eager.index(22) :] == [22, 22 + 2, 24 - 10 + 5, 19 + 6, 25 - 10, 2]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 40 MB of text."""
    folder = tmp_path_factory.mktemp("sample") / "corpus"
    write_sample_corpus(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("reclaim", ["keep", "eager"])
@pytest.mark.parametrize("order", ["random", "source"])
def test_stated_peak_is_within_a_tenth_of_the_measured_one(
    tmp_path: Path, sample: Path, reclaim: str, order: str
) -> None:
    changes: dict[str, Any] = {
        "source": {"paths": [str(sample)], "shard_bytes": "8MB"},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "shuffle": {"seed": 7, "order": "random"} if order == "random" else {"order": "source"},
        "estimate": {"sample_bytes": "16MB"},
        "reclaim": reclaim,
    }
    config = check_config(configuration(tmp_path, **changes), where="test")
    stated = moments(estimate_dataset(config).held)[reclaim]
    with sampled_disk(tmp_path / "work", tmp_path / "outputs") as seen:
        build_dataset(config, workers=1)  # with two, so few steps of each kind would overlap
    assert max(map(sum, stated)) == pytest.approx(max(seen), rel=0.1)


def test_plan_states_peak_disk_with_both_settings(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(configuration(tmp_path, reclaim="eager")))
    said = CliRunner().invoke(app, ["plan", str(file)]).output
    assert said.count("peak disk") == 2
    assert "(reclaim: eager, as configured)" in said
