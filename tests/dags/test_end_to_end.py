"""The DAG over the real stages: the same bytes as the command line, the same with stages switched off, the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.graph import GRAPH
from corpusmill.builds.local import build_dataset
from corpusmill.builds.reprocess import finish
from corpusmill.config import load_config
from corpusmill.config.form import config_from_form
from tests.dags.conftest import dags_below
from tests.system.corpus import write_corpus

pytestmark = pytest.mark.slow

DEMO = Path(__file__).resolve().parents[2] / "dags" / "datasets" / "demo.yaml"
SMALL = {
    "name": "small",
    "source_paths": ["source"],
    "shard_bytes": "20KB",
    "dedup_mode": "remove",
    "minimum_bytes": 100,
}
SETTINGS: dict[str, Any] = {
    "work_folder": "airflow/work",
    "shuffle": {"memory": "64KiB"},
    "exports": {
        "webdataset": {"context_tokens": 65, "contexts_per_shard": 100},
        "numpy": {"tokens_per_shard": 5000},
        "megatron": {"part_bytes": "64KiB"},
        "nanoset": {"file_bytes": "64KiB"},
    },
}


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results(run: Any) -> dict[str, list[Any]]:
    """What each task returned, from Airflow's own records."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    actual: dict[str, list[Any]] = {}
    with create_session() as session:
        for scalar in session.scalars(
            select(XComModel).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
        ):
            actual.setdefault(scalar.task_id, []).append(XComModel.deserialize_value(scalar))
    return actual


def flat(values: list[Any]) -> list[str]:
    """The receipt paths that one task's instances returned: a list each, but the report's task one."""
    return [path for value in values for path in (value if isinstance(value, list) else [value])]


def of_stage(run: Any, stage: str) -> list[str]:
    """The receipt paths of a stage that a run's tasks returned."""
    paths = {path for task, values in results(run).items() if task != "plan" for path in flat(values)}
    return sorted(path for path in paths if Path(path).parents[1].name == stage)


def shards_of(run: Any, stage: str) -> list[str]:
    """The shards, or cells, whose receipts of a stage a run's tasks returned."""
    units = [Path(path).parent.name.rpartition("-")[0] for path in of_stage(run, stage)]
    return sorted({GRAPH[stage].schedule.task(unit) for unit in units})


def names(run: Any, task_id: str) -> list[str]:
    actual = [instance for instance in run.get_task_instances() if instance.task_id == task_id]
    return [item.rendered_map_index for item in sorted(actual, key=lambda item: item.map_index)]


def under_airflow(**settings: Any) -> dict[str, Any]:
    """A form for a small corpus, with more keys in its field `settings`."""
    return SMALL | {"destinations": ["airflow/outputs"], "settings": json.dumps(SETTINGS | settings)}


def by_command(**settings: Any) -> dict[str, Any]:
    """The same for a build without Airflow."""
    settings = SETTINGS | {"work_folder": "local/work"} | settings
    return SMALL | {"destinations": ["local/outputs"], "settings": json.dumps(settings)}


@dataclass
class Built:
    """A dataset that the DAG has built once, for tests that go on from there: a run of the DAG takes half a minute."""

    root: Path
    run_dag: Callable[..., Any]
    run: Any
    outputs: dict[str, bytes]


@pytest.fixture(scope="module")
def built(airflow_database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    root = tmp_path_factory.mktemp("built")
    write_corpus(root / "source")
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_dag = dags_below(root, monkeypatch)
        run = run_dag(**under_airflow())
        yield Built(root, run_dag, run, files_below(root / "airflow" / "outputs"))


def test_dag_writes_the_same_bytes_as_the_command_line(built: Built) -> None:
    """One part does all rounds of a step at once, and one task the files of both megatron and nanoset."""
    assert built.run.state == "success"
    ran = [item.task_id for item in built.run.get_task_instances() if item.state == "success"]
    assert len([name for name in ran if name.startswith(("index", "shuffle"))]) == 2
    assert {f"export.{name}" for name in ("webdataset", "numpy", "megatron")} == {
        name for name in ran if name.startswith("export.")
    }
    build_dataset(config_from_form(by_command(), load_config(DEMO)), workers=1)
    assert len(built.outputs) > 10
    assert built.outputs == files_below(built.root / "local" / "outputs")


def test_dag_in_source_order_writes_the_same_bytes_as_the_command_line(
    run_dag: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And several parts a step, each of which says what it ran."""
    write_corpus(tmp_path / "source")
    in_order = {"shuffle": {"order": "source"}}
    monkeypatch.setattr("corpusmill.engine.parts.PART_BYTES", 30_000)
    run = run_dag(**under_airflow(**in_order))
    assert run.state == "success"
    shards = shards_of(run, "download")
    assert shards_of(run, "gather") == shards  # a cell is a shard

    build_dataset(config_from_form(by_command(**in_order), load_config(DEMO)), workers=1)
    delivered = files_below(tmp_path / "airflow" / "outputs")
    assert any(name.endswith("00000_unshuffled.ds") for name in delivered)
    assert delivered == files_below(tmp_path / "local" / "outputs")

    handed_on = results(run)
    (given,) = handed_on.pop("plan")
    assert [item["part"] for item in given] == ["1/2", "2/2"]
    assert all(set(item) == {"part", "plan_receipt", "airflow"} for item in given)
    paths = [Path(path) for values in handed_on.values() for path in flat(values)]
    assert paths
    assert all(path.name == "receipt.json" and path.is_file() for path in paths)

    said = [name.split(" to ") for name in names(run, "tokenize")]
    assert (said[0][0], said[-1][-1]) == (shards[0], shards[-1])
    assert len(said) == 2
    assert any(name.startswith("numpy") for name in names(run, "export.numpy"))


def test_changed_setting_runs_only_what_depends_on_it(built: Built) -> None:
    other = built.run_dag(**under_airflow() | {"seed": "99"})
    for stage in ("download", "index", "union", "writeback", "tokenize"):
        assert of_stage(built.run, stage) == of_stage(other, stage) != [], stage
    for stage in ("scatter", "gather", "export", "upload"):
        assert not set(of_stage(built.run, stage)) & set(of_stage(other, stage)), stage


def test_reprocess_shard_after_a_dry_run_builds_what_was_delivered_and_nothing_changed(built: Built) -> None:
    dry = built.run_dag(**under_airflow() | {"dry_run": True, "minimum_bytes": 50})
    assert dry.state == "success"
    paths = of_stage(built.run, "tokenize")
    before = {path: Path(path).stat().st_mtime_ns for path in paths}
    outputs = files_below(built.root / "airflow" / "outputs")
    wanted = {"dataset": "small", "work_folder": "airflow/work", "stage": "tokenize", "shard": 1}
    run = built.run_dag("reprocess_shard", **wanted)
    assert run.state == "success"
    again = [path for path, at in before.items() if Path(path).stat().st_mtime_ns != at]
    assert again == [path for path in paths if "/00001-" in path]
    assert files_below(built.root / "airflow" / "outputs") == outputs
    printed = finish(Path(results(run)["plan"][0][0]["plan_receipt"]))
    assert "done again  tokenize 00001" in printed
    assert "tokenize" in printed
    assert " 0 changed" in printed


def test_reprocess_shard_of_a_dataset_that_is_not_there_fails_with_words(run_dag: Callable[..., Any]) -> None:
    run = run_dag("reprocess_shard", dataset="nothing", work_folder="nowhere", stage="tokenize", shard=0)
    assert run.state == "failed"
