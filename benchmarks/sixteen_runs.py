"""40 datasets with daily schedules, and 16 runs at once, under one Airflow as `make up` starts it.

Claims: no run waits for another dataset; the scheduler, without the tasks that it forks, takes less than half a core
while nothing runs and while 16 runs do; the page of any dataset answers within a second. (The machine's load is in the
result: on one that does other things, too, pages and runs take longer, and the scheduler's share is smaller.)

    .venv/bin/python -m benchmarks.sixteen_runs
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import write_result

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.dags.live import Live, free_port, tiny  # noqa: E402

DATASETS, RUNS = 40, 16
AT_REST_SECONDS = 60
LONGEST_SECONDS = 3600
PAGES_EACH = 5
MOST_CORES, MOST_PAGE_SECONDS = 0.5, 1.0


def daily(number: int) -> dict[str, Any]:
    """A dataset whose dates are half a day away: Airflow starts none of its runs now."""
    far = (datetime.now(UTC).hour + 12) % 24
    return tiny(f"daily{number:02d}", dag={"schedule": f"0 {far} * * *"}, work_folder=f"work-{number}")


def processor_seconds(live: Live, *words: str) -> float:
    """Processor seconds so far of the Airflow process with these words in its command, without those that it starts."""
    (one,) = [item for item in live.processes(*words) if "LocalExecutor" not in " ".join(item.cmdline())][:1]
    times = one.cpu_times()
    return float(times.user + times.system)


def page_seconds(live: Live, names: list[str]) -> tuple[float, list[float]]:
    """Processor seconds of the API server for the page of a run, and the seconds until each page was there."""
    used, waited = processor_seconds(live, f"airflow api_server -- host:127.0.0.1 port:{live.port}"), []
    for name in names:
        asked = time.monotonic()
        assert live.client.get(f"/dataset-report/dataset__{name}/at_once").is_success
        waited.append(time.monotonic() - asked)
    return (processor_seconds(live, f"airflow api_server -- host:127.0.0.1 port:{live.port}") - used) / len(
        names
    ), waited


def measured(live: Live, names: list[str]) -> dict[str, Any]:
    """Figures of an Airflow with these datasets, the first RUNS of which are built at once."""
    began, used = time.monotonic(), processor_seconds(live, "scheduler")
    time.sleep(AT_REST_SECONDS)
    at_rest = (processor_seconds(live, "scheduler") - used) / (time.monotonic() - began)
    running = names[:RUNS]
    began, used = time.monotonic(), processor_seconds(live, "scheduler")
    for name in running:
        live.trigger(f"dataset__{name}", "at_once")
    left, waited = set(running), set()
    meanwhile: list[float] = []
    while left:
        assert time.monotonic() - began < LONGEST_SECONDS, sorted(left)
        time.sleep(2)  # what asks takes processor time from what is asked
        meanwhile += page_seconds(live, sorted(left)[:1])[1]
        for name in sorted(left):
            tasks = live.tasks(f"dataset__{name}", "at_once")
            if "up_for_reschedule" in {task["state"] for key, task in tasks.items() if key[0] != "close"}:
                waited.add(name)  # somebody else has its dataset
            if live.state(f"dataset__{name}", "at_once") in {"success", "failed"}:
                left.discard(name)
    seconds, used = time.monotonic() - began, processor_seconds(live, "scheduler") - used
    runs = [live.call("GET", f"/api/v2/dags/dataset__{name}/dagRuns/at_once") for name in running]
    assert {run["state"] for run in runs} == {"success"}
    begun = [_moment(run["start_date"]) - _moment(run["queued_at"]) for run in runs]
    page_seconds(live, running)  # each for the first time
    processor, pages = page_seconds(live, running * PAGES_EACH)
    return {
        "datasets": len(names),
        "runs": len(running),
        "seconds": round(seconds, 1),
        "runs_that_waited_for_another": len(waited),
        "longest_seconds_from_queue_to_start": round(max(begun), 1),
        "scheduler_cores_at_rest": round(at_rest, 3),
        "scheduler_cores_during_runs": round(used / seconds, 3),
        "scheduler_processor_seconds_per_run": round(used / len(running), 2),
        "page": {
            "processor_seconds": round(processor, 3),
            "median_seconds": round(median(pages), 3),
            "most_seconds": round(max(pages), 3),
            "median_seconds_during_runs": round(median(meanwhile), 3),
        },
        "load_average": round(os.getloadavg()[1], 1),  # of other work on this machine, too
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
    many = under_airflow([f"daily{number:02d}" for number in range(DATASETS)])
    print(many)
    claim = f"{RUNS} runs of {DATASETS} datasets at once: none waits for another dataset"
    write_result(
        "sixteen_runs", f"{claim}; the scheduler below {MOST_CORES} cores, a page within {MOST_PAGE_SECONDS} s", many
    )
    return int(
        bool(many["runs_that_waited_for_another"])
        or max(many["scheduler_cores_at_rest"], many["scheduler_cores_during_runs"]) > MOST_CORES
        or many["page"]["median_seconds_during_runs"] > MOST_PAGE_SECONDS
    )


if __name__ == "__main__":
    sys.exit(main())
