"""The files that `python -m corpusmill_airflow` writes for an Airflow that is already there."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.config import load_config

ROOT = Path(__file__).resolve().parents[2]


def test_first_files_are_the_repositorys_own_and_a_configuration_that_can_be_used(
    airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import BundleDagBag

    from corpusmill_airflow.__main__ import write_files

    assert [line.split()[-1] for line in write_files(tmp_path)] == ["written"] * 3
    monkeypatch.delenv("CORPUSMILL_DATASETS", raising=False)
    bag = BundleDagBag(str(tmp_path), bundle_path=tmp_path)
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        "build_dataset",
        "check_workers",
        "compare_versions",
        "dataset__first",
        "forget_documents",
        "reprocess_shard",
    }
    assert load_config(tmp_path / "datasets" / "first.yaml").name == "first"
    for ours, written in (("build_dataset", "corpusmill_datasets"), ("refused_configurations", "corpusmill_refused")):
        assert (ROOT / "dags" / f"{ours}.py").read_text() == (tmp_path / f"{written}.py").read_text()


def test_files_that_are_there_are_kept(airflow_database: None, tmp_path: Path) -> None:
    from corpusmill_airflow.__main__ import write_files

    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "mine.yaml").write_text("name: mine\n")
    (tmp_path / "corpusmill_datasets.py").write_text("mine = True\n")
    lines = write_files(tmp_path)
    assert [line.endswith("written") for line in lines] == [False, True, False]
    assert (tmp_path / "corpusmill_datasets.py").read_text() == "mine = True\n"
    assert not (tmp_path / "datasets" / "first.yaml").exists()
