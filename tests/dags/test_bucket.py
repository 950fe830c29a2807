"""A run whose work folder is in a bucket: what tasks hand on, what others are told of it, and pages elsewhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.storage.mirrored import path_of
from tests.dags.conftest import Ask
from tests.dags.seeded import seed_run, set_handed_on
from tests.engine.work_folder.machines import machine
from tests.report.page import Page
from tests.system.corpus import configuration, write_corpus

ROOT = Path(__file__).resolve().parents[2]
# A process of its own: Airflow sets up its metrics and the provider of OpenLineage as the process of a task does.
RUN = """
import json, sys
from pathlib import Path
from airflow.utils.db import initdb
initdb()
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
from airflow.dag_processing.dagbag import BundleDagBag
root = Path(sys.argv[1])
dag = BundleDagBag(str(root / "build_dataset.py"), bundle_path=root).dags["dataset__tiny"]
run, again = dag.test(run_conf={}), dag.test(run_conf={})
handed_on = {task.task_id: task.xcom_pull(task_ids=task.task_id) for task in run.get_task_instances()}
Path(sys.argv[2]).write_text(json.dumps({name: handed_on[name] for name in ("plan", "report")}))
sys.exit({run.state, again.state} != {"success"})
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A UDP socket of loopback that keeps what arrives until it is read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        yield server


def counters(server: socket.socket) -> Counter[tuple[str, str]]:
    """(name, step) -> sum, of what has arrived for a work folder; (name, "build") -> the last figure of a build."""
    sums: Counter[tuple[str, str]] = Counter()
    while True:
        try:
            datagram = server.recv(65536).decode()
        except BlockingIOError:
            return sums
        for line in datagram.splitlines():
            name, _, value = line.partition(":")
            bare, *tags = name.split(",")
            if bare.startswith("airflow.corpusmill.build."):
                assert tags == ["dataset=tiny"]
                sums[bare.rpartition(".")[2], "build"] = int(float(value.removesuffix("|g")))
            if bare.startswith("airflow.corpusmill.work_folder."):
                task = dict(tag.split("=") for tag in tags)["task"]
                sums[bare.rpartition(".")[2], task.partition(".")[0]] += int(value.removesuffix("|c"))


@pytest.mark.slow
def test_run_in_a_bucket_delivers_tells_metrics_and_lineage_and_its_report_is_read_elsewhere(
    tmp_path: Path, moto: str, moto_client: Any, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corpusmill_airflow.pages.receipts import report_page, shard_table

    write_corpus(tmp_path / "corpus", documents=20)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "z.jsonl").write_text('{"text": "one more document"}\n')
    values = configuration(
        tmp_path,
        source={"paths": [str(tmp_path / "corpus"), str(tmp_path / "more" / "*.jsonl")]},
        exports={"nanoset": {}},
        destinations=[{"path": str(tmp_path / "outputs")}, {"path": str(tmp_path / "copies")}],
        work_folder="s3://corpus/mill",
    )
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "tiny.yaml").write_text(yaml.safe_dump(values))
    events, handed_on = tmp_path / "events.jsonl", tmp_path / "handed_on.json"
    settings = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_PORT": str(listener.getsockname()[1]),
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",  # tags in the name
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(events), "append": True}),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "mill",
        "AWS_ENDPOINT_URL": moto,
        "CORPUSMILL_ROOT": str(tmp_path),
        "CORPUSMILL_DATASETS": str(tmp_path / "datasets"),
    }
    with machine(tmp_path, "worker"):
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(ROOT / "dags"), str(handed_on)],
            env={**os.environ, **settings},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    handed = json.loads(handed_on.read_text())
    assert {part["plan_receipt"].partition("/plan/")[0] for part in handed["plan"]} == {"s3://corpus/mill/tiny"}
    assert list((tmp_path / "outputs" / "tiny" / "latest" / "nanoset").iterdir())
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    with machine(tmp_path, "api-server"):
        report = path_of(handed["report"])
        page, table = report_page(report), shard_table(report)
    assert page is not None
    assert "tiny" in page
    assert table is not None
    sums = counters(listener)
    metrics_say_what_each_task_moved(sums, moto_client)
    assert sums["documents", "build"] == 21
    events_name_sources_destinations_counts_and_version(tmp_path, events)


