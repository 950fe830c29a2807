"""What a build asks of a bucket and moves, against what is estimated of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.builds.estimate import Moved, estimate_dataset, moved_by, render_estimate
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begin_run
from corpusmill.engine.work_folder.moved import moved
from corpusmill.storage.mirrored import address_of
from tests.engine.work_folder.machines import keys, machine, work_folder
from tests.system.corpus import configuration, write_corpus


def config_of(root: Path, documents: int, **changes: object) -> DatasetConfig:
    write_corpus(root / "corpus", documents=documents)
    exports = {"webdataset": {"context_tokens": 64}, "numpy": {}}
    values = configuration(root, work_folder=work_folder(), exports=exports, **changes)
    return check_config(values, where="test")


def built(config: DatasetConfig, folder: Path, *, apart: bool) -> tuple[RunnableBuild, Moved]:
    """A build by one process, whose stages are run by machines of their own if `apart`; what it moved."""
    before = moved().as_counts()
    with machine(folder, "plan"):
        plan = address_of(begin_run(plan_dataset(config, to_build=True)))
    for stage in GRAPH.names:
        with machine(folder, stage if apart else "plan"):
            build = open_build(plan)
            for unit in build.units(stage):
                build.run(stage, unit)
    counts = {name: count - before[name] for name, count in moved().as_counts().items()}
    return build, Moved(counts["requests"], counts["bytes_received"] + counts["bytes_sent"])


def within(estimated: Moved, actual: Moved, times: float) -> bool:
    pairs = zip(estimated, actual, strict=True)
    return all(of_actual / times <= of_estimated <= of_actual * times for of_estimated, of_actual in pairs)


@pytest.mark.slow
def test_moved_by_one_machine_is_counted_from_receipts(bucket: str, tmp_path: Path) -> None:
    build, actual = built(config_of(tmp_path, 40), tmp_path / "one", apart=False)
    estimated = moved_by(build, len(build.plan.shards))[0]
    assert within(estimated, actual, 1.25), (estimated, actual)


@pytest.mark.slow
def test_moved_by_machines_apart_is_within_half_of_the_estimate(bucket: str, tmp_path: Path) -> None:
    build, actual = built(config_of(tmp_path, 120), tmp_path / "many", apart=True)
    estimated = moved_by(build, len(build.plan.shards))[1]
    assert within(estimated, actual, 1.5), (estimated, actual)


@pytest.mark.slow
def test_estimate_states_requests_and_leaves_no_sample_in_the_bucket(bucket: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, 120, estimate={"sample_bytes": "40KiB"})
    estimate = estimate_dataset(config)
    assert keys() == ["mill/tiny/estimate.json"]
    kept, apart = (Moved(*figures) for figures in estimate.moved)
    assert f"{kept.requests:,} requests" in render_estimate(estimate)
    for estimated, is_apart in ((kept, False), (apart, True)):
        again = config.model_copy(update={"work_folder": f"{work_folder()}-{is_apart}"})
        actual = built(again, tmp_path / str(is_apart), apart=is_apart)[1]
        assert within(estimated, actual, 1.5), (estimated, actual)
