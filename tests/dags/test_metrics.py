"""What Airflow's metrics say of a work folder in a bucket: the datagrams that a StatsD server gets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.corpus import configuration, write_corpus

pytest.importorskip("statsd", reason="Airflow sends to StatsD by this package")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# A process of its own, which sets up its metrics as the process of a task does.
RUN = """
import sys
from pathlib import Path
from airflow.utils.db import initdb
initdb()
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
from airflow.dag_processing.dagbag import BundleDagBag
root = Path(sys.argv[1])
dag = BundleDagBag(str(root / "build_dataset.py"), bundle_path=root).dags["dataset__tiny"]
sys.exit(dag.test(run_conf={}).state != "success")
"""


@pytest.fixture
def listener() -> Any:
    """A UDP socket of loopback that keeps what arrives until it is read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        yield server


def counters(server: socket.socket) -> Counter[tuple[str, str]]:
    """(name, task) -> sum, of what has arrived for a work folder."""
    sums: Counter[tuple[str, str]] = Counter()
    while True:
        try:
            datagram = server.recv(65536).decode()
        except BlockingIOError:
            return sums
        for line in datagram.splitlines():
            name, _, value = line.partition(":")
            bare, *tags = name.split(",")
            if bare.startswith("airflow.corpusmill.work_folder."):
                task = dict(tag.split("=") for tag in tags)["task"]
                sums[bare.rpartition(".")[2], task] += int(value.removesuffix("|c"))


def test_metrics_of_a_run_say_what_each_task_moved_to_the_bucket(
    tmp_path: Path, moto: str, moto_client: Any, listener: socket.socket
) -> None:
    write_corpus(tmp_path / "corpus", documents=20)
    values = configuration(tmp_path, exports={"nanoset": {}}, work_folder="s3://corpus/mill")
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "tiny.yaml").write_text(yaml.safe_dump(values))
    settings = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_PORT": str(listener.getsockname()[1]),
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",  # tags in the name
        "AWS_ENDPOINT_URL": moto,
        "CORPUSMILL_ROOT": str(tmp_path),
        "CORPUSMILL_DATASETS": str(tmp_path / "datasets"),
    }
    command = [sys.executable, "-c", RUN, str(ROOT / "dags")]
    done = subprocess.run(
        command, env={**os.environ, **settings}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sums = counters(listener)
    outputs: Counter[str] = Counter()
    for listed in moto_client.get_paginator("list_objects_v2").paginate(Bucket="corpus", Prefix="mill/tiny/outputs/"):
        outputs["bytes"] += sum(item["Size"] for item in listed["Contents"])
        outputs["objects"] += len(listed["Contents"])
    sent = sum(count for (name, _), count in sums.items() if name == "bytes_sent")
    requests = sum(count for (name, _), count in sums.items() if name == "requests")
    assert outputs["bytes"] < sent < 3 * outputs["bytes"] + 1_000_000  # receipts, marks and the run's lease come on top
    assert requests > outputs["objects"]
    assert {"tokenize", "shuffle", "export", "report"} <= {
        task.partition(".")[0] for name, task in sums if name == "requests"
    }
    # Which stage compares a block first, and so counts it, depends on the order of the tasks of this one process.
    assert sum(count for (name, _), count in sums.items() if name == "cache_hits") > 0
    assert not [name for name, _ in sums if name in {"cache_misses", "retries"}]
