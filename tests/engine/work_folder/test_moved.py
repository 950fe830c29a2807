"""What processes say of their requests to a bucket, added up over all that work for a task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.runs import begin_run
from corpusmill.engine.work_folder.moved import MOVED, moved, report_moved, reported
from corpusmill.storage.mirrored import CACHE, address_of
from tests.engine.work_folder.machines import machine
from tests.system.corpus import configuration, write_corpus


def test_moved_reports_each_figure_once_and_nothing_where_no_file_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    moved().news()
    moved().add(requests=2, cache_hits=5)
    report_moved()
    place = tmp_path / "moved"
    place.touch()
    monkeypatch.setenv(MOVED, str(place))
    report_moved()
    report_moved()
    moved().add(requests=1)
    report_moved()
    assert reported(place) == {"requests": 3, "cache_hits": 5}
    monkeypatch.setenv(MOVED, str(tmp_path / "task" / "gone"))
    moved().add(requests=1)
    report_moved()


@pytest.mark.slow
def test_moved_by_run_task_in_several_processes_is_what_the_bucket_got_and_gave(
    tmp_path: Path, moto: str, moto_client: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    write_corpus(tmp_path / "corpus", documents=20)
    config = check_config(configuration(tmp_path, work_folder="s3://corpus/mill"), where="test")
    with machine(tmp_path, "plan"):
        plan = address_of(begin_run(plan_dataset(config, to_build=True)))
    figures = {}
    for stage in ("download", "index.read"):
        place = tmp_path / f"{stage}.jsonl"
        place.touch()
        command = [sys.executable, "-m", "corpusmill.cli", "run-task", plan, stage, "1/1", "--workers", "2"]
        settings = {**os.environ, MOVED: str(place), CACHE: str(tmp_path / stage)}
        subprocess.run(command, env=settings, check=True, capture_output=True)
        assert len(place.read_bytes().splitlines()) > 2
        figures[stage] = reported(place)
    listed = moto_client.list_objects_v2(Bucket="corpus", Prefix="mill/tiny/outputs/")["Contents"]
    outputs = sum(item["Size"] for item in listed)
    assert outputs < figures["download"]["bytes_sent"] + figures["index.read"]["bytes_sent"] < outputs + 200_000
    # The second machine has nothing: every block that it opens is fetched, once.
    assert figures["index.read"]["cache_misses"] > 0
    assert figures["index.read"]["bytes_received"] > sum(
        path.stat().st_size for path in (tmp_path / "corpus").rglob("*") if path.is_file()
    )
