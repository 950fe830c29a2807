"""The DAG over the real stages: the same bytes as the command line, the same with stages switched off, the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.builds.reprocess import finish
from corpusmill.config import load_config
from corpusmill.form import config_from_form
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
    "shuffle_memory": "64KiB",
    "webdataset_context_tokens": 65,
    "webdataset_contexts_per_shard": 100,
    "numpy_tokens_per_shard": 5000,
    "megatron_part_bytes": "64KiB",
    "nanoset_file_bytes": "64KiB",
}


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def results(run: Any) -> dict[str, list[Any]]:
    """What each task handed on, from Airflow's own records."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    actual: dict[str, list[Any]] = {}
    with create_session() as session:
        for scalar in session.scalars(select(XComModel).where(XComModel.run_id == run.run_id)):
            actual.setdefault(scalar.task_id, []).append(XComModel.deserialize_value(scalar))
    return actual


def flat(values: list[Any]) -> list[str]:
    """The receipt paths that one task's instances handed on: one, or one for each kind of record."""
    return [path for value in values for path in (value if isinstance(value, list) else [value])]


def names(run: Any, task_id: str) -> list[str]:
    actual = [instance for instance in run.get_task_instances() if instance.task_id == task_id]
    return [item.rendered_map_index for item in sorted(actual, key=lambda item: item.map_index)]


FOLDERS = {"destinations": ["airflow/outputs"], "work_folder": "airflow/work"}


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
        run = run_dag(**SMALL | FOLDERS)
        yield Built(root, run_dag, run, files_below(root / "airflow" / "outputs"))


@pytest.fixture
def form(tmp_path: Path, run_dag: Callable[..., Any]) -> dict[str, Any]:
    """Form values for a small corpus below CORPUSMILL_ROOT (which `run_dag` sets)."""
    write_corpus(tmp_path / "source")
    return SMALL | FOLDERS


def test_dag_writes_the_same_bytes_as_the_command_line(built: Built) -> None:
    assert built.run.state == "success"
    values = SMALL | {"destinations": ["local/outputs"], "work_folder": "local/work"}
    build_dataset(config_from_form(values, load_config(DEMO)), workers=1)
    assert len(built.outputs) > 10
    assert built.outputs == files_below(built.root / "local" / "outputs")


def test_dag_in_source_order_writes_the_same_bytes_as_the_command_line(
    run_dag: Callable[..., Any], form: dict[str, Any], tmp_path: Path
) -> None:
    in_order = form | {"shuffle_order": "source"}
    run = run_dag(**in_order)
    assert run.state == "success"
    assert names(run, "shuffle.gather") == names(run, "shuffle.scatter")  # a cell is a shard

    values = in_order | {"destinations": ["local/outputs"], "work_folder": "local/work"}
    build_dataset(config_from_form(values, load_config(DEMO)), workers=1)
    under_airflow = files_below(tmp_path / "airflow" / "outputs")
    assert any(name.endswith("00000_unshuffled.ds") for name in under_airflow)
    assert under_airflow == files_below(tmp_path / "local" / "outputs")

    handed_on = results(run)
    assert handed_on.pop("estimate") == [True]
    lists = {name for name in handed_on if "list_" in name}
    units = [unit for name in lists for listed in handed_on[name] for unit in listed]
    assert all(set(unit) == {"unit", "plan_receipt", "airflow"} for unit in units)
    paths = [Path(path) for name, values in handed_on.items() if name not in lists for path in flat(values)]
    assert paths
    assert all(path.name == "receipt.json" and path.is_file() for path in paths)

    assert names(run, "tokenize")[:2] == ["00000", "00001"]
    assert names(run, "shuffle.gather")[:2] == ["00000", "00001"]
    assert {name.split("-")[0] for name in names(run, "exports.export")} == {"webdataset", "numpy", "documents"}


def test_dry_run_ends_with_the_estimate_and_builds_nothing(
    run_dag: Callable[..., Any], form: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_dag(**form | {"dry_run": True})
    assert run.state == "success"
    states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
    assert {name for name, state in states.items() if state == "success"} == {"plan", "estimate", "close"}
    assert set(states.values()) == {"success", "skipped"}
    assert not (tmp_path / "airflow" / "outputs").exists()
    handed_on = results(run)["estimate"]
    assert any(isinstance(item, dict) and item["tokens_low"] <= item["tokens"] for item in handed_on)
    printed = capsys.readouterr().out
    assert "cores like these" in printed


def test_stages_that_are_switched_off_are_skipped_and_the_rest_runs(
    run_dag: Callable[..., Any], form: dict[str, Any], tmp_path: Path
) -> None:
    run = run_dag(**form | {"dedup_mode": "none", "export_webdataset": "off"})
    assert run.state == "success"
    states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
    ranges = ("anchor", "shared", "context", "settle", "border", "suffix_array", "match", "union")
    references = ("reference_index", "reference_context", "reference_border")
    skipped = {
        "quarantine",
        "decisions",
        "join",
        "copies",
        "filter",
        "decided",
        "benchmarks",
        "decontaminate",
        "reference",
        "refine",
        "lost",
        *(f"find_ranges.{stage}" for stage in (*ranges, *references)),
        "writeback",
        "budget",
    }
    assert {name for name, state in states.items() if state == "skipped"} == skipped
    assert not [name for name in files_below(tmp_path / "airflow" / "outputs") if name.endswith(".tar")]


def test_changed_setting_runs_only_what_depends_on_it(built: Built) -> None:
    first, second = results(built.run), results(built.run_dag(**SMALL | FOLDERS | {"seed": "99"}))
    for task in ("download", "index", "find_ranges.union", "writeback", "tokenize"):
        assert sorted(flat(first[task])) == sorted(flat(second[task])), task
    for task in ("shuffle.scatter", "shuffle.gather", "exports.export", "upload"):
        assert not set(flat(first[task])) & set(flat(second[task])), task


def test_reprocess_shard_after_a_dry_run_builds_what_was_delivered_and_nothing_changed(built: Built) -> None:
    dry = built.run_dag(**SMALL | FOLDERS | {"dry_run": True, "minimum_bytes": 50})
    assert dry.state == "success"
    paths = flat(results(built.run)["tokenize"])
    before = {path: Path(path).stat().st_mtime_ns for path in paths}
    outputs = files_below(built.root / "airflow" / "outputs")
    wanted = {"dataset": "small", "work_folder": "airflow/work", "stage": "tokenize", "shard": 1}
    run = built.run_dag("reprocess_shard", **wanted)
    assert run.state == "success"
    again = [path for path, at in before.items() if Path(path).stat().st_mtime_ns != at]
    assert again == [path for path in paths if "/00001-" in path]
    assert files_below(built.root / "airflow" / "outputs") == outputs
    printed = finish(Path(results(run)["plan"][0]))
    assert "done again  tokenize 00001" in printed
    assert "tokenize" in printed
    assert " 0 changed" in printed


def test_reprocess_shard_of_a_dataset_that_is_not_there_fails_with_words(run_dag: Callable[..., Any]) -> None:
    run = run_dag("reprocess_shard", dataset="nothing", work_folder="nowhere", stage="tokenize", shard=0)
    assert run.state == "failed"
