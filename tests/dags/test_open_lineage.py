"""What a real build under Airflow tells an OpenLineage backend: the events that the provider writes into a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.corpus import configuration, write_corpus

pytest.importorskip("airflow.providers.openlineage", reason="the extra openlineage is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# A process of its own: the provider reads its settings when Airflow is imported.
RUN = """
import sys
from pathlib import Path
from airflow.utils.db import initdb
initdb()
from airflow.dag_processing.dagbag import BundleDagBag
root = Path(sys.argv[1])
dag = BundleDagBag(str(root / "build_dataset.py"), bundle_path=root).dags["dataset__tiny"]
sys.exit(dag.test(run_conf={}).state != "success")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """(folder, events of the task `report`) of a dataset from two folders, at two destinations."""
    root = tmp_path_factory.mktemp("lineage")
    write_corpus(root / "corpus", documents=20)
    (root / "more").mkdir()
    (root / "more" / "z.jsonl").write_text('{"text": "one more document"}\n')
    values = configuration(
        root,
        source={"paths": [str(root / "corpus"), str(root / "more" / "*.jsonl")]},
        exports={"nanoset": {}},
        destinations=[{"path": str(root / "outputs")}, {"path": str(root / "copies")}],
    )
    (root / "datasets").mkdir()
    (root / "datasets" / "tiny.yaml").write_text(yaml.safe_dump(values))
    transport = {"type": "file", "log_file_path": str(root / "events.jsonl"), "append": True}
    settings = {
        "AIRFLOW_HOME": str(root / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{root}/airflow.db",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "mill",
        "CORPUSMILL_ROOT": str(root),
        "CORPUSMILL_DATASETS": str(root / "datasets"),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(ROOT / "dags")],
        env={**os.environ, **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    events = [json.loads(line) for line in (root / "events.jsonl").read_text().splitlines()]
    return root, [event for event in events if event["job"]["name"] == "dataset__tiny.report"]


def test_events_of_a_build_name_sources_destinations_counts_and_version(built) -> None:
    root, events = built
    (complete,) = [event for event in events if event["eventType"] == "COMPLETE"]
    assert complete["job"]["namespace"] == "mill"
    dataset = json.loads((root / "outputs" / "tiny" / "latest" / "dataset.json").read_text())
    inputs = {item["name"]: item["inputFacets"]["inputStatistics"] for item in complete["inputs"]}
    for folder, files, rows in ((root / "corpus", 5, 20), (root / "more", 1, 1)):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert (inputs[str(folder)]["fileCount"], inputs[str(folder)]["size"]) == (files, size)
        assert inputs[str(folder)]["rowCount"] == rows
    places = {str(root / place / "tiny") for place in ("outputs", "copies")}
    assert {item["name"] for item in complete["outputs"]} == places
    for output in complete["outputs"]:
        assert output["namespace"] == "file"
        assert output["facets"]["version"]["datasetVersion"] == (root / "outputs/tiny/latest").resolve().name
        statistics = output["outputFacets"]["outputStatistics"]
        assert statistics["rowCount"] == 21
        assert statistics["fileCount"] == len(dataset["files"])
        assert statistics["size"] == sum(file["size_bytes"] for file in dataset["files"])
