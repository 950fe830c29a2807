"""What a page concludes from task instances and receipts, and for how long it reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from corpusmill.ledger import RECEIPT_NAME, Receipt
from corpusmill.report.shards import StepFacts

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def _pages(airflow_database: None) -> None:
    """Airflow's settings, and with them plugins/ among the folders to import from."""
    from airflow import plugins_manager

    plugins_manager._get_plugins()


def task(stage: str, index: int, state: str, **changes: Any) -> Any:
    from corpusmill_airflow.pages.records import Task

    ended = BEGAN + timedelta(seconds=10) if state == "success" else None
    values = {"started": BEGAN if state != "waiting" else None, "ended": ended, "tries": 1} | changes
    return Task(stage, index, stage, f"{index:05d}", state, values["tries"], values["started"], values["ended"])


def run(state: str = "running") -> Any:
    from corpusmill_airflow.pages.records import Run

    return Run("build_dataset", "run", state, BEGAN, None, {})


def facts(bytes_read: int, after_seconds: float) -> list[StepFacts]:
    return [StepFacts({"bytes_read": bytes_read}, "d", 1.0, BEGAN.timestamp() + after_seconds)]


def test_stage_lines_receipt_older_than_its_task_counts_as_reused() -> None:
    from corpusmill_airflow.pages.live import stage_lines

    tasks = [task("index", 0, "success"), task("index", 1, "success"), task("index", 2, "running")]
    steps = {("index", 0): facts(500, 9), ("index", 1): facts(700, -3600)}
    index = stage_lines(tasks, steps, run())[0]
    assert index.progress.stage == "index"
    assert (index.progress.units_done, index.progress.units_total, index.progress.units_reused) == (2, 3, 1)
    assert index.progress.bytes_done == 500
    assert index.doing == "1 running, 1 reused"
    assert index.progress.seconds_left


def test_stage_lines_time_left_does_not_depend_on_how_many_receipts_were_read() -> None:
    """It fell from 1 m 44 s to 4 s while receipts of finished tasks were still unread (attacks.md, row 20)."""
    from corpusmill_airflow.pages.live import stage_lines

    now = datetime.now(UTC)
    done = [
        task("index", shard, "success", started=now - timedelta(seconds=100 - shard), ended=now) for shard in range(75)
    ]
    tasks = [*done, task("index", 75, "running", started=now - timedelta(seconds=2)), task("index", 76, "queued")]
    read = {("index", shard): [StepFacts({"bytes_read": 5}, "d", 1.0, now.timestamp())] for shard in range(75)}
    by_receipts_read = [
        stage_lines(tasks, {key: read[key] if key[1] < count else [] for key in read}, run())[0].progress
        for count in (0, 1, 40, 75)
    ]
    assert [progress.seconds_left for progress in by_receipts_read] == pytest.approx([100 / 75 * 2] * 4, abs=0.1)
    assert [progress.bytes_done for progress in by_receipts_read] == [0, 0, 0, 375]  # no rate of a part of the bytes


def test_stage_lines_stage_that_no_pool_has_a_slot_for_names_the_pool() -> None:
    """It said "0 of 4" and no reason (attacks.md, row 27)."""
    from corpusmill_airflow.pages.live import stage_lines

    def doing(tasks: list[Any]) -> str:
        return next(line.doing for line in stage_lines(tasks, {}, run()) if line.progress.stage == "match")

    waiting = [replace(task("match", index, "scheduled", started=None), pool="ram_gib") for index in range(4)]
    assert doing(waiting) == "4 waiting for slots of the pool ram_gib"
    assert doing([*waiting, task("match", 4, "running")]) == "1 running"


def test_stage_lines_stage_that_is_switched_off_is_left_out() -> None:
    from corpusmill_airflow.pages.live import stage_lines

    tasks = [task("index", 0, "success"), task("anchor", -1, "skipped"), task("tokenize", 0, "running")]
    stages = [line.progress.stage for line in stage_lines(tasks, {}, run())]
    assert "anchor" not in stages
    assert "union" not in stages  # what comes after it has begun, so it will not
    assert stages[:2] == ["index", "tokenize"]
    assert [line.progress.stage for line in stage_lines(tasks, {}, run("failed"))] == ["index", "tokenize"]


def test_stage_lines_report_behind_a_failed_stage_has_not_failed_itself() -> None:
    from corpusmill_airflow.pages.live import stage_lines

    tasks = [task("index", 0, "failed"), task("report", -1, "upstream_failed")]
    assert [(line.word, line.doing) for line in stage_lines(tasks, {}, run("failed"))] == [
        ("failed", "1 failed"),
        ("stopped", "1 not begun"),
    ]


