"""The pages of runs that Airflow itself has run: what its tasks hand on is what the pages read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.chain import STEPS
from tests.dags.conftest import Ask, dags_below
from tests.dags.test_dataset_report import said, step_rows
from tests.report.page import Page
from tests.system.corpus import write_corpus

pytestmark = pytest.mark.slow
FORM = {"name": "shown", "source_paths": ["source"], "shard_bytes": "20KB", "minimum_bytes": 100}


@pytest.fixture
def run_dag(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that runs build_dataset over a small corpus, with two parts a step."""
    write_corpus(tmp_path / "source")
    monkeypatch.setattr("corpusmill.engine.parts.PART_BYTES", 30_000)
    run = dags_below(tmp_path, monkeypatch)
    return lambda **form: run(**(FORM | form))


def test_dry_run_shows_the_estimate_that_its_plan_made(ask: Ask, run_dag: Callable[..., Any]) -> None:
    run = run_dag(dry_run=True)
    answer = ask(f"build_dataset/{run.run_id}")
    assert "Estimate of a build" in said(answer)
    assert "tokens" in said(answer)
    assert step_rows(Page(answer.text)) == {}
    assert not [item for item in Page(answer.text).all("tr") if "data-shard" in item]


def test_run_that_is_built_and_run_again_shows_its_report_both_times(ask: Ask, run_dag: Callable[..., Any]) -> None:
    runs = [run_dag() for _ in range(2)]
    for run, unchanged in zip(runs, (False, True), strict=True):
        address = f"build_dataset/{run.run_id}"
        answer = ask(address)
        assert 'data-report="yes"' in answer.text
        assert ("Nothing has changed" in said(answer)) == unchanged
        rows = [item for item in Page(answer.text).all("tr") if "data-shard" in item]
        assert len(rows) > 2
        assert {item["data-word"] for item in rows} == {"done"}
        assert ask(f"{address}/report").status_code == 200
    assert "shown" in said(ask("datasets"))


def test_run_of_which_index_cannot_go_on_shows_the_error_of_index_once(ask: Ask, run_dag: Callable[..., Any]) -> None:
    run = run_dag(text_field="no_such_field")
    answer = ask(f"build_dataset/{run.run_id}")
    text = said(answer)
    assert re.search(
        r"index\.read\b.* failed error\[documents.too_many_malformed\]: 120 of 120 lines are malformed", text
    )
    assert text.count("lines are malformed") == 1
    assert "source.text_field, now 'no_such_field'" in text
    rows = step_rows(Page(answer.text))
    states = dict.fromkeys(STEPS, "stopped") | {"download": "done", "index": "failed"}
    assert rows == states
