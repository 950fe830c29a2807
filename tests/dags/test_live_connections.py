"""A real Airflow with what a team brings: credentials in connections, an environment for steps, a stage of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builds.own_stage import NAME, write_package
from tests.dags.live import Live, free_port, tiny
from tests.servers import ACCESS_KEY, SECRET_KEY, Server
from tests.system.corpus import write_corpus

pytestmark = pytest.mark.slow

TINY = "dataset__tiny"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, rclone_server: Server) -> Iterator[Live]:
    """Airflow, whose workers know no credentials, with a dataset of which source and destination are buckets."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        assert rclone_server.folder
        write_corpus(rclone_server.folder / "crawl" / "text")
        (rclone_server.folder / "made").mkdir()
        folder = tmp_path_factory.mktemp("live")
        settings = write_package(tmp_path_factory.mktemp("own") / "stages") | {"CORPUSMILL_PYTHON": sys.executable}
        settings["PYTHONPATH"] = os.pathsep.join([str(folder), settings["PYTHONPATH"]])
        live = Live(folder, free_port(), settings)
        there = {"endpoint_url": rclone_server.endpoint}
        # Each task starts a program: without dedup there are half as many.
        dag = {"connections": {"s3": "team_store"}, "task_processes": 2}
        config = tiny("tiny", dag=dag, dedup={"mode": "none"}, shuffle={"seed": 7, "cells": 1})
        config["source"] |= {"paths": ["s3://crawl/text"], **there}
        live.configure(config | {"destinations": [{"path": "s3://made/sets", **there}]})
        live.configure(config | {"name": "lost", "dag": {"connections": {"s3": "nobody"}}})
        try:
            live.server("up")
            live.login()
            yield live
        finally:
            live.server("down")


@pytest.fixture(scope="module")
def built(live: Live) -> str:
    """A run that had the connection."""
    connection = {"connection_id": "team_store", "conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY}
    live.call("POST", "/api/v2/connections", connection)
    run = live.trigger(TINY, "first")
    assert live.finish(TINY, run, seconds=600) == "success", live.log(TINY, run, "plan")
    return run


def test_dataset_is_read_from_and_delivered_to_buckets(live: Live, built: str, rclone_server: Server) -> None:
    assert rclone_server.folder
    assert json.loads((rclone_server.folder / "made" / "sets" / "tiny" / "latest.json").read_text())


def test_secret_is_in_no_log_no_file_and_no_answer(live: Live, built: str) -> None:
    places = live.tasks(TINY, built)
    assert len(places) > 10
    for (task, index), instance in places.items():
        there = f"/api/v2/dags/{TINY}/dagRuns/{built}/taskInstances/{task}"
        answers = [json.dumps(instance), live.log(TINY, built, task, map_index=index)]
        query = f"map_index={index}"
        answers.append(json.dumps(live.call("GET", f"{there}/xcomEntries?{query}")))
        assert SECRET_KEY not in "".join(answers), task
        assert ACCESS_KEY not in "".join(answers), task
    folders = (live.folder / name for name in ("work", ".corpusmill", "dags", ".airflow/logs"))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == ".dag" for path in files)
    assert [path for path in files if holds(path, SECRET_KEY)] == []


def holds(path: Path, text: str) -> bool:
    return text.encode() in path.read_bytes()


def test_stage_of_ones_own_has_a_task_is_on_the_page_and_is_done_again_by_the_shard(live: Live, built: str) -> None:
    # A step of one part is done by its first task, so that the task of the stage has nothing to do.
    (own,) = [place for place in live.tasks(TINY, built) if place[0].endswith(f".{NAME}")]
    assert live.tasks(TINY, built)[own]["state"] == "skipped"
    receipts = sorted((live.folder / "work" / "tiny" / NAME).glob("*/receipt.json"))
    assert len(receipts) > 1
    assert sum(json.loads(path.read_text())["counts"]["documents"] for path in receipts) > 0
    assert f"{NAME}: documents" in live.client.get(f"/dataset-report/{TINY}/{built}/report").text
    written = [path.stat().st_mtime_ns for path in receipts]
    live.trigger("reprocess_shard", "own", dataset="tiny", work_folder="work", stage=NAME, shard=0)
    assert live.finish("reprocess_shard", "own") == "success", live.log("reprocess_shard", "own", "plan")
    assert [path.stat().st_mtime_ns == at for path, at in zip(receipts, written, strict=True)].count(False) == 1


def test_reprocessed_shard_has_the_connection_too(live: Live, built: str) -> None:
    run = live.trigger("reprocess_shard", "again", dataset="tiny", stage="download", shard=0)
    assert live.finish("reprocess_shard", run) == "success", live.log("reprocess_shard", run, "plan")


def test_dry_run_estimates_with_the_connection(live: Live, built: str) -> None:
    run = live.trigger(TINY, "dry", dry_run=True)
    assert live.finish(TINY, run) == "success"
    assert "tokens" in live.log(TINY, run, "plan")


def test_connection_that_airflow_does_not_know_fails_the_plan_once_in_words(live: Live, built: str) -> None:
    run = live.trigger("dataset__lost", "first")
    assert live.finish("dataset__lost", run) == "failed"
    assert "Airflow has no such connection" in live.log("dataset__lost", run, "plan")
    assert live.tasks("dataset__lost", run)["plan", -1]["try_number"] == 1
