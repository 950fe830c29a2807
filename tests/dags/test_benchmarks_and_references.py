"""Benchmarks and references under Airflow: from the form to the bytes, another benchmark, one shard once more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import load_config
from corpusmill.form import config_from_form
from tests.dags.test_end_to_end import DEMO, FOLDERS, SMALL, files_below, flat, results
from tests.system.test_decontamination import OTHER, QUESTION, documents, write_benchmark, write_sources

pytestmark = pytest.mark.slow


def test_benchmarks_and_references_of_the_form_are_searched_for_by_tasks_of_their_own(
    run_dag: Callable[..., Any], tmp_path: Path
) -> None:
    write_sources(tmp_path)
    (tmp_path / "old.jsonl").write_text(json.dumps({"text": documents(2)[5]}) + "\n")
    form = SMALL | FOLDERS | {"source_paths": ["corpus"], "shard_bytes": "1"}
    form |= {"dedup_against": [{"path": "old.jsonl"}], "decontamination_action": "remove"}
    form |= {"webdataset_context_tokens": 33, "numpy_tokens_per_shard": 500}
    kettles, rivers = write_benchmark(tmp_path, "kettles", QUESTION), write_benchmark(tmp_path, "rivers", OTHER)
    first = run_dag(**form, decontamination_benchmarks=[kettles])
    assert first.state == "success"
    hits = (tmp_path / "airflow/outputs/small/latest/decontamination/hits.jsonl").read_text()
    assert [json.loads(line)["id"] for line in hits.splitlines()] == ["0-3", "2-3"]

    both = form | {"decontamination_benchmarks": [kettles, rivers]}
    second = run_dag(**both)
    before, after = results(first), results(second)
    for task in ("download", "index", "reference", "find_ranges.reference_index"):
        assert sorted(flat(before[task])) == sorted(flat(after[task])), task
    for task in ("benchmarks", "decontaminate"):
        assert not set(flat(before[task])) & set(flat(after[task])), task
    local = both | {"destinations": ["local/outputs"], "work_folder": "local/work"}
    build_dataset(config_from_form(local, load_config(DEMO)), workers=1)
    version = (tmp_path / "local/outputs/small/latest").resolve()
    delivered = files_below(tmp_path / "airflow/outputs/small" / version.name)
    assert len(delivered["decontamination/hits.jsonl"].splitlines()) == 3
    assert delivered == files_below(version)

    wanted = {"dataset": "small", "work_folder": "airflow/work", "stage": "decontaminate", "shard": 1}
    written = {path: Path(path).stat().st_mtime_ns for path in flat(after["decontaminate"])}
    assert run_dag("reprocess_shard", **wanted).state == "success"
    again = [path for path, at in written.items() if Path(path).stat().st_mtime_ns != at]
    assert again == [path for path in written if "/00001-" in path]
    assert files_below(tmp_path / "airflow/outputs/small" / version.name) == delivered
