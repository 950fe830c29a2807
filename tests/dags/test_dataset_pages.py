"""What a page concludes from task instances and receipts, and for how long it reads."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from corpusmill.config import DatasetConfig, check_config
from corpusmill.engine.ledger import RECEIPT_NAME, Receipt
from corpusmill.report.shards import StepFacts
from tests.system.corpus import configuration

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def _pages(airflow_database: None) -> None:
    """Airflow's settings, and with them plugins/ among the folders to import from."""
    from airflow import plugins_manager

    plugins_manager._get_plugins()


def task(name: str, index: int, state: str, **changes: Any) -> Any:
    from corpusmill_airflow.pages.records import Task

    ended = BEGAN + timedelta(seconds=10) if state == "success" else None
    values = {"started": BEGAN if state not in {"waiting", "skipped"} else None, "ended": ended, "tries": 1} | changes
    return Task(name, index, f"{index:05d}", state, values["tries"], values["started"], values["ended"])


def receipt_facts(bytes_read: int, after_seconds: float = 9) -> StepFacts:
    return StepFacts({"bytes_read": bytes_read}, "d", 1.0, BEGAN.timestamp() + after_seconds)


def of_tasks(
    by_task: dict[tuple[str, int], list[StepFacts]],
    unread: set[tuple[str, int]] = frozenset(),  # type: ignore[assignment]
    stage: str = "index",
) -> Any:
    """Facts of receipts that tasks returned."""
    from corpusmill_airflow.pages.live import Facts

    paths = {
        key: {f"/mill/one/{stage}/{key[1]:05d}-{place:02d}/receipt.json": facts for place, facts in enumerate(of_task)}
        for key, of_task in by_task.items()
    }
    return Facts(paths, frozenset(unread))


def settings(**changes: Any) -> DatasetConfig:
    """A configuration that makes files for Megatron."""
    return check_config(configuration(Path("/nowhere"), exports={"megatron": {}}, **changes), where="test")


def lines_by_name(*arguments: Any, **named: Any) -> dict[str, Any]:
    from corpusmill_airflow.pages.live import step_lines

    return {line.name: line for line in step_lines(*arguments, **named)}


def test_step_lines_receipt_older_than_its_task_counts_as_reused() -> None:
    tasks = [task("tokenize", 0, "success"), task("tokenize", 1, "success"), task("tokenize", 2, "running")]
    facts = of_tasks({("tokenize", 0): [receipt_facts(500)], ("tokenize", 1): [receipt_facts(700, -3600)]})
    line = lines_by_name(tasks, facts, 3)["tokenize"]
    assert (line.done, line.total, line.reused) == (2, 3, 1)
    assert line.bytes_read == 500
    assert line.doing == "1 running, 1 reused"
    assert line.seconds_left


def test_step_lines_several_parts_and_rounds_are_summed_up_with_their_bytes() -> None:
    tasks = [task(name, part, "success") for name in ("index.read", "index.index") for part in range(2)]
    facts = of_tasks({key: [receipt_facts(100), receipt_facts(20)] for key in (item.key for item in tasks)})
    line = lines_by_name(tasks, facts, 2)["index"]
    assert (line.word, line.done, line.total, line.bytes_read) == ("done", 4, 4, 480)
    assert line.seconds == 10


def test_step_lines_part_that_had_nothing_to_do_neither_hides_the_bytes_nor_counts_as_reused() -> None:
    """It counted as one whose receipt was unread, for ever, and the bytes of all parts were left out."""
    tasks = [task("tokenize", 0, "success"), task("tokenize", 1, "success")]
    line = lines_by_name(tasks, of_tasks({("tokenize", 0): [receipt_facts(500)], ("tokenize", 1): []}), 2)["tokenize"]
    assert (line.bytes_read, line.reused, line.nothing, line.doing) == (500, 0, 1, "")


def test_step_lines_task_of_which_half_the_receipts_are_read_shows_no_rate_yet() -> None:
    tasks = [task("tokenize", 0, "success"), task("tokenize", 1, "running")]
    read = {("tokenize", 0): [receipt_facts(500)]}
    assert lines_by_name(tasks, of_tasks(read, {("tokenize", 0)}), 2)["tokenize"].bytes_per_second is None
    assert lines_by_name(tasks, of_tasks(read), 2)["tokenize"].bytes_per_second