def metrics_say_what_each_task_moved(sums: Counter[tuple[str, str]], moto_client: Any) -> None:
    pytest.importorskip("statsd", reason="Airflow sends to StatsD by this package")
    outputs: Counter[str] = Counter()
    for listed in moto_client.get_paginator("list_objects_v2").paginate(Bucket="corpus", Prefix="mill/tiny/outputs/"):
        outputs["bytes"] += sum(item["Size"] for item in listed["Contents"])
        outputs["objects"] += len(listed["Contents"])
    totals: Counter[str] = Counter()
    for (name, _), count in sums.items():
        totals[name] += count
    # Receipts, marks and the run's lease come on top.
    assert outputs["bytes"] < totals["bytes_sent"] < 3 * outputs["bytes"] + 1_000_000
    assert totals["requests"] > outputs["objects"]
    assert {"tokenize", "shuffle", "export", "report"} <= {step for name, step in sums if name == "requests"}
    # Which stage compares a block first, and so counts it, depends on the order of the tasks of this one process.
    assert totals["cache_hits"] > 0
    assert not totals.keys() & {"cache_misses", "retries"}


def events_name_sources_destinations_counts_and_version(root: Path, events: Path) -> None:
    pytest.importorskip("airflow.providers.openlineage", reason="the extra openlineage is not installed")
    told = [json.loads(line) for line in events.read_text().splitlines()]
    of_report = [event for event in told if event["job"]["name"] == "dataset__tiny.report"]
    complete, unchanged = [event for event in of_report if event["eventType"] == "COMPLETE"]
    assert (unchanged["inputs"], unchanged["outputs"]) == ([], [])  # the second run made no new version
    assert complete["job"]["namespace"] == "mill"
    dataset = json.loads((root / "outputs" / "tiny" / "latest" / "dataset.json").read_text())
    inputs = {item["name"]: item["inputFacets"]["inputStatistics"] for item in complete["inputs"]}
    for folder, files, rows in ((root / "corpus", 5, 20), (root / "more", 1, 1)):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        actual = inputs[str(folder)]
        assert (actual["fileCount"], actual["size"], actual["rowCount"]) == (files, size, rows)
    assert {item["name"] for item in complete["outputs"]} == {
        str(root / name / "tiny") for name in ("outputs", "copies")
    }
    for output in complete["outputs"]:
        assert output["namespace"] == "file"
        assert output["facets"]["version"]["datasetVersion"] == (root / "outputs/tiny/latest").resolve().name
        statistics = output["outputFacets"]["outputStatistics"]
        assert (statistics["rowCount"], statistics["fileCount"]) == (21, len(dataset["files"]))
        assert statistics["size"] == sum(file["size_bytes"] for file in dataset["files"])


@pytest.mark.slow
def test_pages_of_a_bucket_that_cannot_be_read_say_why_and_show_the_rest(
    ask: Ask, tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    write_corpus(tmp_path / "corpus", documents=20)
    config = check_config(configuration(tmp_path, exports={"nanoset": {}}), where="test")
    work = "s3://no-such-bucket/mill/secluded"
    handed_on = {stage: f"{work}/{stage}/secluded-0123456789abcdef/{RECEIPT_NAME}" for stage in ("plan", "report")}
    run = seed_run(build_dataset(config, workers=1), "unreadable")
    set_handed_on(run, handed_on)
    for page, rest in (("datasets", "secluded"), (f"build_dataset/{run}", "tokenize")):
        answer = ask(page)
        assert answer.status_code == 200
        text = Page(answer.text).text
        assert "The work folder cannot be read" in text
        assert "no-such-bucket" in answer.text
        assert rest in text
