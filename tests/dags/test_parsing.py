"""Parsing dags/: no errors, nothing heavy, no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

LONGEST_PARSE_SECONDS = 1.0
HEAVY = ("numpy", "numba", "pyarrow", "boto3", "botocore", "google", "tiktoken", "gigatoken", "tokenizers", "pandas")

# Times the CPU, not the clock: the bound shall hold on a busy machine, too.
PARSE = """
import json, os, pathlib, sys, time
import airflow.sdk
from airflow.dag_processing.dagbag import BundleDagBag
started = time.process_time()
folder = os.environ["AIRFLOW__CORE__DAGS_FOLDER"]
bag = BundleDagBag(folder, bundle_path=pathlib.Path(folder))
seconds = time.process_time() - started
heavy = [name for name in HEAVY if name in sys.modules]
print(json.dumps({"seconds": seconds, "heavy": heavy, "dags": sorted(bag.dags), "errors": bag.import_errors}))
"""


@pytest.fixture(scope="module")
def parsed(airflow_database: None) -> list[dict[str, object]]:
    """What two fresh interpreters said after parsing; the first may have had to compile our modules."""
    code = f"HEAVY = {HEAVY!r}\n{PARSE}"
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ)
        for _ in range(2)
    ]
    return [json.loads(run.stdout.splitlines()[-1]) for run in runs]


def test_parsing_the_folder_no_import_errors(dagbag: DagBag) -> None:
    assert dagbag.import_errors == {}
    assert "build_dataset" in dagbag.dags


def test_parsing_imports_nothing_heavy(parsed: list[dict[str, object]]) -> None:
    assert [item["dags"] for item in parsed] == [
        [
            "build_dataset",
            "check_workers",
            "compare_versions",
            "dataset__demo",
            "dataset__oscar",
            "forget_documents",
            "reprocess_shard",
        ]
    ] * 2, parsed
    assert [item["heavy"] for item in parsed] == [[], []]


def test_parsing_takes_less_than_a_second_beyond_airflow(parsed: list[dict[str, object]]) -> None:
    assert min(float(str(item["seconds"])) for item in parsed) < LONGEST_PARSE_SECONDS