def test_step_lines_time_left_does_not_depend_on_how_many_receipts_were_read() -> None:
    """It fell from 1 m 44 s to 4 s while receipts of finished tasks were still unread."""
    now = datetime.now(UTC)
    done = [
        task("tokenize", part, "success", started=now - timedelta(seconds=100 - part), ended=now) for part in range(75)
    ]
    at_work = task("tokenize", 75, "running", started=now - timedelta(seconds=2))
    tasks = [*done, at_work, task("tokenize", 76, "queued")]
    fresh = StepFacts({"bytes_read": 5}, "d", 1.0, now.timestamp())
    lines = []
    for count in (0, 1, 40, 75):
        read = {("tokenize", part): [fresh] if part < count else [] for part in range(75)}
        unread = {key for key, of_task in read.items() if not of_task}
        lines.append(lines_by_name(tasks, of_tasks(read, unread), 77)["tokenize"])
    assert [line.seconds_left for line in lines] == pytest.approx([100 / 75 * 2] * 4, abs=0.1)
    assert [line.bytes_read for line in lines] == [0, 0, 0, 375]  # no rate of a part of the bytes


WITHOUT_A_SLOT = [("tokenize", index, "scheduled") for index in range(4)]
UNMAPPED = ("shuffle.budget", "shuffle.gather")  # of two parts and more, the budget's task is always one


@pytest.mark.parametrize(
    ("step", "tasks", "parts", "is_over", "word", "done", "doing"),
    [
        # It said "0 of 4" and no reason.
        ("tokenize", WITHOUT_A_SLOT, 4, False, "waiting", "0 of 4", "4 waiting for slots of the pool ram_gib"),
        ("tokenize", [*WITHOUT_A_SLOT, ("tokenize", 4, "running")], 5, False, "running", "0 of 5", "1 running"),
        ("shuffle", [(name, -1, "waiting") for name in UNMAPPED], 3, False, "waiting", "0 of 4", ""),
        ("shuffle", [(name, -1, "upstream_failed") for name in UNMAPPED], 3, False, "stopped", "0 of 4", "4 not begun"),
        ("tokenize", [("tokenize", -1, "skipped")], 2, False, "skipped", "0 of 0", "skipped in Airflow"),
        ("report", [("index.index", 0, "failed"), ("report", -1, "upstream_failed")], 1, True, "stopped", "0 of 1",
         "not begun"),
        ("tokenize", [("tokenize", 0, "success"), ("tokenize", 1, "failed")], 2, True, "failed", "1 of 2", "1 failed"),
        # A run that somebody marked as failed showed steps at work, and seconds that went on.
        ("tokenize", [("tokenize", 0, "success"), ("tokenize", 1, "waiting")], 2, False, "running", "1 of 2", ""),
        ("tokenize", [("tokenize", 0, "success"), ("tokenize", 1, "waiting")], 2, True, "stopped", "1 of 2", ""),
        ("tokenize", [("tokenize", 0, "up_for_reschedule")], 1, False, "waiting", "0 of 1", "waiting for another run"),
        ("export", [("export.megatron", 0, "running"), ("export.numpy", -1, "skipped"),
                    ("export.webdataset", -1, "waiting")], 1, False, "running", "0 of 1", "running"),
    ],
)  # fmt: skip
def test_step_lines_say_how_far_a_step_is_and_what_it_does(
    step: str, tasks: list[tuple[str, int, str]], parts: int, is_over: bool, word: str, done: str, doing: str
) -> None:
    made = [replace(task(*values), pool="ram_gib") for values in tasks]
    config = settings() if step == "export" else None
    line = lines_by_name(made, of_tasks({}), parts, config, is_over=is_over)[step]
    assert (line.word, f"{line.done} of {line.total}", line.doing) == (word, done, doing)


def test_step_lines_step_of_one_part_counts_only_the_task_that_does_all_of_it() -> None:
    """`0 of 5` became `1 of 1` when that task skipped the others."""
    from corpusmill.builds.chain import all_tasks

    rounds = [item.name for item in all_tasks() if item.step.name == "find_ranges"]
    tasks = [task(rounds[0], 0, "running"), *(task(name, -1, "waiting") for name in rounds[1:])]
    line = lines_by_name(tasks, of_tasks({}), 1, settings())["find_ranges"]
    assert (line.total, line.doing) == (1, "running")
    assert lines_by_name(tasks, of_tasks({}), 2, settings())["find_ranges"].total > 5


def test_step_lines_step_that_is_not_needed_says_why_before_and_after_it_is_skipped() -> None:
    without = settings(dedup={"mode": "none"})
    for state in ("waiting", "skipped"):
        line = lines_by_name([task("find_ranges.shared", -1, state)], of_tasks({}), 2, without)["find_ranges"]
        assert (line.word, line.total) == ("skipped", 0)
        assert "deduplication is off" in line.doing
    assert lines_by_name([], of_tasks({}), 2, without)["find_ranges"].word == "skipped"  # a DAG without its tasks
    assert "find_ranges" not in lines_by_name([], of_tasks({}), 2, settings())


