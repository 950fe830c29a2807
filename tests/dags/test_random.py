"""A real Airflow on a short day of random actions, and random edits between runs of datasets' own DAGs.

benchmarks/airflow_day.py makes it a long day; `python benchmarks/edits.py --dag` makes a hundred edits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dags.day import Day
from tests.dags.edits import search_through_dags
from tests.dags.live import LONGEST_SECONDS, Live, free_port


@pytest.mark.slow
@pytest.mark.thorough  # ten minutes on a busy machine
def test_latest_after_a_day_of_random_actions_is_what_a_build_from_scratch_gives(tmp_path: Path) -> None:
    live = Live(tmp_path, free_port())
    day = Day(live, seed=8)
    try:
        live.server("up")
        live.login()
        day.begin()
        for number in range(4):
            day.act(number)
            day.rest()
            day.check()
        day.end(3 * LONGEST_SECONDS)  # some runs wait for others
    finally:
        live.server("down")
    assert day.findings == []
    assert day.checked["files compared with a build from scratch"] > 0


@pytest.mark.slow
def test_dag_after_random_edits_delivers_what_a_build_from_scratch_does(airflow_database: None, tmp_path: Path) -> None:
    assert search_through_dags(0, tmp_path, folders=1, steps=4)["steps"] >= 3