@pytest.mark.parametrize(
    ("states", "word", "words"),
    [
        ({"index": "success", "tokenize": "failed", "writeback": "running"}, "failed", "tokenize failed"),
        ({"index": "running"}, "running", "index"),
        ({"index": "success", "tokenize": "up_for_retry"}, "retry", "tokenize: will try again"),
        ({"index": "success", "tokenize": "queued"}, "waiting", "queued for tokenize"),
        ({"index": "success"}, "waiting", "index done"),
        ({"index": "success", "tokenize": "upstream_failed"}, "stopped", "stopped: an earlier task failed"),
        ({"index": "success", "tokenize": "success", "scatter": "success"}, "done", "done"),
    ],
)
def test_doing_a_shard_says_the_worst_of_its_tasks_first(states: dict[str, str], word: str, words: str) -> None:
    from corpusmill_airflow.pages.live import doing

    assert doing([task(stage, 3, state) for stage, state in states.items()])[:2] == (word, words)


def test_doing_a_shard_of_a_run_that_is_over_waits_for_nothing() -> None:
    from corpusmill_airflow.pages.live import doing

    tasks = [task("index", 3, "success"), task("tokenize", 3, "success")]
    assert doing(tasks)[:2] == ("waiting", "tokenize done")
    assert doing(tasks, is_over=True)[:2] == ("stopped", "tokenize done")


def write_receipt(work: Path, unit: str) -> str:
    folder = work / "index" / f"{unit}-0011223344556677"
    folder.mkdir(parents=True)
    receipt = Receipt(
        stage="index",
        stage_version=1,
        unit=unit,
        fingerprint="0" * 64,
        settings={},
        inputs=(),
        counts={"lines": 7},
        details={},
        outputs=(),
        versions={},
        seconds=1.0,
        peak_rss_bytes=0,
    )
    (folder / RECEIPT_NAME).write_bytes(receipt.text())
    return str(folder / RECEIPT_NAME)


def test_read_steps_without_time_reads_nothing_and_says_how_much_is_left(tmp_path: Path) -> None:
    from corpusmill_airflow.pages.receipts import read_steps

    paths = [write_receipt(tmp_path, f"{number:05d}") for number in range(3)]
    assert read_steps(paths, tmp_path, seconds=-1) == ({}, 3, None)
    actual, left, _ = read_steps(paths, tmp_path)
    assert left == 0
    assert [actual[path].counts["lines"] for path in paths] == [7, 7, 7]
    assert read_steps(paths, tmp_path, seconds=-1)[1] == 0  # what was read once is known


def test_read_steps_receipt_of_another_work_folder_or_unreadable_is_left_out(tmp_path: Path) -> None:
    from corpusmill_airflow.pages.receipts import read_steps

    inside, outside = write_receipt(tmp_path / "mine", "00000"), write_receipt(tmp_path / "other", "00000")
    broken = write_receipt(tmp_path / "mine", "00001")
    Path(broken).write_text("{")
    gone = f"{tmp_path}/mine/index/00002-00/{RECEIPT_NAME}"
    climbing = f"{tmp_path}/mine/../other/{RECEIPT_NAME}"
    actual, left, _ = read_steps([inside, outside, broken, gone, climbing], tmp_path / "mine")
    assert (set(actual), left) == ({inside}, 0)


@pytest.mark.parametrize(
    ("task_id", "stage"),
    [
        ("tokenize", "tokenize"),
        ("find_ranges.union", "union"),
        ("shuffle.gather", "gather"),
        ("exports.export", "export"),
        ("find_ranges.list_match", None),
        ("units.list_tokenize", None),
        ("units.match", None),  # of runs before November 2026
        ("approve", None),
    ],
)
def test_stage_of_a_task_by_its_name(task_id: str, stage: str | None) -> None:
    from corpusmill_airflow.pages.records import stage_of

    assert stage_of(task_id) == stage


def refreshes(*made: tuple[int, str]) -> Any:
    """A dataset with refreshes of so many tokens, made by so-called settings, the newest first."""
    from corpusmill_airflow.pages.datasets import Dataset, Refresh

    dataset = Dataset("one", Path("work/one"))
    for tokens, settings in made:
        dataset.refreshes.append(Refresh(StepFacts({"tokens": tokens}, "d", 1.0, settings=settings), None))
    return dataset


def test_growth_compares_only_refreshes_of_equal_settings() -> None:
    assert refreshes((110, "a"), (100, "a")).growth == "+10.0 %"
    assert refreshes((110, "a"), (70, "experiment"), (100, "a")).growth == "+10.0 %"
    assert refreshes((70, "experiment"), (110, "a"), (100, "a")).growth == ""
    assert refreshes().growth == ""


def test_trend_draws_only_refreshes_of_equal_settings() -> None:
    assert len(refreshes((110, "a"), (70, "experiment"), (100, "a")).comparable) == 2
    assert refreshes((110, "a"), (70, "experiment"), (100, "a")).trend == refreshes((110, "a"), (100, "a")).trend
