"""Pool and queue of the tasks of DAGs that know no configuration when they are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dags.conftest import DAGS
from tests.dags.live import tiny

BUILDING = ("build_dataset", "forget_documents", "reprocess_shard")
Parse = Callable[[], dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configurations, without any, where a pool and a queue for memory are set."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_MEMORY_POOL", "ram_gib")
    monkeypatch.setenv("CORPUSMILL_HEAVY_QUEUE", "ram_heavy")
    monkeypatch.delenv("CORPUSMILL_MEMORY_GIB", raising=False)
    return tmp_path


@pytest.fixture
def parse(airflow_database: None) -> Parse:
    """A function that parses the DAG file; {id: DAG}."""
    from airflow.dag_processing.dagbag import BundleDagBag

    dags = Path(DAGS)
    return lambda: BundleDagBag(str(dags / "build_dataset.py"), bundle_path=dags).dags


def write_two_configurations(folder: Path) -> None:
    """Whose deduplication takes 3 and 5 GiB; and files that are none."""
    for name, memory in (("some", "3GiB"), ("more", "5GiB")):
        dedup = {"mode": "remove", "minimum_bytes": 100, "memory": memory}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(tiny(name, dedup=dedup)))
    (folder / "broken.yaml").write_text("name: [")
    (folder / "binary.yaml").write_bytes(b"\xff\x00")
    (folder / "folder.yaml").mkdir()
    (folder / "link.yaml").symlink_to("nowhere")


def placed(dag: Any, stage: str) -> tuple[str, int, str]:
    task = dag.get_task(stage)
    return task.pool, task.pool_slots, task.queue


def test_placement_of_a_form_s_tasks_is_the_largest_need_of_the_folder(folder: Path, parse: Parse) -> None:
    write_two_configurations(folder)
    dags = parse()
    for dag_id in BUILDING:
        assert placed(dags[dag_id], "find_ranges.match") == ("ram_gib", 5, "ram_heavy"), dag_id
        assert placed(dags[dag_id], "tokenize") == ("default_pool", 1, "default"), dag_id


def test_placement_without_configurations_is_the_need_of_the_defaults(folder: Path, parse: Parse) -> None:
    dags = parse()
    for dag_id in BUILDING:
        assert placed(dags[dag_id], "find_ranges.match") == ("ram_gib", 1, "ram_heavy"), dag_id
        assert placed(dags[dag_id], "tokenize") == ("default_pool", 1, "default"), dag_id


def test_placement_of_more_than_the_pool_has_takes_the_whole_pool(
    folder: Path, parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a configuration that its own plan refuses would leave the tasks of all others waiting forever."""
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "4")
    write_two_configurations(folder)
    dags = parse()
    for dag_id in BUILDING:
        assert placed(dags[dag_id], "find_ranges.match") == ("ram_gib", 4, "ram_heavy"), dag_id
    assert placed(dags["dataset__some"], "find_ranges.match") == ("ram_gib", 3, "ram_heavy")
