"""Peak disk and the cost of a refresh, as they are stated before a build, against what the build then takes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from benchmarks.disk import sampled_disk
from corpusmill.builds.costs import refresh_costs
from corpusmill.builds.disk import Held, moments
from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.cli import app
from corpusmill.config import check_config, load_config
from corpusmill.engine.preview import preview
from corpusmill.stages.graph import open_build
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus


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
    made = CliRunner().invoke(app, ["sample-corpus", "--output", str(folder)])
    assert made.exit_code == 0, made.output
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


@pytest.mark.parametrize("reclaim", ["keep", "eager"])
def test_refresh_costs_what_the_plan_said(tmp_path: Path, reclaim: str) -> None:
    (tmp_path / "corpus").mkdir()
    source = {"paths": [str(tmp_path / "corpus")], "shard_bytes": 1}
    config = check_config(configuration(tmp_path, source=source, reclaim=reclaim), where="test")
    for number in range(5):
        (tmp_path / f"corpus/{number}.jsonl").write_bytes(lines_of(make_documents(80, seed=number), 80 * number))
    last = open_build(build_dataset(config, workers=1))
    again = open_build(last.plan_receipt)
    assert refresh_costs(again, last, preview(again)) == []
    (tmp_path / "corpus/5.jsonl").write_bytes(lines_of(make_documents(80, seed=5), 400))
    planned = open_build(plan_dataset(config))
    stated = {cost.stage: cost for cost in refresh_costs(planned, last, preview(planned))}
    before = {stage: {unit: last.finished_at(stage, unit) for unit in last.units(stage)} for stage in stated}
    built = open_build(build_dataset(config, workers=1))
    for stage in stated.keys() - {"upload"}:
        ran = [unit for unit in built.units(stage) if before[stage].get(unit) != built.finished_at(stage, unit)]
        read = sum(built.receipt(stage, unit).counts["bytes_read"] for unit in ran)
        assert read <= 1.25 * stated[stage].read_bytes, stage
        if stage in {"download", "index", "anchor", "match", "gather", "export"}:  # surely; others may run
            assert read == pytest.approx(stated[stage].read_bytes, rel=0.25), stage
    assert (stated["scatter"].again_bytes > 0) == (reclaim == "eager")


def test_plan_states_peak_disk_with_both_settings_and_the_cost_of_a_refresh(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(configuration(tmp_path, reclaim="eager")))

    def said() -> str:
        return CliRunner().invoke(app, ["plan", str(file)]).output

    assert said().count("peak disk") == 2
    assert "(reclaim: eager, as configured)" in said()
    assert "refresh" not in said()
    build_dataset(load_config(file), workers=1)
    assert "refresh     nothing to read and nothing to write" in said()
    (tmp_path / "corpus" / "new.jsonl").write_bytes(lines_of(make_documents(9, seed=5), 900))
    assert "of it freed before" in said()
