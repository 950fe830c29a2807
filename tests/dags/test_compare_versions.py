"""The DAG compare_versions: two versions of a dataset compared by a task, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.exceptions import ParamValidationError

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.inspect.difference import compare_versions, render_difference_page
from tests.dags.conftest import DAGS
from tests.system.corpus import configuration, write_corpus

ID = "compare_versions"


@pytest.fixture
def versions(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Of a dataset that was built, and refreshed with one more document."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path / "datasets"))
    (tmp_path / "datasets").mkdir()
    write_corpus(tmp_path / "corpus")
    values = configuration(tmp_path, source={"paths": [str(tmp_path / "corpus")]})
    (tmp_path / "datasets" / "tiny.yaml").write_text(yaml.safe_dump(values))
    config = load_config(tmp_path / "datasets" / "tiny.yaml")
    built = []
    for text in ("the first text", "a second one"):
        (tmp_path / "corpus" / "more.jsonl").write_text(json.dumps({"text": text}) + "\n")
        build_dataset(config, workers=1)
        built.append((tmp_path / "outputs" / "tiny" / "latest").resolve().name)
    return built[0], built[1]


def dag() -> Any:
    return BundleDagBag(DAGS, bundle_path=Path(DAGS)).dags[ID]


@pytest.mark.slow
def test_run_writes_the_page_that_the_command_writes(versions: tuple[str, str], tmp_path: Path) -> None:
    from corpusmill_airflow.pages.finished import difference_page

    old, new = versions
    run = dag().test(run_conf={"dataset": "tiny", "work_folder": str(tmp_path / "work"), "old": old, "new": "latest"})
    assert run.state == "success"
    address = run.get_task_instance("compare").xcom_pull(task_ids="compare")
    page = difference_page(address)
    assert Path(address).name == f"{old}-{new}.html"
    config = load_config(tmp_path / "datasets" / "tiny.yaml")
    assert page == render_difference_page(compare_versions(old, new, config))
    assert old in page
    assert new in page


@pytest.mark.parametrize(
    ("name", "value"), [("old", ""), ("old", "../secret"), ("new", "0123456789abcdef"), ("new", None), ("dataset", 1)]
)
def test_form_value_that_names_no_version_is_refused(airflow_database: None, name: str, value: object) -> None:
    with pytest.raises(ParamValidationError):
        dag().params.get_param(name).resolve(value)


def test_page_of_another_file_is_not_shown(tmp_path: Path, airflow_database: None) -> None:
    from corpusmill_airflow.pages.finished import difference_page

    other = tmp_path / "differences" / "secret.html"
    other.parent.mkdir()
    other.write_text("secret")
    assert difference_page(str(other)) is None
    assert difference_page(f"{tmp_path}/differences/{'0' * 12}-{'1' * 12}.html") is None
    assert difference_page("") is None
