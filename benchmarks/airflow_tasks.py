"""Claims: at most 0.25 s of orchestration per mapped task, and a build of 16 shards of the usual size under Airflow at
most 1.3 times `corpusmill build` on the same input; both with LocalExecutor and SQLite, as `make up` starts them. A
run in which nothing has changed, which ends with its plan, takes at most 3 s.

The first: a DAG of 64 mapped tasks that do nothing; from the first one's start to the last one's end, over 64. A chain
of nine tasks that do nothing, each waiting for the one before, is what no build under Airflow can undercut: download,
index, ranges, writeback, tokenize, scatter, gather, export, upload. The second: the same corpus, configuration and
compiled kernels, built by both into folders of their own. The third: a second run of it.
`python benchmarks/airflow_tasks.py [--megabytes 4300]`; run it alone. With --only-overhead no result is written.

Smaller shards, in which a task's own cost shows, have limits and results of their own:

    python benchmarks/airflow_tasks.py --shards 16 --megabytes 320      at most 1.5 times
    python benchmarks/airflow_tasks.py --shards 178 --megabytes 356     at most 3 times

With `--most-tasks` a step is at most so many tasks (dag.most_tasks); it has one for a gigabyte of sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.numbered import write_numbered
from benchmarks.results import write_result

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.dags.live import Live, free_port  # noqa: E402

TASKS, SHARDS = 64, 16
MEGABYTES = 4_300
CHAIN = 9
LONGEST_SECONDS = 3 * 3600  # of a build under Airflow
NOTHING = f'''"""{TASKS} tasks that do nothing, and {CHAIN} one after the other (Airflow DAGs)."""
from airflow.sdk import chain, dag, task

@task
def nothing(number: int) -> None:
    pass

@dag(schedule=None, max_active_tasks=64)
def nothing_at_all() -> None:
    nothing.expand(number=list(range({TASKS})))

@dag(schedule=None)
def nothing_in_a_chain() -> None:
    chain(*(nothing.override(task_id=f"task{{number}}")(number) for number in range({CHAIN})))

nothing_at_all()
nothing_in_a_chain()
'''


def settings(folder: Path, name: str, megabytes: int, shards: int) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"paths": [str(folder / "corpus")], "shard_bytes": megabytes * 1_010_000 // shards},
        "dedup": {"mode": "remove", "minimum_bytes": 500},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {"webdataset": {}, "megatron": {}},
        "destinations": [{"path": str(folder / f"out-{name}")}],
        "work_folder": str(folder / f"work-{name}"),
    }


def seconds_between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def overhead(live: Live, dag: str, divisor: int = 1) -> dict[str, float]:
    """Seconds of a DAG of no-ops over `divisor`, the best and the worst of two runs."""
    actual = []
    for run in ("one", "two"):
        live.trigger(dag, run)
        assert live.finish(dag, run) == "success"
        tasks = live.tasks(dag, run).values()
        actual.append(
            seconds_between(min(task["start_date"] for task in tasks), max(task["end_date"] for task in tasks))
        )
    return {"best": round(min(actual) / divisor, 3), "worst": round(max(actual) / divisor, 3)}


def read_once(folder: Path) -> None:
    """So that both builds find the corpus in the page cache: what one writes would push it out for the other."""
    for path in sorted((folder / "corpus").iterdir()):
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass


def under_airflow(live: Live, name: str) -> dict[str, float]:
    """Seconds of a run of the dataset's DAG, how many task instances it had, and how many of them were started."""
    read_once(live.folder)
    live.trigger("dataset__airflow", name)
    assert live.finish("dataset__airflow", name, LONGEST_SECONDS, every_seconds=5) == "success"
    run = live.call("GET", f"/api/v2/dags/dataset__airflow/dagRuns/{name}")
    states = [task["state"] for task in live.tasks("dataset__airflow", name).values()]
    seconds = round(seconds_between(run["start_date"], run["end_date"]), 1)
    return {"seconds": seconds, "tasks": len(states), "started": states.count("success")}


def by_command(folder: Path, megabytes: int, shards: int, environment: dict[str, str]) -> float:
    """Seconds of `corpusmill build`, workers as many as cores."""
    path = folder / "command.yaml"
    path.write_text(yaml.safe_dump(settings(folder, "command", megabytes, shards)))
    read_once(folder)
    began = time.monotonic()
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(path)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    for name in ("out-command", "work-command"):
        shutil.rmtree(folder / name)
    return seconds


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--megabytes",
        type=int,
        default=MEGABYTES,
        help="text to build, in as many files as shards; 16 usual ones hold 268 each",
    )
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--most-tasks", type=int, help="dag.most_tasks: the most tasks of a step under Airflow")
    parser.add_argument("--only-overhead", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as name:
        folder = Path(name)
        live = Live(folder, free_port())
        (live.folder / "dags" / "nothing_dag.py").write_text(NOTHING)
        figures: dict[str, Any] = {"load_of_the_machine": round(os.getloadavg()[0], 1)}
        if not asked.only_overhead:
            write_numbered(folder / "corpus", asked.megabytes, asked.shards)
            schedule = {"dag": {"most_tasks": asked.most_tasks}} if asked.most_tasks else {}
            live.configure(settings(folder, "airflow", asked.megabytes, asked.shards) | schedule)
            cache = {"NUMBA_CACHE_DIR": str(ROOT / ".cache" / "numba"), "NUMBA_THREADING_LAYER": "workqueue"}
            figures["command_seconds"] = round(by_command(folder, asked.megabytes, asked.shards, os.environ | cache), 1)
        live.server("up")
        try:
            live.login()
            live.wait_until_parsed("nothing_at_all")
            figures["seconds_per_mapped_task"] = overhead(live, "nothing_at_all", TASKS)
            figures[f"seconds_of_{CHAIN}_tasks_in_a_chain_that_do_nothing"] = overhead(live, "nothing_in_a_chain")
            if not asked.only_overhead:
                figures["under_airflow"] = under_airflow(live, "build")
                figures["unchanged_under_airflow"] = under_airflow(live, "again")
                figures["ratio"] = round(figures["under_airflow"]["seconds"] / figures["command_seconds"], 2)
                figures |= {"text_megabytes": asked.megabytes, "shards": asked.shards, **schedule}
        finally:
            live.server("down")
    print(figures)
    if not asked.only_overhead:
        usual = (asked.shards, asked.megabytes) == (SHARDS, MEGABYTES)
        name = "airflow_tasks" if usual else f"airflow_{asked.shards}_shards_of_{asked.megabytes // asked.shards}MB"
        name += f"_in_{asked.most_tasks}_tasks" if asked.most_tasks else ""
        write_result(name, (__doc__ or "").split("\n\n", maxsplit=1)[0], figures)


if __name__ == "__main__":
    main()
