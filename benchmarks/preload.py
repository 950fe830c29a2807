"""Claim: a task that is forked with Corpusmill loaded takes half the CPU of one with the libraries alone.

A dataset of a few kilobytes is built twice under `make up`'s Airflow, the second time reusing every step, so that a
task is little but its start. Three ways: without the plugin plugins/preload.py, with libraries alone (it loads no more
where there may be stages of the user's: CORPUSMILL_STAGES names none, but is set), and with Corpusmill. Counted are the
CPU of the LocalExecutor's workers with the tasks that they forked, and the resident memory of the scheduler.

    python -m benchmarks.preload
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.results import write_result
from tests.dags.live import Live, free_port, tiny

DAG = "dataset__tiny"
LONGEST_SECONDS = 1200


def components(live: Live) -> list[psutil.Process]:
    """Every process of an Airflow's session."""
    session = json.loads((live.folder / ".airflow" / "server.json").read_text())["pid"]
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == session:
                processes.append(process)
    return processes


def cpu_of_tasks(live: Live) -> float:
    """CPU seconds of the LocalExecutor's workers and of the tasks that they have ended."""
    used = 0.0
    for process in components(live):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "airflow worker" in " ".join(process.cmdline()):
                used += sum(process.cpu_times()[:4])
    return used


def scheduler_bytes(live: Live) -> int:
    """Resident memory of the scheduler, with the files of libraries that it has mapped."""
    (scheduler,) = live.processes("scheduler", "--skip-serve-logs")
    return int(scheduler.memory_info().rss)


def measure(folder: Path, *, plugin: bool, stages: str) -> dict[str, Any]:
    """CPU seconds of a task in a first and in a second run, and the scheduler's memory."""
    folder.mkdir()
    live = Live(folder, free_port(), {"CORPUSMILL_STAGES": stages} if stages else {})
    if not plugin:
        (folder / "plugins" / "preload.py").unlink()
    live.configure(tiny("tiny"))
    figures: dict[str, Any] = {}
    try:
        live.server("up")
        live.login()
        for run in ("first", "reused"):
            live.wait_until_parsed(DAG)
            before = cpu_of_tasks(live)
            live.trigger(DAG, run)
            assert live.finish(DAG, run, LONGEST_SECONDS) == "success"
            tasks = [task for task in live.tasks(DAG, run).values() if task["state"] == "success"]
            figures |= {"tasks": len(tasks), f"{run}_task_cpu_seconds": (cpu_of_tasks(live) - before) / len(tasks)}
        figures["scheduler_bytes"] = scheduler_bytes(live)
    finally:
        live.server("down")
    return {name: round(figure, 3) for name, figure in figures.items()}


def main() -> None:
    """Measure the three ways, print, write the result."""
    figures: dict[str, Any] = {"load_of_the_machine": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as name:
        for way, plugin, stages in (
            ("without_the_plugin", False, ""),
            ("libraries", True, ","),
            ("corpusmill", True, ""),
        ):
            figures[way] = measure(Path(name, way), plugin=plugin, stages=stages)
            print(way, json.dumps(figures[way]))
    claim = "a task that is forked with Corpusmill loaded takes half the CPU of one with the libraries alone"
    write_result("preload", claim, figures)


if __name__ == "__main__":
    main()
