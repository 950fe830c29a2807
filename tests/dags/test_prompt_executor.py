"""The scheduler rests in its executor until there is something for it to do."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONG_SECONDS = 60


@pytest.fixture
def executor(airflow_database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """One with a single worker, which is the test itself, and rests that nobody could take for an answer."""
    monkeypatch.syspath_prepend(ROOT / "plugins")
    import prompt_executor

    monkeypatch.setattr(prompt_executor, "REST_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(prompt_executor, "IDLE_REST_SECONDS", 0)
    one = prompt_executor.PromptLocalExecutor(parallelism=1)
    one.activity_queue, one.result_queue = multiprocessing.SimpleQueue(), multiprocessing.SimpleQueue()
    one.workers, one._unread_messages = {1: multiprocessing.current_process()}, multiprocessing.Value("I")
    one._unfinished = {"a", "b", "c"}
    yield one
    one.activity_queue.close()
    one.result_queue.close()


@pytest.fixture
def quickly() -> Iterator[None]:
    """Either at once, or after a whole rest."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LONG_SECONDS / 2


def after_a_moment(action: Callable[[], None]) -> None:
    """Do something beside the test, when it waits already."""
    threading.Timer(0.2, action).start()


def test_rest_ends_when_a_worker_may_have_nothing_to_do(executor: Any, quickly: None) -> None:
    def finish_two() -> None:
        executor.result_queue.put(("a", "success", None))
        executor.result_queue.put(("b", "failed", None))

    after_a_moment(finish_two)
    executor.sync()
    assert {key: state for key, (state, _) in executor.event_buffer.items()} == {"a": "success", "b": "failed"}
    assert executor._unfinished == {"c"}


def test_rest_goes_on_while_a_worker_has_work_and_more_lies_ready(
    executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import prompt_executor

    monkeypatch.setattr(prompt_executor, "REST_SECONDS", 0.5)
    executor.result_queue.put(("a", "success", None))
    began = time.monotonic()
    executor.sync()
    assert time.monotonic() - began >= 0.5
    assert set(executor.event_buffer) == {"a"}


def test_there_is_no_rest_while_something_is_to_be_told(executor: Any, quickly: None) -> None:
    executor.event_buffer["c"] = ("queued", None)
    executor.sync()
    assert executor._unfinished == {"a", "b", "c"}


def test_tasks_that_are_given_to_workers_are_waited_for(executor: Any, quickly: None) -> None:
    workload = SimpleNamespace(key="d")
    executor.queued_tasks["d"] = workload
    executor._process_workloads([workload])
    assert executor._unfinished == {"a", "b", "c", "d"}


def test_rest_is_short_when_no_task_runs(executor: Any, quickly: None) -> None:
    executor._unfinished.clear()
    executor.sync()
    assert not executor.event_buffer