def test_step_lines_task_at_work_shows_how_many_shards_it_has_done() -> None:
    """One task for all shards showed 0 of 1 for its whole time."""
    from corpusmill_airflow.pages.live import Facts

    now = datetime.now(UTC)
    started = now - timedelta(seconds=30)
    found = {
        f"/mill/one/tokenize/{shard:05d}-00/receipt.json": StepFacts({"bytes_read": 7}, "d", 1.0, now.timestamp())
        for shard in range(3)
    }
    line = lines_by_name([task("tokenize", 0, "running", started=started)], Facts(found=found, shards=4), 1)["tokenize"]
    assert line.doing == "running, tokenize 3 of 4 shards"
    assert line.bytes_read == 21
    assert 0 < line.share_done < 1
    assert line.share_done + line.share_running == pytest.approx(1)
    assert 0 < line.seconds_left < 30
    assert [(inner.name, inner.receipts, inner.bytes_read) for inner in line.inside] == [("tokenize", 3, 21)]


def test_step_lines_shards_that_are_done_are_those_of_all_parts() -> None:
    """Beside a part at work, the shards of the parts that had finished were left out."""
    tasks = [task("tokenize", 0, "success"), task("tokenize", 1, "running")]
    facts = of_tasks({("tokenize", 0): [receipt_facts(5), receipt_facts(5)]}, stage="tokenize")
    returned = facts.by_task["tokenize", 0]
    by_shard = {f"/mill/one/tokenize/{n:05d}-00/receipt.json": one for n, one in enumerate(returned.values())}
    found = {"/mill/one/tokenize/00002-00/receipt.json": receipt_facts(5)}
    facts = replace(facts, by_task={("tokenize", 0): by_shard}, found=found, shards=4)
    line = lines_by_name(tasks, facts, 2)["tokenize"]
    assert line.doing == "1 running, tokenize 3 of 4 shards"
    assert line.share_done == pytest.approx(3 / 4)


def test_step_lines_stages_inside_of_a_step_are_counted_over_all_of_its_parts() -> None:
    tasks = [task("tokenize", part, "success") for part in range(2)]
    facts = of_tasks({item.key: [receipt_facts(3), receipt_facts(4)] for item in tasks}, stage="tokenize")
    (inner,) = lines_by_name(tasks, facts, 2)["tokenize"].inside
    assert (inner.name, inner.receipts, inner.bytes_read) == ("tokenize", 4, 14)


@pytest.mark.parametrize(
    ("states", "word", "words"),
    [
        ({"index": "success", "tokenize": "failed", "writeback": "running"}, "failed", "tokenize failed"),
        ({"index": "running"}, "running", "index"),
        ({"index": "success", "tokenize": "up_for_retry"}, "retry", "tokenize: will try again"),
        ({"index": "success", "tokenize": "queued"}, "waiting", "queued for tokenize"),
        ({"index": "success"}, "waiting", "index done"),
        ({"index": "success", "tokenize": "upstream_failed"}, "stopped", "stopped: an earlier task failed"),
        ({"index": "success", "tokenize": "up_for_reschedule"}, "waiting", "tokenize waits for another run"),
        ({"tokenize": "success", "shuffle.scatter": "success"}, "done", "done"),
        ({"tokenize": "success", "shuffle.scatter": "success", "shuffle.gather": "waiting"}, "waiting", "shuffle done"),
    ],
)
def test_doing_a_shard_says_the_worst_of_its_tasks_first(states: dict[str, str], word: str, words: str) -> None:
    from corpusmill_airflow.pages.live import doing

    assert doing([task(name, 3, state) for name, state in states.items()])[:2] == (word, words)


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


