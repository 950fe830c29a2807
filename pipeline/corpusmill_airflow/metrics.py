"""Emits a task's traffic with a work folder in a bucket as counters of Airflow's metrics (StatsD, OpenTelemetry).

    corpusmill.work_folder.requests  .retries  .bytes_received  .bytes_sent  .cache_hits  .cache_misses

Each has the tag `task`. A work folder on disks gives none.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpusmill.engine.work_folder.moved import MOVED, moved, report_moved, reported
from corpusmill_airflow.by_version import Stats

PREFIX = "corpusmill.work_folder"


@contextmanager
def traffic_counted(task: str) -> Iterator[None]:
    """Count the traffic of this process and of programs that it starts, and emit it at the end, errors included."""
    moved().news()  # drops earlier counts, which are not this task's
    with tempfile.NamedTemporaryFile() as file:
        os.environ[MOVED] = file.name
        try:
            yield
        finally:
            report_moved()
            del os.environ[MOVED]
            for name, count in reported(Path(file.name)).items():
                Stats.incr(f"{PREFIX}.{name}", count, tags={"task": task})
