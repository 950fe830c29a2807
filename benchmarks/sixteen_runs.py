"""40 datasets with daily schedules, and 16 runs at once, under one Airflow as `make up` starts it.

Claims: no run waits for another dataset; the scheduler, without the tasks that it forks, takes less than half a core
while nothing runs and while 16 runs do; the page of any dataset answers within a second. The peer is the same Airflow
with one dataset.

    .venv/bin/python -m benchmarks.sixteen_runs
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.results import write_result

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.dags.live import Live, free_port, tiny  # noqa: E402

DATASETS, RUNS = 40, 16
AT_REST_SECONDS = 60
LONGEST_SECONDS = 3600
MOST_CORES, MOST_PAGE_SECONDS = 0.5, 1.0


def daily(number: int) -> dict[str, Any]:
    """A dataset whose next date is tonight."""
    return tiny(f"daily{number:02d}", dag={"schedule": "@daily"}, work_folder=f"work-{number}")


def scheduler_seconds(live: Live) -> float:
    """Processor seconds of the scheduler itself so far: tasks are processes of their own."""
    (one,) = [item for item in live.processes("scheduler") if "LocalExecutor" not in " ".join(item.cmdline())][:1]
    times = psutil.Process(one.pid).cpu_times()
    return float(times.user + times.system)


def measured(live: Live, names: list[str]) -> dict[str, Any]:
    """Figures of an Airflow with these datasets, the first RUNS of which are built at once."""
    began, used = time.monotonic(), scheduler_seconds(live)
    time.sleep(AT_REST_SECONDS)
    at_rest = (scheduler_seconds(live) - used) / (time.monotonic() - began)
    running = names[:RUNS]
    for name in running:
        live.trigger(f"dataset__{name}", "at_once")
    began, used = time.monotonic(), scheduler_seconds(live)
    pages: list[float] = []
    places = {name: f"/api/v2/dags/dataset__{name}/dagRuns/at_once" for name in running}
    left = set(running)
    waited: set[str] = set()
    while left:
        assert time.monotonic() - began < LONGEST_SECONDS, sorted(left)
        for name in sorted(left):
            asked = time.monotonic()
            assert live.client.get(f"/dataset-report/dataset__{name}/at_once").is_success
            pages.append(time.monotonic() - asked)
            states = {
                task["state"] for key, task in live.tasks(f"dataset__{name}", "at_once").items() if key[0] != "close"
            }
            if "up_for_reschedule" in states:  # somebody else has its dataset
                waited.add(name)
            if live.state(f"dataset__{name}", "at_once") in {"success", "failed"}:
                left.discard(name)
    seconds = time.monotonic() - began
    runs = [live.call("GET", place) for place in places.values()]
    assert {run["state"] for run in runs} == {"success"}
    begun = [_moment(run["start_date"]) - _moment(run["queued_at"]) for run in runs]
    return {
        "datasets": len(names),
        "runs": len(running),
        "seconds": round(seconds, 1),
        "runs_that_waited_for_another": len(waited),
        "longest_seconds_from_queue_to_start": round(max(begun), 1),
        "scheduler_cores_at_rest": round(at_rest, 3),
        "scheduler_cores_during_runs": round((scheduler_seconds(live) - used) / seconds, 3),
        "page_seconds": {"median": round(sorted(pages)[len(pages) // 2], 3), "most": round(max(pages), 3)},
    }


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def under_airflow(names: list[str]) -> dict[str, Any]:
    """Figures of a new Airflow with these datasets."""
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Path(folder), free_port())
        for number in range(len(names)):
            live.configure(daily(number))
        live.server("up")
        try:
            live.login()
            for name in names:
                live.wait_until_parsed(f"dataset__{name}")
            return measured(live, names)
        finally:
            live.server("down")


def main() -> int:
    """Measure, write the result, and compare it with the claims; the exit code."""
    names = [f"daily{number:02d}" for number in range(DATASETS)]
    figures = {"one": under_airflow(names[:1]), "many": under_airflow(names)}
    many = figures["many"]
    print(figures)
    claim = f"{RUNS} runs of {DATASETS} datasets at once: none waits for another dataset"
    write_result(
        "sixteen_runs", f"{claim}; the scheduler below {MOST_CORES} cores, a page within {MOST_PAGE_SECONDS} s", figures
    )
    return int(
        bool(many["runs_that_waited_for_another"])
        or max(many["scheduler_cores_at_rest"], many["scheduler_cores_during_runs"]) > MOST_CORES
        or many["page_seconds"]["most"] > MOST_PAGE_SECONDS
    )


if __name__ == "__main__":
    sys.exit(main())