def test_read_steps_on_a_machine_too_busy_to_look_at_what_is_known_still_reads_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request spent its time on the receipts of the requests before; the page said `not read yet` for ever."""
    from corpusmill_airflow.pages import receipts

    paths = [write_receipt(tmp_path, f"{number:05d}") for number in range(6)]
    clock = iter(range(10**6))
    monkeypatch.setattr(receipts.time, "monotonic", lambda: float(next(clock)))
    left = [receipts.read_steps(paths, tmp_path, seconds=1.5)[1] for _ in range(3)]
    assert left == [4, 2, 0]


def test_read_steps_receipt_of_another_work_folder_or_unreadable_is_left_out(tmp_path: Path) -> None:
    from corpusmill_airflow.pages.receipts import read_steps

    inside, outside = write_receipt(tmp_path / "mine", "00000"), write_receipt(tmp_path / "other", "00000")
    broken = write_receipt(tmp_path / "mine", "00001")
    Path(broken).write_text("{")
    gone = f"{tmp_path}/mine/index/00002-00/{RECEIPT_NAME}"
    climbing = f"{tmp_path}/mine/../other/{RECEIPT_NAME}"
    actual, left, _ = read_steps([inside, outside, broken, gone, climbing], tmp_path / "mine")
    assert (set(actual), left) == ({inside}, 0)


def test_shard_lines_run_of_one_part_is_done_when_the_task_that_does_all_of_the_shuffle_is() -> None:
    """With a budget that is a task which works on no shard where there are several parts."""
    from corpusmill_airflow.pages.live import shard_lines

    tasks = [task("tokenize", 0, "success"), task("shuffle.budget", -1, "success")]
    tasks += [task(f"shuffle.{name}", -1, "skipped") for name in ("scatter", "gather")]
    assert [line.word for line in shard_lines(tasks, {}, ["00000", "00001"], [5, 5], 1)] == ["done", "done"]
    tasks[1] = replace(tasks[1], state="running")
    assert [line.doing for line in shard_lines(tasks, {}, ["00000"], [5], 1)] == ["shuffle"]


def test_shard_lines_task_without_instances_keeps_shards_from_being_done() -> None:
    from corpusmill_airflow.pages.live import shard_lines

    tasks = [task("shuffle.scatter", -1, "waiting")]
    lines = shard_lines(tasks, {}, ["00000", "00001"], [5, 5], 2)
    assert [(line.word, line.place) for line in lines] == [("waiting", 0), ("waiting", 1)]
    tasks = [task("shuffle.scatter", part, "success") for part in range(2)] + [task("shuffle.gather", -1, "waiting")]
    assert {line.word for line in shard_lines(tasks, {}, ["00000", "00001"], [5, 5], 2)} == {"done"}  # it is by cells


@pytest.mark.parametrize(
    ("task_id", "step"),
    [
        ("tokenize", "tokenize"),
        ("find_ranges.union", "find_ranges"),
        ("find_ranges", "find_ranges"),  # in a DAG that has one round of it
        ("export.numpy", "export"),
        ("find_ranges.list_match", ""),  # of older versions, as those that follow
        ("exports.export", ""),
        ("units.index", ""),
        ("match", ""),
        ("approve_removal", ""),
        ("plan", ""),
    ],
)
def test_step_of_a_task_by_its_name(task_id: str, step: str) -> None:
    assert task(task_id, 0, "success").step == step


@pytest.mark.parametrize(
    ("label", "index", "name"),
    [
        ("00000 to 00006", 1, "tokenize 00000 to 00006"),
        ("2/7", 1, "tokenize, part 2 of 7"),  # before it knows its shards
        ("1/1", 0, "tokenize"),
        ("", 2, "tokenize, part 3"),
        ("", -1, "tokenize"),
    ],
)
def test_name_of_a_task_for_people(label: str, index: int, name: str) -> None:
    assert replace(task("tokenize", index, "failed"), label=label).name == name


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        [{}],
        [{"plan_receipt": None}],
        [[]],
        "receipt.json",
        f"/{RECEIPT_NAME}",
        f"s3:///{RECEIPT_NAME}",
        f"s3://bucket/../{RECEIPT_NAME}",
        f"/a/b\0/c/d/{RECEIPT_NAME}",
        f"relative/a/b/c/{RECEIPT_NAME}",
        [f"/a/b/c/{RECEIPT_NAME}", 5],
    ],
)
def test_receipt_paths_xcom_that_names_no_receipt_names_none(value: object) -> None:
    from corpusmill_airflow.pages.records import receipt_paths

    assert receipt_paths(value) == []


def test_find_written_receipts_since_a_time_of_stages_that_are_there(tmp_path: Path) -> None:
    from corpusmill_airflow.pages.receipts import find_written

    old, new = (Path(write_receipt(tmp_path, f"{number:05d}")) for number in range(2))
    os.utime(old, (1000, 1000))
    (tmp_path / "index" / "00002-00").mkdir()  # not finished
    assert find_written(tmp_path, {"index": 2000, "tokenize": 0}) == [str(new)]
    assert set(find_written(tmp_path, {"index": 1000})) == {str(old), str(new)}
    assert find_written(tmp_path, {"index": 1000}, seconds=-1) == []


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
