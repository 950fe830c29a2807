"""The stage of docs/stages.md under a real Airflow: its task, a shard of it done again, its place on the page."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builds.own_stage import NAME, write_package
from tests.dags.live import Live, free_port, tiny

pytestmark = pytest.mark.slow

DAG = "dataset__tiny"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    stages = write_package(tmp_path / "own")
    folder = tmp_path / "airflow"
    stages["PYTHONPATH"] = os.pathsep.join([str(folder), stages["PYTHONPATH"]])
    live = Live(folder, free_port(), stages)
    live.configure(tiny("tiny"))
    try:
        live.server("up")
        live.login()
        yield live
    finally:
        live.server("down")


def test_stage_of_ones_own_has_a_task_is_done_again_by_the_shard_and_is_on_the_page(live: Live) -> None:
    live.trigger(DAG, "first")
    assert live.finish(DAG, "first") == "success"
    # A step of one part is done by its first task, so that the task of the stage has nothing to do.
    (own,) = [place for place in live.tasks(DAG, "first") if place[0].endswith(f".{NAME}")]
    assert live.tasks(DAG, "first")[own]["state"] == "skipped"
    receipts = sorted((live.folder / "work" / "tiny" / NAME).glob("*/receipt.json"))
    assert len(receipts) > 1
    assert sum(json.loads(path.read_text())["counts"]["documents"] for path in receipts) > 0

    page = live.client.get(f"/dataset-report/{DAG}/first/report").text
    assert f"{NAME}: documents" in page

    written = [path.stat().st_mtime_ns for path in receipts]
    live.trigger("reprocess_shard", "again", dataset="tiny", work_folder="work", stage=NAME, shard=0)
    assert live.finish("reprocess_shard", "again") == "success"
    assert [path.stat().st_mtime_ns == at for path, at in zip(receipts, written, strict=True)].count(False) == 1
