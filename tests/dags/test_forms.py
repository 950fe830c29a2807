"""The forms of DAGs that look at a built dataset, or at workers: what they take, refuse and do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.exceptions import ParamValidationError

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.inspect.difference import compare_versions, render_difference_page
from corpusmill_airflow.folder import work_folder_of
from tests.dags.conftest import DAGS, dags_below
from tests.dags.live import tiny
from tests.raising import raises
from tests.system.corpus import write_corpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configurations: x has the work folder `scratch`, broken cannot be read."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path / "datasets"))
    monkeypatch.delenv("CORPUSMILL_FORM_ROOTS", raising=False)
    folder = tmp_path / "datasets"
    folder.mkdir()
    (folder / "x.yaml").write_text(yaml.safe_dump(tiny("x", work_folder="scratch")))
    (folder / "broken.yaml").write_text("name: [")
    return folder


@pytest.mark.parametrize(
    ("dataset", "stated", "used"),
    [
        ("x", None, "scratch"),
        ("x", "", "scratch"),
        ("x", "other", "other"),
        ("without-file", None, "work"),
        ("../datasets/x", None, "work"),
        ("broken", "other", "other"),
    ],
)
def test_work_folder_of_a_form_is_the_stated_or_the_configured(
    folder: Path, dataset: str, stated: str | None, used: str
) -> None:
    assert work_folder_of({"dataset": dataset, "work_folder": stated}, folder) == used


@pytest.mark.parametrize(("dataset", "stated"), [("broken", None), ("x", "/etc")])
def test_work_folder_of_a_form_unknown_or_outside_the_roots_is_refused(
    folder: Path, dataset: str, stated: str | None
) -> None:
    with raises("config.not_yaml form.place_outside_roots"):
        work_folder_of({"dataset": dataset, "work_folder": stated}, folder)


def test_work_folder_outside_the_roots_is_used_if_the_configuration_names_it(folder: Path) -> None:
    (folder / "far.yaml").write_text(yaml.safe_dump(tiny("far", work_folder="/far/work")))
    assert work_folder_of({"dataset": "far", "work_folder": None}, folder) == "/far/work"


@pytest.mark.parametrize(
    ("name", "value"), [("old", ""), ("old", "../secret"), ("new", "0123456789abcdef"), ("new", None), ("dataset", 1)]
)
def test_form_of_compare_versions_refuses_what_names_no_version(dagbag: Any, name: str, value: object) -> None:
    with pytest.raises(ParamValidationError):
        dagbag.dags["compare_versions"].params.get_param(name).resolve(value)


def test_page_of_another_file_is_not_shown(tmp_path: Path, airflow_database: None) -> None:
    from corpusmill_airflow.pages.receipts import difference_page

    other = tmp_path / "differences" / "secret.html"
    other.parent.mkdir()
    other.write_text("secret")
    assert difference_page(str(other)) is None
    assert difference_page(f"{tmp_path}/differences/{'0' * 12}-{'1' * 12}.html") is None
    assert difference_page("") is None


@pytest.mark.slow
def test_check_workers_probes_as_often_as_its_form_says_and_the_next_run_as_the_default(
    run_dag: Callable[..., Any], tmp_path: Path
) -> None:
    """Airflow writes a run's values into the DAG's params; the function itself puts them back."""
    for form, probes in (({"work_folder": "work", "probes": 3}, 3), ({}, 16)):
        run = run_dag("check_workers", **form)
        assert run.state == "success"
        assert sum(instance.task_id == "probe" for instance in run.get_task_instances()) == probes
        assert list((tmp_path / "work").iterdir()) == []


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


@pytest.mark.parametrize(
    ("written", "pool_gib", "slots"),
    [
        (True, "", 5),  # the largest need of the folder
        (False, "", 1),  # that of the defaults
        # Otherwise a configuration that its own plan refuses would leave the tasks of all others waiting forever.
        (True, "4", 4),
    ],
)
def test_placement_of_a_form_s_tasks_is_the_largest_need_of_the_folder_or_the_whole_pool(
    airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool, pool_gib: str, slots: int
) -> None:
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_MEMORY_POOL", "ram_gib")
    monkeypatch.setenv("CORPUSMILL_HEAVY_QUEUE", "ram_heavy")
    monkeypatch.delenv("CORPUSMILL_MEMORY_GIB", raising=False)
    if pool_gib:
        monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", pool_gib)
    if written:
        write_two_configurations(tmp_path)
    dags = BundleDagBag(str(Path(DAGS) / "build_dataset.py"), bundle_path=Path(DAGS)).dags
    for dag_id in ("build_dataset", "forget_documents", "reprocess_shard"):
        assert placed(dags[dag_id], "find_ranges.match") == ("ram_gib", slots, "ram_heavy"), dag_id
        assert placed(dags[dag_id], "tokenize") == ("default_pool", 1, "default"), dag_id
    if written:
        assert placed(dags["dataset__some"], "find_ranges.match") == ("ram_gib", 3, "ram_heavy")


@pytest.fixture(scope="module")
def moved(airflow_database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path, list[str]]]:
    """(run_dag, root, versions of x: built in `work` with seed 1, then in `scratch` with seed 2)."""
    root = tmp_path_factory.mktemp("moved")
    (root / "datasets").mkdir()
    write_corpus(root / "source", documents=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORPUSMILL_ROOT", str(root))
        patch.setenv("CORPUSMILL_DATASETS", str(root / "datasets"))
        versions = []
        for seed, work_folder in ((1, "work"), (2, "scratch")):
            values = tiny("x", shuffle={"seed": seed}, work_folder=work_folder)
            (root / "datasets" / "x.yaml").write_text(yaml.safe_dump(values))
            build_dataset(load_config(root / "datasets" / "x.yaml"), workers=1)
            versions.append(latest(root))
        yield dags_below(root, patch), root, versions


def latest(root: Path) -> str:
    return (root / "outputs" / "x" / "latest").resolve().name


@pytest.mark.slow
def test_reprocess_shard_with_an_empty_work_folder_leaves_latest(moved: tuple[Any, Path, list[str]]) -> None:
    run_dag, root, (first, second) = moved
    assert first != second
    run = run_dag("reprocess_shard", dataset="x", stage="tokenize", shard=0)
    assert run.state == "success"
    [part] = run.get_task_instance("plan").xcom_pull(task_ids="plan")
    assert f"{root}/scratch/x/" in part["plan_receipt"]
    assert latest(root) == second


@pytest.mark.slow
def test_compare_versions_writes_the_page_that_the_command_writes_into_the_configured_work_folder(
    moved: tuple[Any, Path, list[str]],
) -> None:
    from corpusmill_airflow.pages.receipts import difference_page

    run_dag, root, (old, new) = moved
    run = run_dag("compare_versions", dataset="x", old=old, new="latest")
    assert run.state == "success"
    address = run.get_task_instance("compare").xcom_pull(task_ids="compare")
    assert address == str(root / "scratch" / "x" / "differences" / f"{old}-{new}.html")
    page = difference_page(address)
    assert page == render_difference_page(compare_versions(old, new, load_config(root / "datasets" / "x.yaml")))
    assert old in page
    assert new in page
