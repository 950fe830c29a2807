"""A few random edits between runs of the datasets' own DAGs; a hundred by `python benchmarks/edits.py --dag`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dags.edits import search_through_dags


@pytest.mark.slow
def test_dag_after_random_edits_delivers_what_a_build_from_scratch_does(airflow_database: None, tmp_path: Path) -> None:
    assert search_through_dags(0, tmp_path, folders=1, steps=4)["steps"] >= 3
