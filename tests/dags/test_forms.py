"""The forms of DAGs that look at a built dataset, or at workers: what they take, refuse and do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk.exceptions import ParamValidationError

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.inspect.difference import compare_versions, render_difference_page
from corpusmill_airflow.folder import work_folder_of
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
