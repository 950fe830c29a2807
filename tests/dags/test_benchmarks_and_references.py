"""Benchmarks and references under Airflow: from the form to the bytes, another benchmark, one shard once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.config.form import config_from_form
from tests.dags.conftest import dags_below
from tests.dags.test_end_to_end import DEMO, by_command, files_below, of_stage, under_airflow
from tests.system.test_decontamination import OTHER, QUESTION, documents, write_benchmark, write_sources

pytestmark = pytest.mark.slow


def test_benchmarks_and_references_of_a_form_are_searched_for_where_the_file_names_none(
    airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset's own DAG has the tasks: `index` does it, and nobody is asked."""
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    write_sources(tmp_path)
    (tmp_path / "old.jsonl").write_text(json.dumps({"text": documents(2)[5]}) + "\n")
    fields = {"source_paths": ["corpus"], "shard_bytes": "1"}
    file = config_from_form(under_airflow() | fields, load_config(DEMO))
    (tmp_path / "datasets").mkdir()
    values = file.model_dump(mode="json", exclude_none=True)
    (tmp_path / "datasets" / "small.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setenv("CORPUSMILL_DATASETS", str(tmp_path / "datasets"))
    run_dag = dags_below(tmp_path, monkeypatch)

    def asked(*benchmarks: Any) -> dict[str, Any]:
        return {
            "dedup": {"against": [{"path": "old.jsonl"}]},
            "decontamination": {"benchmarks": list(benchmarks), "action": "remove"},
        }

    def run(*benchmarks: Any) -> Any:
        return run_dag("dataset__small", settings=under_airflow(**asked(*benchmarks))["settings"], move_latest=True)

    kettles, rivers = write_benchmark(tmp_path, "kettles", QUESTION), write_benchmark(tmp_path, "rivers", OTHER)
    first = run(kettles)
    assert first.state == "success"
    hits = (tmp_path / "airflow/outputs/small/latest/decontamination/hits.jsonl").read_text()
    assert [json.loads(line)["id"] for line in hits.splitlines()] == ["0-3", "2-3"]

    second = run(kettles, rivers)
    for stage in ("download", "index", "reference", "reference_index"):
        assert of_stage(first, stage) == of_stage(second, stage) != [], stage
    for stage in ("benchmarks", "decontaminate"):
        assert not set(of_stage(first, stage)) & set(of_stage(second, stage)), stage
    local = by_command(**asked(kettles, rivers)) | fields
    build_dataset(config_from_form(local, load_config(DEMO)), workers=1)
    version = (tmp_path / "local/outputs/small/latest").resolve()
    delivered = files_below(tmp_path / "airflow/outputs/small" / version.name)
    assert len(delivered["decontamination/hits.jsonl"].splitlines()) == 3
    assert delivered == files_below(version)

    wanted = {"dataset": "small", "work_folder": "airflow/work", "stage": "decontaminate", "shard": 1}
    written = {path: Path(path).stat().st_mtime_ns for path in of_stage(second, "decontaminate")}
    assert run_dag("reprocess_shard", **wanted).state == "success"
    again = [path for path, at in written.items() if Path(path).stat().st_mtime_ns != at]
    assert again == [path for path in written if "/00001-" in path]
    assert files_below(tmp_path / "airflow/outputs/small" / version.name) == delivered
