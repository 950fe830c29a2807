"""The plugin's pages answer in under 200 ms for a dataset of 200 shards.

A real build of 200 small shards (about 2,500 receipts), and runs of it in Airflow's database: one finished, one in the
middle, with what 2,000 task instances handed on. Every address is asked as a browser would, through Airflow's own API
server with its login and middleware. "first" is the first request of a server that has just started: it reads receipts
and templates. Processor time stands beside the clock: on a machine that does other things, the clock is that machine's.

    .venv/bin/python -m benchmarks.dataset_pages
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tests.dags.conftest  # noqa: F401  (Airflow's settings, before anything imports it)
from benchmarks.results import write_result

SHARDS = 200
ROUNDS = 12
MOST_SECONDS = 0.2


def measure(get: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Seconds on the clock and of the processor, of the whole server and its client."""
    clock, processor = [], []
    for _ in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        answer = get()
        clock.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
        assert answer.status_code == 200, answer.text
    ordered = sorted(clock)
    return {
        "median_seconds": round(statistics.median(clock), 4),
        "p95_seconds": round(ordered[int(0.95 * (rounds - 1))], 4),
        "median_processor_seconds": round(statistics.median(processor), 4),
        "answer_bytes": len(answer.content),
    }


def main() -> int:
    """Measure, print, write the result; 1 if an address takes too long."""
    logging.disable(logging.WARNING)
    from airflow.api_fastapi.app import create_app
    from airflow.utils.db import initdb
    from fastapi.testclient import TestClient

    from tests.dags.seeded import build_shards, seed_dags, seed_run

    with tempfile.TemporaryDirectory() as temporary:
        plan = build_shards(Path(temporary), SHARDS)
        initdb()
        seed_dags("build_dataset", "reprocess_shard")
        seed_run(plan, "finished")
        seed_run(plan, "running", until="export.numpy", state="running")
        figures: dict[str, object] = {"shards": SHARDS, "receipts": len(list(Path(temporary).rglob("receipt.json")))}
        with TestClient(create_app(apps="core"), base_url="http://127.0.0.1") as client:
            token = client.post("/auth/token", json={"username": "admin", "password": "admin"}).json()["access_token"]
            headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
            # The framework itself, so that "first" is the first request for a page and not the start of the server.
            client.get("/api/v2/version", headers=headers)
            client.get("/dataset-report/-/page.js", headers=headers)
            slowest = 0.0
            for name, path in (
                ("running run, its moving parts", "/dataset-report/build_dataset/running/live"),
                ("running run, its page", "/dataset-report/build_dataset/running"),
                ("finished run, its page", "/dataset-report/build_dataset/finished"),
                ("finished run, its report", "/dataset-report/build_dataset/finished/report"),
                ("all datasets", "/dataset-report/datasets"),
            ):
                first = measure(lambda path=path: client.get(path, headers=headers), 1)
                later = measure(lambda path=path: client.get(path, headers=headers), ROUNDS)
                figures[name] = {"first_seconds": first["median_seconds"], **later}
                print(f"{name:<30} first {first['median_seconds']:.3f} s, then {later}")
                slowest = max(slowest, later["median_seconds"])
        figures["slowest_median_seconds"] = slowest
        figures["load_average"] = round(os.getloadavg()[0], 1)
        claim = f"pages of a dataset of {SHARDS} shards answer in under 200 ms in the median, login and client included"
        path = write_result("dataset_pages", claim, figures)
    print(f"slowest {slowest:.3f} s; {path}")
    return int(slowest > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
