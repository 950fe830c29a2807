"""Forms that name a built dataset: an empty work folder is that of its configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill_airflow.configurations import work_folder_of
from tests.dags.conftest import dags_below
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


@pytest.fixture
def moved(airflow_database: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(run_dag, versions of x: built in `work` with seed 1, then in `scratch` with seed 2)."""
    write_corpus(tmp_path / "source", documents=20)
    versions = []
    for seed, work_folder in ((1, "work"), (2, "scratch")):
        values = tiny("x", shuffle={"seed": seed}, work_folder=work_folder)
        (folder / "x.yaml").write_text(yaml.safe_dump(values))
        build_dataset(load_config(folder / "x.yaml"), workers=1)
        versions.append(latest(tmp_path))
    return dags_below(tmp_path, monkeypatch), versions


def latest(root: Path) -> str:
    return (root / "outputs" / "x" / "latest").resolve().name


@pytest.mark.slow
def test_reprocess_shard_with_an_empty_work_folder_leaves_latest(moved: Any, tmp_path: Path) -> None:
    run_dag, (first, second) = moved
    assert first != second
    run = run_dag("reprocess_shard", dataset="x", stage="tokenize", shard=0)
    assert run.state == "success"
    [part] = run.get_task_instance("plan").xcom_pull(task_ids="plan")
    assert f"{tmp_path}/scratch/x/" in part["plan_receipt"]
    assert latest(tmp_path) == second


@pytest.mark.slow
def test_compare_versions_with_an_empty_work_folder_writes_into_the_configured(
    moved: tuple[Callable[..., Any], list[str]], tmp_path: Path
) -> None:
    run_dag, (first, second) = moved
    run = run_dag("compare_versions", dataset="x", old=first, new=second)
    assert run.state == "success"
    assert (tmp_path / "scratch" / "x" / "differences" / f"{first}-{second}.html").is_file()
