"""Claim: after 100 random actions on three datasets of a real Airflow each `latest` is what a build from scratch gives.

tests/dags/day.py draws the actions by a seed: trigger, clear, mark, pause, edit sources and configurations, delete and
restore configurations, reprocess shards, kill tasks and the scheduler. After each action what every `latest` points to
must be whole, and `verify` must find nothing in a dataset at rest. At the end all runs must end, and a last build of
each dataset is compared with a build from scratch, byte for byte. The result file holds the log of the day.
`python benchmarks/airflow_day.py --actions 100`; with --try no result is written.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from results import write_result

os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.dags.day import Day
from tests.dags.live import Live, free_port

LONGEST_END_SECONDS = 600.0


def main() -> None:
    """Live the day, print its log, write the result; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120, help="the last action begins before that")
    parser.add_argument("--try", dest="only_try", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corpusmill-day-") as folder:
        live = Live(Path(folder), free_port())
        day = Day(live, asked.seed)
        try:
            live.server("up")
            live.login()
            day.begin()
            for number in range(1, asked.actions + 1):
                if time.monotonic() - day.began > asked.minutes * 60:
                    break
                day.act(number)
                day.rest()
                day.check()
            day.end(LONGEST_END_SECONDS)
            states = day.states()
        finally:
            live.server("down")
    figures: dict[str, object] = {
        "actions": sum(day.kinds.values()),
        "findings": day.findings,
        "seed": asked.seed,
        "kinds": dict(sorted(day.kinds.items())),
        "runs": states,
        "answers": {str(status): count for status, count in sorted(day.answers.items())},
        "requests put again because SQLite was locked": live.refused_by_sqlite,
        "checks": dict(sorted(day.checked.items())),
        "seconds": round(time.monotonic() - day.began),
        "log": day.log,
    }
    print(figures["findings"], figures["runs"], figures["checks"])
    if not asked.only_try:
        claim = "an Airflow day of 100 random actions; each latest is then what a build from scratch gives"
        print(write_result("airflow_day", claim, figures))
    sys.exit(bool(day.findings))


if __name__ == "__main__":
    main()
