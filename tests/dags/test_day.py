"""A real Airflow on a short day of random actions; benchmarks/airflow_day.py makes it a long one."""

from __future__ import annotations

from pathlib import Path

from tests.dags.day import Day
from tests.dags.live import LONGEST_SECONDS, Live, free_port
from tests.quick import THOROUGH

pytestmark = THOROUGH  # ten minutes on a busy machine


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
